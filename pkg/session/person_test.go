package session_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"loopfleet/pkg/config"
	"loopfleet/pkg/fault"
	"loopfleet/pkg/harness/demoagent"
	"loopfleet/pkg/record"
	"loopfleet/pkg/session"
	"loopfleet/pkg/testutil/tmuxtest"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/tmux"
)

// withheld wants a prompt to be held back, and nothing else.
func (e *env) withheld(s record.Session, p session.Prompt, reason string) {
	e.t.Helper()
	got, err := e.Deliver(e.t.Context(), s, p)
	w, ok := errors.AsType[*session.WithheldError](err)
	if !ok || w.Reason != reason || got.Submitted || session.Reason(err) != reason {
		screen, _ := e.Screen(context.WithoutCancel(e.t.Context()), s, 50)
		e.t.Fatalf("%+v, %v; want it withheld: %s\n%s", got, err, reason, screen)
	}
}

// eventually delivers as soon as the session takes it.
func (e *env) eventually(s record.Session, p session.Prompt) {
	e.t.Helper()
	waitfor.Value(e.t, "the prompt to go in", func() (string, bool) {
		got, err := e.Deliver(e.t.Context(), s, p)
		if _, ok := errors.AsType[*session.WithheldError](err); err != nil && !ok {
			e.t.Fatal(err)
		}
		return session.Reason(err), err == nil && got.Receipt
	})
}

// person is somebody at a terminal of their own that is attached to a session.
type person struct {
	t *testing.T
	*tmux.Server
}

const desk = "loop-desk-1-0000"

func (e *env) attach(s record.Session, readOnly bool) person {
	e.t.Helper()
	p := person{t: e.t, Server: tmuxtest.Server(e.t)}
	argv := e.AttachCommand(s, readOnly)
	argv[0] = "/usr/bin/env"
	err := p.NewSession(e.t.Context(), tmux.Spec{Name: desk, Dir: "/", Argv: argv, Environ: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}})
	if err != nil {
		e.t.Fatal(err)
	}
	waitfor.Until(e.t, "the person to be attached", func() bool { return e.inspect(s).Attached == 1 })
	return p
}

// keys presses keys by tmux's names for them.
func (p person) keys(keys ...string) {
	p.t.Helper()
	tmuxtest.Command(p.t, p.Server, append([]string{"send-keys", "-t", "=" + desk + ":"}, keys...)...)
}

func pause(d time.Duration) func(*session.Config, map[string]config.Harness) {
	return func(c *session.Config, _ map[string]config.Harness) { c.TypingPause = d }
}

func TestDeliver_WaitsForAPersonWhoTypes(t *testing.T) {
	t.Parallel()
	e := setup(t, pause(time.Hour))
	req := e.request("demo")
	s := e.spawn(req)
	p := prompt("comment-1", "x\n")
	who := e.attach(s, false)
	who.keys("h", "m")
	waitScreen(t, e, s, "> hm")
	e.withheld(s, p, session.ReasonAttached)
	wantTranscript(t, s, req.Boot)
	// Nothing more is typed: still attached, idle.
	who.keys("BSpace", "BSpace")
	e.cfg.TypingPause = 2 * time.Second
	e.Driver = e.driver(demoOnly(t))
	e.eventually(s, p)
	wantTranscript(t, s, req.Boot, p)
	if n := e.inspect(s).Attached; n != 1 {
		t.Errorf("%d people are attached, want 1", n)
	}
}

func TestDeliver_APersonWhoLooksOnIsNoHindrance(t *testing.T) {
	t.Parallel()
	e := setup(t, pause(time.Hour))
	req := e.request("demo")
	s := e.spawn(req)
	who := e.attach(s, true)
	who.keys("h", "m")
	p := prompt("comment-1", "x\n")
	e.deliver(s, p)
	wantTranscript(t, s, req.Boot, p)
}

func TestDeliver_NeverPastesBehindAPersonsDraft(t *testing.T) {
	t.Parallel()
	e := setup(t, pause(time.Second))
	req := e.request("demo")
	s := e.spawn(req)
	who := e.attach(s, false)
	who.keys("half a thought")
	waitScreen(t, e, s, "> half a thought")
	p := prompt("comment-1", "x\n")
	waitfor.Value(t, "the keys to have rested", func() (string, bool) {
		_, err := e.Deliver(t.Context(), s, p)
		return session.Reason(err), session.Reason(err) == session.ReasonDraft
	})
	screen, err := e.Screen(t.Context(), s, 50)
	if err != nil || !strings.HasSuffix(screen, "> half a thought\n") || strings.Contains(screen, session.Pointer(p.EventID)) {
		t.Errorf("the screen, %v:\n%s", err, screen)
	}
	who.keys("Enter")
	e.eventually(s, p)
	wantTranscript(t, s, req.Boot, session.Prompt{Text: "half a thought"}, p)
}

func TestDeliver_Drafts(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a person writes a long text ", 12)
	one, two := session.Pointer("comment-1"), session.Pointer("comment-0")
	for _, tc := range []struct {
		name, draft string
		ours        bool
	}{
		{"a letter", "x", false},
		{"a space", " ", false},
		{"wrapped", long, false},
		{"before ours", "see " + one, false},
		{"behind ours", one + " please", false},
		{"ours", one, true},
		{"ours twice", one + one, true},
		{"two of ours", two + one, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			e := setup(t, nil)
			req := e.request("demo")
			s := e.spawn(req)
			if err := tmuxtest.On(t, s.TmuxSocket).Paste(t.Context(), s.TmuxTarget, tc.draft); err != nil {
				t.Fatal(err)
			}
			waitfor.Until(t, "the draft", func() bool {
				_, pane, err := tmuxtest.On(t, s.TmuxSocket).Screen(t.Context(), s.TmuxTarget)
				return err == nil && pane.CursorX > len("> ")
			})
			p := prompt("comment-1", "x\n")
			if !tc.ours {
				e.withheld(s, p, session.ReasonDraft)
				wantTranscript(t, s, req.Boot)
				return
			}
			e.deliver(s, p)
			wantTranscript(t, s, req.Boot, p)
		})
	}
}

// A person types in the moment between paste and Enter.
func TestDeliver_NeverSubmitsWhatAPersonTypesBehindTheLine(t *testing.T) {
	e := setup(t, nil)
	req := e.request("demo")
	s := e.spawn(req)
	srv := tmuxtest.On(t, s.TmuxSocket)
	p := prompt("comment-1", "x\n")
	restore := atEnter(func() {
		if err := srv.Paste(t.Context(), s.TmuxTarget, " wait"); err != nil {
			t.Error(err)
		}
		waitScreen(t, e, s, session.Pointer(p.EventID)+" wait")
	})
	defer restore()
	e.withheld(s, p, session.ReasonDraft)
	restore()
	e.withheld(s, p, session.ReasonDraft)
	if err := srv.EraseLine(t.Context(), s.TmuxTarget); err != nil {
		t.Fatal(err)
	}
	e.deliver(s, p)
	wantTranscript(t, s, req.Boot, p)
}

// atEnter runs do once, between paste and Enter. The fault hook is the process's,
// so tests that use it are not parallel.
func atEnter(do func()) (restore func()) {
	done := false
	return fault.Set(func(_ context.Context, p fault.Point) {
		if p == fault.SubmitEnter && !done {
			done = true
			do()
		}
	})
}

// A person works in a second pane of the session's window.
func TestDeliver_NeverTypesIntoAPersonsPane(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	req := e.request("demo")
	s := e.spawn(req)
	srv := tmuxtest.On(t, s.TmuxSocket)
	tmuxtest.Command(t, srv, "split-window", "-t", "="+s.TmuxTarget+":", "cat")
	p := prompt("comment-1", "x\n")
	e.withheld(s, p, session.ReasonAttached)
	if other, err := srv.Capture(t.Context(), s.TmuxTarget, 0); err != nil || strings.Contains(other, "Loopfleet") {
		t.Errorf("the person's pane, %v:\n%s", err, other)
	}
	tmuxtest.Command(t, srv, "kill-pane", "-t", "="+s.TmuxTarget+":")
	e.deliver(s, p)
	wantTranscript(t, s, req.Boot, p)
}

// answers are what was answered to the agent's question.
func answers(t *testing.T, s record.Session) (out []string) {
	t.Helper()
	for _, en := range transcript(t, s) {
		if en.Answer != "" {
			out = append(out, en.Answer)
		}
	}
	return out
}

func (e *env) deny(s record.Session) {
	e.t.Helper()
	n := len(answers(e.t, s))
	tmuxtest.Command(e.t, tmuxtest.On(e.t, s.TmuxSocket), "send-keys", "-t", "="+s.TmuxTarget+":", "n")
	waitfor.Until(e.t, "the answer", func() bool { return len(answers(e.t, s)) > n })
}

func TestDeliver_AnOpenDialog(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"asks": session.ReasonDialog, "asks-unknown": session.ReasonNotLanded} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := setup(t, nil)
			req := e.request(name)
			s := e.spawn(req)
			waitScreen(t, e, s, demoagent.Question)
			p := prompt("comment-1", "x\n")
			for range 2 {
				if got, err := e.Deliver(t.Context(), s, p); session.Reason(err) != want || got.Submitted {
					t.Fatalf("%+v, %v; want %s", got, err, want)
				}
			}
			if got := answers(t, s); len(got) != 0 {
				t.Fatalf("the question was %s by a prompt", got)
			}
			e.deny(s)
			e.deliver(s, p)
			waitScreen(t, e, s, demoagent.Question)
			if got := answers(t, s); len(got) != 1 || got[0] != demoagent.Denied {
				t.Errorf("answers %q", got)
			}
			ids := ""
			for _, en := range transcript(t, s) {
				ids += en.EventID + " "
			}
			if ids != "label-1  comment-1 " {
				t.Errorf("the agent received %q", ids)
			}
		})
	}
}

// The dialog opens when the line is on the screen already.
func TestDeliver_ADialogThatOpensBetweenPasteAndEnter(t *testing.T) {
	for name, want := range map[string]string{"asks": session.ReasonDialog, "asks-unknown": session.ReasonNotLanded} {
		t.Run(name, func(t *testing.T) {
			e := setup(t, nil)
			s := e.spawn(e.request(name))
			waitScreen(t, e, s, demoagent.Question)
			e.deny(s)
			defer atEnter(func() {
				if err := agentProcess(s).Signal(syscall.SIGUSR1); err != nil {
					t.Error(err)
				}
				waitScreen(t, e, s, demoagent.Question)
			})()
			p := prompt("comment-1", "x\n")
			if got, err := e.Deliver(t.Context(), s, p); session.Reason(err) != want || got.Submitted {
				t.Fatalf("%+v, %v; want %s", got, err, want)
			}
			e.deny(s)
			e.deliver(s, p)
			for _, a := range answers(t, s) {
				if a != demoagent.Denied {
					t.Errorf("the question was %s by a prompt", a)
				}
			}
			if n := len(transcript(t, s)); n != 4 { // boot, answer, answer, prompt
				t.Errorf("%d entries: %+v", n, transcript(t, s))
			}
		})
	}
}

// bug report 18: copy mode before the paste, and between paste and Enter.
func TestDeliver_LeavesCopyModeBeforeEachKey(t *testing.T) {
	e := setup(t, nil)
	req := e.request("demo")
	s := e.spawn(req)
	srv := tmuxtest.On(t, s.TmuxSocket)
	scroll := func() {
		if err := srv.CopyMode(t.Context(), s.TmuxTarget); err != nil {
			t.Error(err)
		}
	}
	scroll()
	defer atEnter(scroll)()
	p := prompt("comment-1", "x\n")
	e.deliver(s, p)
	wantTranscript(t, s, req.Boot, p)
}
