package session_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loopfleet/pkg/record"
	"loopfleet/pkg/session"
	"loopfleet/pkg/testutil/tmuxtest"
)

// notLanded wants a prompt to be reported as not seen.
func (e *env) notLanded(s record.Session, p session.Prompt, unread bool) {
	e.t.Helper()
	got, err := e.Deliver(e.t.Context(), s, p)
	nl, ok := errors.AsType[*session.NotLandedError](err)
	if !ok || nl.Unread != unread || got.Submitted {
		e.t.Fatalf("%+v, %v; want NotLandedError with unread %v", got, err, unread)
	}
}

// The program reads its terminal and shows nothing for three seconds.
func TestDeliver_ALineThatShowsLateIsNotPastedAgain(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	req := e.request("blind")
	s := e.spawn(req)
	p := prompt("comment-1", "x\n")
	got, err := e.Deliver(t.Context(), s, p)
	if nl, ok := errors.AsType[*session.NotLandedError](err); err != nil && (!ok || nl.Unread || got.Submitted) {
		t.Fatalf("%+v, %v; want NotLandedError", got, err) // or success, on a busy machine
	}
	e.deliver(s, p)
	wantTranscript(t, s, req.Boot, p)
}

// The program does not read its terminal at all, for as long as it likes.
func TestDeliver_ALineThatWasNotReadIsNotPastedAgain(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	req := e.request("stuck")
	s := e.spawn(req)
	p, next := prompt("comment-1", "x\n"), prompt("comment-2", "y\n")
	e.notLanded(s, p, true)
	e.notLanded(s, p, true)
	e.notLanded(s, next, true) // nor is another behind it
	_, pane, err := tmuxtest.On(t, s.TmuxSocket).Screen(t.Context(), s.TmuxTarget)
	if err != nil {
		t.Fatal(err)
	}
	// The marks of a paste are around it.
	if n, err := pane.Unread(); err != nil || n < len(session.Pointer(p.EventID)) || n > len(session.Pointer(p.EventID))+20 {
		t.Errorf("%d bytes wait to be read, %v; want one line", n, err)
	}
	write(t, filepath.Join(s.Cwd, "wake"), "")
	e.deliver(s, p)
	e.deliver(s, next)
	wantTranscript(t, s, req.Boot, p, next)
}

// What a crash before the paste, and a dialog, leave: the mark, and no line.
func TestDeliver_ALineThatWasLostIsPastedAgain(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	req := e.request("demo")
	s := e.spawn(req)
	p := prompt("comment-1", "x\n")
	write(t, filepath.Join(s.Dir, "pasted"), s.Token+" comment-1 0\n")
	e.deliver(s, p)
	wantTranscript(t, s, req.Boot, p)
}

// Between paste and Enter a person presses Enter: the line is the agent's now.
// Without receipts, only the screen tells.
func TestDeliver_ALineThatSomebodySubmitted(t *testing.T) {
	e := setup(t, nil)
	e.Driver = e.driver(demoWith(t, "none"))
	req := e.request("demo")
	t.Cleanup(func() { e.clean(req.Item) })
	res, err := e.Spawn(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	s, p := res.Session, prompt("comment-1", "x\n")
	waitScreen(t, e, s, "done label-1")
	restore := atEnter(func() {
		if err := tmuxtest.On(t, s.TmuxSocket).Enter(t.Context(), s.TmuxTarget); err != nil {
			t.Error(err)
		}
		waitScreen(t, e, s, "done comment-1")
	})
	defer restore()
	if got, err := e.Deliver(t.Context(), s, p); err == nil {
		t.Logf("seen at once: %+v", got)
	}
	restore()
	for range 2 {
		if got, err := e.Deliver(t.Context(), s, p); err != nil || !got.Submitted {
			t.Fatalf("%+v, %v; want it known to be submitted", got, err)
		}
	}
	wantTranscript(t, s, req.Boot, p)
	// A replay is typed, although the screen shows the line.
	p.Generation = 1
	if got, err := e.Deliver(t.Context(), s, p); err != nil || !got.Submitted {
		t.Fatalf("%+v, %v", got, err)
	}
	waitTranscript(t, s, 3)
	wantTranscript(t, s, req.Boot, p, p)
}

func TestDeliver_Marks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ pasted, submitted string }{
		"half a line":       {pasted: "TOKEN comment-1"},
		"no number":         {pasted: "TOKEN comment-1 x\n"},
		"another process":   {pasted: "other comment-1 0\n", submitted: "other comment-1 0\n"},
		"half a submit":     {submitted: "TOKEN comment-1 0"},
		"earlier one":       {submitted: "TOKEN comment-0 0\n"},
		"longer id":         {submitted: "TOKEN comment-10 0\n"},
		"nonsense":          {pasted: "\x00\xff\n", submitted: strings.Repeat("x", 1000)},
		"pasted, submitted": {pasted: "TOKEN comment-0 0\n", submitted: "TOKEN comment-0 0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := setup(t, nil)
			req := e.request("demo")
			s := e.spawn(req)
			write(t, filepath.Join(s.Dir, "pasted"), strings.ReplaceAll(tc.pasted, "TOKEN", s.Token))
			write(t, filepath.Join(s.Dir, "submitted"), strings.ReplaceAll(tc.submitted, "TOKEN", s.Token))
			p := prompt("comment-1", "x\n")
			e.deliver(s, p)
			wantTranscript(t, s, req.Boot, p)
		})
	}
}

// The agent owns its directory: a link in a mark's place is not followed.
func TestDeliver_AMarkThatIsALink(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	s := e.spawn(e.request("demo"))
	victim := filepath.Join(t.TempDir(), "victim")
	write(t, victim, "precious")
	path := filepath.Join(s.Dir, "pasted")
	if err := errors.Join(os.Remove(path), os.Symlink(victim, path)); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if _, err := e.Deliver(t.Context(), s, prompt("comment-1", "x\n")); err == nil {
		t.Error("a mark that cannot be read was passed over")
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "precious" {
		t.Errorf("the link was followed: %q, %v", b, err)
	}
}
