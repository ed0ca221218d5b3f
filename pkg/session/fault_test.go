package session_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"loopfleet/pkg/fault"
	"loopfleet/pkg/session"
	"loopfleet/pkg/testutil/tmuxtest"
	"loopfleet/pkg/testutil/waitfor"
)

// Between paste and Enter the item is closed, and the agent runs git clean. The
// fault hook is the process's, so this test is not parallel.
func TestDeliver_PasteToSubmitIsNotInterrupted(t *testing.T) {
	e := setup(t, nil)
	req := e.request("demo")
	s := e.spawn(req)
	cause := errors.New("closed")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	passed := 0
	defer fault.Set(func(_ context.Context, p fault.Point) {
		if p == fault.SubmitEnter {
			passed++
			cancel(cause)
			if err := os.RemoveAll(filepath.Join(s.Cwd, ".loopfleet")); err != nil {
				t.Error(err)
			}
		}
	})()
	p := prompt("comment-1", "x\n")
	got, err := e.Deliver(ctx, s, p)
	if !got.Submitted || err != nil && !errors.Is(err, cause) {
		t.Fatalf("%+v, %v; want submitted, then the cause", got, err)
	}
	// The next owner waits for the receipt and types nothing.
	e.deliver(s, p)
	wantTranscript(t, s, req.Boot, p)
	if passed != 1 {
		t.Errorf("passed the fault point %d times, want once", passed)
	}
}

// The lag that the whole suite is run with: nothing is typed twice for it.
func TestDeliver_UnderDispatchLag(t *testing.T) {
	e := setup(t, nil)
	req := e.request("demo")
	s := e.spawn(req)
	defer fault.Set(fault.Lag(500 * time.Millisecond))()
	a, b := prompt("comment-1", "x\n"), prompt("comment-2", "y\n")
	e.deliver(s, a)
	e.deliver(s, b)
	wantTranscript(t, s, req.Boot, a, b)
}

// bug report 17: two lines in one paste are one submission to a program that
// knows bracketed paste.
func TestAgent_TakesAPasteOfTwoLinesAsOne(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	req := e.request("demo")
	s := e.spawn(req)
	srv := tmuxtest.On(t, s.TmuxSocket)
	if err := srv.Paste(t.Context(), s.TmuxTarget, "one\ntwo"); err != nil {
		t.Fatal(err)
	}
	if err := srv.Enter(t.Context(), s.TmuxTarget); err != nil {
		t.Fatal(err)
	}
	waitfor.Until(t, "the submission", func() bool { return len(transcript(t, s)) > 1 })
	wantTranscript(t, s, req.Boot, session.Prompt{Text: "one\ntwo"})
}

// bug report 24: ending item 1, which is gone already, spares item 10.
func TestEnd_SparesASiblingWithALongerName(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	one, ten := e.request("demo"), e.request("demo")
	one.Item, ten.Item = ref(t, "octo/hello#1"), ref(t, "octo/hello#10")
	first, other := e.spawn(one), e.spawn(ten)
	tmuxtest.Command(t, tmuxtest.On(t, first.TmuxSocket), "kill-server")
	rep, err := e.End(t.Context(), one.Item, first, session.EndOptions{KillSession: true, Grace: time.Second})
	if err != nil {
		t.Fatalf("%+v, %v", rep, err)
	}
	e.deliver(other, prompt("comment-1", "x\n"))
}
