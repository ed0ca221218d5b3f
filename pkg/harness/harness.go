package harness

import (
	"context"
	"fmt"
	"time"
)

// ReceiptMode is how a harness says that it has taken a prompt.
type ReceiptMode string

// Receipt modes.
const (
	// ReceiptFile: the program appends the event id as a line to the file
	// ReceiptsFile in its session directory.
	ReceiptFile ReceiptMode = "file"
	// ReceiptNone: it never says; a submitted prompt is done.
	ReceiptNone ReceiptMode = "none"
	// ReceiptTranscript: the adapter reads it from the program's own files.
	ReceiptTranscript ReceiptMode = "transcript"
)

// State is what a harness is doing, as far as its adapter can tell.
type State string

// States. Only Dialog and Starting withhold a prompt.
const (
	// Unknown: the adapter cannot tell.
	Unknown State = "unknown"
	// Starting: it does not read its terminal yet.
	Starting State = "starting"
	// Idle: it waits for a prompt.
	Idle State = "idle"
	// Busy: it works; a prompt is queued or joins the work.
	Busy State = "busy"
	// Dialog: it asks a person something; a key would answer it.
	Dialog State = "dialog"
)

// StartInput is what a program is started for.
type StartInput struct {
	// Prompt is the boot prompt: one line of Loopfleet's own.
	Prompt string
	// Item is the work item as people write it; Incarnation counts its
	// spawns.
	Item        string
	Incarnation int
	// SessionDir is the session's private directory, outside the checkout.
	SessionDir string
	// Cwd is the directory the program will be started in.
	Cwd string
	// Resume is the conversation to go on with, or "" for a new one. An
	// adapter that cannot resume starts a new one.
	Resume string
}

// Launch is how to start the program.
type Launch struct {
	// Argv is an absolute path and the arguments.
	Argv []string
	// Env is added to the environment, as NAME=value.
	Env []string
	// SessionID is the conversation's id when it is known beforehand.
	SessionID string
	// Resumed says that Argv goes on with the conversation asked for.
	Resumed bool
}

// View is what an adapter may look at: the session's files and its screen.
type View struct {
	SessionDir string
	Cwd        string
	// SessionID is the conversation's id, or "".
	SessionID string
	PID       int
	Screen    Screen
}

// Adapter is what Loopfleet knows of one agent CLI.
type Adapter interface {
	// Name is the harness's name in the configuration.
	Name() string
	// Find returns the program's absolute path, or a *NotFoundError.
	Find() (string, error)
	// Start says how to start the program; *NotFoundError when it cannot be
	// found.
	Start(in StartInput) (Launch, error)
	// CanResume reports whether Start can go on with a conversation.
	CanResume() bool
	// Receipt is how the program says that it has taken a prompt.
	Receipt() ReceiptMode
	// Received looks for the receipt of the event. It is false and no error
	// when there is none, and always with ReceiptNone.
	Received(ctx context.Context, v View, eventID string) (bool, error)
	// State looks at what the program is doing.
	State(ctx context.Context, v View) (State, error)
	// Draft returns all that stands where a person types, squashed, without
	// the mark of the place: empty when nothing does, one space when only white
	// space does, false when it cannot tell exactly. Only where it is known is
	// a person's text told from ours.
	Draft(s Screen) (string, bool)
	// Composer returns squashed text whose end is what stands where a person
	// types, with whatever marks the place or stands above it before; empty
	// when nothing does, false when it cannot tell.
	Composer(s Screen) (string, bool)
	// SubmitDelay is how long after a paste an Enter is taken for one.
	SubmitDelay() time.Duration
}

// ReasonNotFound is the word for a NotFoundError in logs.
const ReasonNotFound = "harness-not-found"

// NotFoundError is a harness whose program is not there.
type NotFoundError struct {
	Harness string
	Program string
	// Hint says what to do about it.
	Hint string
	Err  error
}

// Error says what is missing and what to do.
func (e *NotFoundError) Error() string {
	return fmt.Sprintf("harness %s: program %q not found: %v (%s)", e.Harness, e.Program, e.Err, e.Hint)
}

// Unwrap returns the cause.
func (e *NotFoundError) Unwrap() error { return e.Err }

// Reason is ReasonNotFound.
func (e *NotFoundError) Reason() string { return ReasonNotFound }
