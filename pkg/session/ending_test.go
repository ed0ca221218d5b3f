package session_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loopfleet/pkg/config"
	"loopfleet/pkg/record"
	"loopfleet/pkg/session"
	"loopfleet/pkg/testutil/tmuxtest"
	"loopfleet/pkg/testutil/waitfor"
)

// endings are the ways in which a session ends under a delivery.
var endings = map[string]func(*env, record.Session){
	"agent killed": func(e *env, s record.Session) {
		tmuxtest.KillProcess(e.t.Context(), e.t, agentProcess(s))
	},
	"agent killed and seen dead": func(e *env, s record.Session) { e.kill(s) },
	"session ended": func(e *env, s record.Session) {
		tmuxtest.Command(e.t, tmuxtest.On(e.t, s.TmuxSocket), "kill-session", "-t", "="+s.TmuxTarget)
	},
	"server ended": func(e *env, s record.Session) {
		tmuxtest.Command(e.t, tmuxtest.On(e.t, s.TmuxSocket), "kill-server")
	},
	"server killed": func(e *env, s record.Session) {
		tmuxtest.KillProcess(e.t.Context(), e.t, serverProcess(s))
	},
	"server killed, socket gone": func(e *env, s record.Session) {
		tmuxtest.KillProcess(e.t.Context(), e.t, serverProcess(s))
		if err := os.Remove(s.TmuxSocket); err != nil {
			e.t.Error(err)
		}
	},
}

// missing wants a delivery that found the session ended.
func (e *env) missing(s record.Session) {
	e.t.Helper()
	got, err := e.Deliver(e.t.Context(), s, prompt("comment-1", "x\n"))
	if _, ok := errors.AsType[*session.MissingError](err); !ok || got != (session.Delivery{}) || session.Reason(err) != session.ReasonMissing {
		e.t.Fatalf("%+v, %v; want MissingError", got, err)
	}
}

// rule: RR-03
func TestDeliver_EndsBetweenPasteAndEnter(t *testing.T) {
	for name, end := range endings {
		for _, harness := range []string{"demo", "lines"} { // one without receipts
			t.Run(name+", "+harness, func(t *testing.T) {
				e := setup(t, nil)
				s := e.spawn(e.request(harness))
				if harness == "lines" {
					lines(t, filepath.Join(s.Cwd, "got"), 1)
				}
				defer atEnter(func() { end(e, s) })()
				e.missing(s)
				if got, err := e.HasReceipt(s, "comment-1"); got || err != nil {
					t.Errorf("a prompt that was not submitted has a receipt: %v, %v", got, err)
				}
			})
		}
	}
}

// rule: RR-03
func TestDeliver_EndedBefore(t *testing.T) {
	t.Parallel()
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := setup(t, nil)
			req := e.request("demo")
			s := e.spawn(req)
			end(e, s)
			waitfor.Until(t, "the end", func() bool { return e.inspect(s).Ended() })
			e.missing(s)
			wantTranscript(t, s, req.Boot)
			if strings.HasPrefix(name, "agent") {
				// bug report 27: nothing was pasted into the dead pane.
				if !serverProcess(s).Alive() {
					t.Error("the tmux server has ended")
				}
				if screen, err := e.Screen(t.Context(), s, 50); err != nil || strings.Contains(screen, "comment-1") {
					t.Errorf("the screen, %v:\n%s", err, screen)
				}
			}
		})
	}
}

// A socket file that is gone is no dead session, at whatever moment.
func TestDeliver_WhenTheSocketVanishes(t *testing.T) {
	remove := func(t *testing.T, s record.Session) {
		t.Helper()
		if err := os.Remove(s.TmuxSocket); err != nil {
			t.Error(err)
		}
	}
	t.Run("before", func(t *testing.T) {
		e := setup(t, nil)
		req := e.request("demo")
		s, p := e.spawn(req), prompt("comment-1", "x\n")
		remove(t, s)
		e.deliver(s, p)
		wantTranscript(t, s, req.Boot, p)
	})
	t.Run("between paste and Enter", func(t *testing.T) {
		e := setup(t, nil)
		req := e.request("demo")
		s, p := e.spawn(req), prompt("comment-1", "x\n")
		restore := atEnter(func() { remove(t, s) })
		defer restore()
		got, err := e.Deliver(t.Context(), s, p)
		if session.Reason(err) != session.ReasonTmux || got.Submitted {
			t.Fatalf("%+v, %v; want a failure of tmux", got, err)
		}
		restore()
		e.deliver(s, p) // its line stands there
		wantTranscript(t, s, req.Boot, p)
	})
}

// An agent that takes its prompt and ends in the same moment has taken it.
func TestDeliver_TheLastBreathCounts(t *testing.T) {
	t.Parallel()
	e := setup(t, func(_ *session.Config, h map[string]config.Harness) {
		h["last"] = sh(`echo label-1 >> "$LOOPFLEET_SESSION_DIR/receipts"; read -r l; echo comment-1 >> "$LOOPFLEET_SESSION_DIR/receipts"`, "file")
	})
	s := e.spawn(e.request("last"))
	e.deliver(s, prompt("comment-1", "x\n"))
	waitfor.Until(t, "the end", func() bool { return e.inspect(s).Ended() })
	e.deliver(s, prompt("comment-1", "x\n")) // also when it is asked for later
}

// An end that the program paints itself is no submit.
func TestDeliver_AProgramThatQuitsInsteadOfReading(t *testing.T) {
	e := setup(t, nil)
	e.Driver = e.driver(demoWith(t, "none"))
	req := e.request("demo")
	t.Cleanup(func() { e.clean(req.Item) })
	res, err := e.Spawn(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	s := res.Session
	waitScreen(t, e, s, "done label-1")
	defer atEnter(func() {
		if err := agentProcess(s).Signal(15); err != nil {
			t.Error(err)
		}
	})()
	got, err := e.Deliver(t.Context(), s, prompt("comment-1", "x\n"))
	if _, ok := errors.AsType[*session.MissingError](err); !ok || got.Submitted {
		// It may have taken the line before the signal; then it says so.
		if n := len(transcript(t, s)); n != 2 {
			t.Errorf("%+v, %v with %d entries; want MissingError", got, err, n)
		}
	}
}

func TestDeliver_UnreadableIsNamed(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	s := e.spawn(e.request("demo"))
	server := serverProcess(s)
	t.Cleanup(func() { tmuxtest.KillProcess(context.WithoutCancel(t.Context()), t, server) })
	if err := errors.Join(os.Remove(s.TmuxSocket), os.Mkdir(s.TmuxSocket, 0o700)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := e.Deliver(ctx, s, prompt("comment-1", "x\n"))
	if session.Reason(err) != session.ReasonUnreadable {
		t.Errorf("error %v, reason %s", err, session.Reason(err))
	}
}
