package session

import (
	"fmt"
	"strings"
	"time"
)

// MissingError is a session that has vanished or whose program has ended; a
// respawn is in order.
type MissingError struct {
	// Target is the tmux session.
	Target string
	Status Status
}

// Error says what became of the session.
func (e *MissingError) Error() string {
	return fmt.Sprintf("session %s is gone: %s; it has to be started again", e.Target, e.Status)
}

// Reason is ReasonMissing.
func (e *MissingError) Reason() string { return ReasonMissing }

// UnreadableError is a session of which cannot be told whether it lives; it
// counts as live. Nothing was typed.
type UnreadableError struct {
	Target string
	// Why says what was in the way.
	Why string
}

// Error says what was in the way.
func (e *UnreadableError) Error() string {
	return fmt.Sprintf("session %s cannot be read: %s; it is taken to live and is not started again", e.Target, e.Why)
}

// Reason is ReasonUnreadable.
func (e *UnreadableError) Reason() string { return ReasonUnreadable }

// WithheldError is a prompt that was not submitted, because the agent cannot
// take one now or a person is at work in its session. No Enter was sent; try
// again later, at no charge.
type WithheldError struct {
	// Reason is ReasonAttached, ReasonDialog, ReasonDraft, ReasonNotReady, or
	// one that a caller gives who uses the type for a wait of its own.
	Reason string
}

// Error says why, and who can do something about it.
func (e *WithheldError) Error() string {
	switch e.Reason {
	case ReasonDialog:
		return "the agent asks a person something; attach to its session and answer"
	case ReasonNotReady:
		return "the agent does not take input yet"
	case ReasonAttached:
		return "a person is typing in the agent's session; the prompt goes in when the keys have rested for a while"
	case ReasonDraft:
		return "a text that is not Loopfleet's stands where prompts are typed; attach to the session and submit or erase it"
	default:
		return "the prompt is withheld: " + e.Reason
	}
}

// NotLandedError is a prompt that was pasted and not seen on the screen. Enter
// was not sent: a dialog may have swallowed the line, and would take it for an
// answer.
type NotLandedError struct {
	Target, EventID string
	Waited          time.Duration
	// Unread says that the program has not read it yet: it will not be pasted
	// again as long as that is so.
	Unread bool
}

// Error says what was waited for.
func (e *NotLandedError) Error() string {
	why := "it may be asking something"
	if e.Unread {
		why = "the program does not read its terminal"
	}
	return fmt.Sprintf("prompt %s was pasted into %s and not seen on its screen within %s; Enter was not sent; look at the session, %s",
		e.EventID, e.Target, e.Waited, why)
}

// Reason is ReasonNotLanded.
func (e *NotLandedError) Reason() string { return ReasonNotLanded }

// NotSubmittedError is a prompt that stayed where people type, although Enter
// was sent. The next try finds it there and only sends Enter.
type NotSubmittedError struct {
	Target, EventID string
	Enters          int
}

// Error says what was tried.
func (e *NotSubmittedError) Error() string {
	return fmt.Sprintf("prompt %s stands in %s and was not taken after %d Enters; look at the session", e.EventID, e.Target, e.Enters)
}

// Reason is ReasonNotSubmitted.
func (e *NotSubmittedError) Reason() string { return ReasonNotSubmitted }

// SpawnError is a program that ended before it had shown that it stays.
type SpawnError struct {
	Target string
	Status Status
	// Screen is the end of what it printed, safe to print.
	Screen string
}

// Error says how it ended and the last thing it printed.
func (e *SpawnError) Error() string {
	msg := fmt.Sprintf("the agent in %s ended right after its start: %s", e.Target, e.Status)
	lines := strings.Split(strings.TrimSpace(e.Screen), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		const limit = 200
		if len(last) > limit {
			last = strings.ToValidUTF8(last[:limit], "") + "…"
		}
		msg += "; it last printed: " + last
	}
	return msg
}

// Reason is ReasonSpawnExit.
func (e *SpawnError) Reason() string { return ReasonSpawnExit }

// NameHeldError is a live session under the name, or on the socket, of the one
// to start, that is not ours to end.
type NameHeldError struct {
	Target, Socket string
	// Why says how it was told from ours.
	Why string
}

// Error says what a person can do.
func (e *NameHeldError) Error() string {
	return fmt.Sprintf("a live session holds %s on %s: %s; end it by hand (tmux -S %s kill-server) or wait until it has ended",
		e.Target, e.Socket, e.Why, e.Socket)
}

// Reason is ReasonNameHeld.
func (e *NameHeldError) Reason() string { return ReasonNameHeld }

// Permanent is true: only a person can make room.
func (e *NameHeldError) Permanent() bool { return true }

// FenceError is a paste that was not begun because the worker's lease may not
// last until the submit.
type FenceError struct {
	Left time.Duration
}

// Error says how much of the lease was left.
func (e *FenceError) Error() string {
	return fmt.Sprintf("%s of the worker's lease are left, %s are needed to paste and submit; nothing was typed", e.Left, MinLease)
}

// Reason is ReasonFence.
func (e *FenceError) Reason() string { return ReasonFence }

// InboxError is a checkout in which the prompt's file cannot be written safely.
type InboxError struct {
	// Path is relative to the session's directory.
	Path string
	Err  error
}

// Error says what is in the way.
func (e *InboxError) Error() string {
	return fmt.Sprintf("write %s: %v; remove what is in the way from the checkout", e.Path, e.Err)
}

// Unwrap returns the cause.
func (e *InboxError) Unwrap() error { return e.Err }

// Reason is ReasonInbox.
func (e *InboxError) Reason() string { return ReasonInbox }
