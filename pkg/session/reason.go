package session

import (
	"errors"

	"loopfleet/pkg/harness"
	"loopfleet/pkg/tmux"
)

// Reasons: the one word that a log line, a record or a page of documentation has
// for an error of this package. They do not change.
const (
	// ReasonAttached: withheld, a person is typing in the session.
	ReasonAttached = "attached"
	// ReasonDialog: withheld, the agent asks a person something.
	ReasonDialog = "dialog"
	// ReasonDraft: withheld, a person's text stands where prompts are typed.
	ReasonDraft = "draft"
	// ReasonFence: not begun, too little of the worker's lease is left.
	ReasonFence = "fence"
	// ReasonHarnessNotFound: the harness's program is not there.
	ReasonHarnessNotFound = harness.ReasonNotFound
	// ReasonHarnessUnknown: the configuration has no such harness.
	ReasonHarnessUnknown = "harness-unknown"
	// ReasonInbox: the prompt's file cannot be written safely.
	ReasonInbox = "inbox"
	// ReasonMissing: the session has vanished or its program has ended.
	ReasonMissing = "session-missing"
	// ReasonNameHeld: a live session that is not ours has the name. Permanent.
	ReasonNameHeld = "name-held"
	// ReasonNotLanded: pasted and not seen on the screen; no Enter was sent.
	ReasonNotLanded = "not-landed"
	// ReasonNotReady: withheld, the agent does not take input yet.
	ReasonNotReady = "not-ready"
	// ReasonNotSubmitted: the line stays where people type, whatever Enters.
	ReasonNotSubmitted = "not-submitted"
	// ReasonOther: an error that has no word of its own; its text tells.
	ReasonOther = "other"
	// ReasonSpawnExit: the program ended right after its start.
	ReasonSpawnExit = "spawn-exit"
	// ReasonTmux: tmux refused a command, or did not answer; the session may
	// well live.
	ReasonTmux = "tmux"
	// ReasonUnreadable: it cannot be told whether the session lives.
	ReasonUnreadable = "unreadable"
)

// Reasons lists every reason, sorted.
var Reasons = []string{
	ReasonAttached, ReasonDialog, ReasonDraft, ReasonFence, ReasonHarnessNotFound, ReasonHarnessUnknown, ReasonInbox,
	ReasonNameHeld, ReasonNotLanded, ReasonNotReady, ReasonNotSubmitted, ReasonOther, ReasonMissing, ReasonSpawnExit,
	ReasonTmux, ReasonUnreadable,
}

// Reason returns the word for an error of this package, however it is wrapped:
// one of Reasons, or what a WithheldError of the caller's own carries. It is
// ReasonOther for an error that has none, and "" for nil.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*WithheldError](err); ok {
		return e.Reason
	}
	type named interface {
		error
		Reason() string
	}
	if e, ok := errors.AsType[named](err); ok {
		return e.Reason()
	}
	if errors.Is(err, harness.ErrUnknown) {
		return ReasonHarnessUnknown
	}
	_, refused := errors.AsType[*tmux.CommandError](err)
	for _, e := range []error{tmux.ErrDead, tmux.ErrForeign, tmux.ErrInvalid, tmux.ErrNoServer, tmux.ErrNoSession, tmux.ErrGone} {
		refused = refused || errors.Is(err, e)
	}
	if refused {
		return ReasonTmux
	}
	return ReasonOther
}

// Permanent reports whether no later try can go better until a person has done
// something: the event is to be given up at once, with Reason.
func Permanent(err error) bool {
	type permanent interface {
		error
		Permanent() bool
	}
	e, ok := errors.AsType[permanent](err)
	return ok && e.Permanent()
}
