package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"loopfleet/pkg/harness"
	"loopfleet/pkg/session"
	"loopfleet/pkg/tmux"
)

func TestReason_EveryErrorHasItsWord(t *testing.T) {
	t.Parallel()
	missing := &session.MissingError{Target: "t", Status: session.Status{State: session.Dead, Exit: 1}}
	seen := map[string]bool{}
	for _, tc := range []struct {
		err       error
		want      string
		permanent bool
	}{
		{&session.FenceError{}, "fence", false},
		{&session.InboxError{Err: errors.New("x")}, "inbox", false},
		{missing, "session-missing", false},
		{&session.NameHeldError{}, "name-held", true},
		{&session.NotLandedError{}, "not-landed", false},
		{&session.NotLandedError{Unread: true}, "not-landed", false},
		{&session.NotSubmittedError{}, "not-submitted", false},
		{&session.SpawnError{}, "spawn-exit", false},
		{&session.UnreadableError{}, "unreadable", false},
		{&session.WithheldError{Reason: session.ReasonAttached}, "attached", false},
		{&session.WithheldError{Reason: session.ReasonDialog}, "dialog", false},
		{&session.WithheldError{Reason: session.ReasonDraft}, "draft", false},
		{&session.WithheldError{Reason: session.ReasonNotReady}, "not-ready", false},
		{&harness.NotFoundError{Err: errors.New("x")}, "harness-not-found", false},
		{harness.ErrUnknown, "harness-unknown", false},
		{&tmux.CommandError{Status: 1}, "tmux", false},
		{tmux.ErrNoServer, "tmux", false},
		{tmux.ErrDead, "tmux", false},
		{context.Canceled, "other", false},
		{errors.New("disk full"), "other", false},
	} {
		for _, err := range []error{tc.err, fmt.Errorf("deliver: %w", tc.err), errors.Join(errors.New("y"), tc.err)} {
			if got := session.Reason(err); got != tc.want {
				t.Errorf("Reason(%v) = %q, want %q", err, got, tc.want)
			}
			if got := session.Permanent(err); got != tc.permanent {
				t.Errorf("Permanent(%v) = %v", err, got)
			}
		}
		if tc.err.Error() == "" || strings.ContainsAny(tc.err.Error(), "\n\x1b") {
			t.Errorf("%q is no line for people", tc.err)
		}
		seen[tc.want] = true
	}
	for _, r := range session.Reasons {
		if !seen[r] {
			t.Errorf("no error has the reason %q", r)
		}
		delete(seen, r)
	}
	if len(seen) != 0 || !slices.IsSorted(session.Reasons) {
		t.Errorf("Reasons %q lacks %v, or is not sorted", session.Reasons, seen)
	}
	if session.Reason(nil) != "" || session.Permanent(nil) {
		t.Error("no error has a reason")
	}
	// A caller's own wait keeps the caller's word.
	if got := session.Reason(&session.WithheldError{Reason: "no-room"}); got != "no-room" {
		t.Errorf("reason %q", got)
	}
}
