package tmux

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrDead: the session is there, and its program has ended.
	ErrDead = errors.New("the program in the pane has ended")
	// ErrForeign: the server hosts a session that is not Loopfleet's, or the
	// name is not one that Loopfleet gives; nothing was changed.
	ErrForeign = errors.New("not a session of Loopfleet")
	// ErrInvalid: the arguments cannot be handed to tmux safely.
	ErrInvalid = errors.New("cannot be given to tmux")
	// ErrNoServer: nothing listens on the socket. The server process may
	// still run when the socket file was removed.
	ErrNoServer = errors.New("no tmux server listens on the socket")
	// ErrNoSession: the server has no session of that name.
	ErrNoSession = errors.New("no such tmux session")
	// ErrGone: the process has ended, or its pid belongs to another one now.
	ErrGone = errors.New("the process has ended")
)

// CommandError is a tmux command that failed although the server answers. It
// says nothing about the life of the session.
type CommandError struct {
	// Args is the tmux command, without the options that choose the server.
	Args []string
	// Status is the client's exit status; -1 when it was ended by a signal
	// or by the end of its context.
	Status int
	// Stderr is what tmux said, made printable and cut.
	Stderr string
	// Err is the cause when tmux could not be run to its end.
	Err error
}

// Error names the command, its status and what tmux said.
func (e *CommandError) Error() string {
	var b strings.Builder
	name := "tmux"
	if len(e.Args) > 0 {
		name += " " + e.Args[0]
	}
	fmt.Fprintf(&b, "%s: status %d", name, e.Status)
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Stderr != "" {
		b.WriteString(": " + e.Stderr)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *CommandError) Unwrap() error { return e.Err }
