package session_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"loopfleet/pkg/config"
	"loopfleet/pkg/record"
	"loopfleet/pkg/session"
	"loopfleet/pkg/testutil/tmuxtest"
	"loopfleet/pkg/testutil/waitfor"
)

func demoOnly(t *testing.T) map[string]config.Harness {
	t.Helper()
	return demoWith(t, "file")
}

func demoWith(t *testing.T, receipt string) map[string]config.Harness {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]config.Harness{"demo": {Command: []string{self, "demo-agent"}, Receipt: receipt}}
}

func TestRecover_FindsTheVeryProcessAfterARestart(t *testing.T) {
	t.Parallel()
	for _, removed := range []bool{false, true} {
		e := setup(t, nil)
		req := e.request("demo")
		s := e.spawn(req)
		if removed { // a cleaner of temporary files took the socket
			if err := os.RemoveAll(filepath.Dir(s.TmuxSocket)); err != nil {
				t.Fatal(err)
			}
		}
		// The record survives as JSON, the driver not at all.
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var again record.Session
		if err := json.Unmarshal(b, &again); err != nil {
			t.Fatal(err)
		}
		d := e.driver(demoOnly(t))
		st, err := d.Recover(t.Context(), again)
		if err != nil || st.State != session.Live {
			t.Fatalf("removed %v: status %s, %v", removed, st, err)
		}
		p := prompt("comment-1", "x\n")
		if got, err := d.Deliver(t.Context(), again, p); err != nil || !got.Receipt {
			t.Fatalf("removed %v: %+v, %v", removed, got, err)
		}
		wantTranscript(t, s, req.Boot, p)
		for _, en := range transcript(t, s) {
			if en.PID != s.PanePID {
				t.Errorf("process %d answered, want %d", en.PID, s.PanePID)
			}
		}
	}
}

func TestRecover_ProvesWhoItIs(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		edit func(*record.Session)
		want session.State
	}{
		"token":       {func(s *record.Session) { s.Token = "another" }, session.Missing},
		"server":      {func(s *record.Session) { s.ServerStart++ }, session.Missing},
		"agent pid":   {func(s *record.Session) { s.PanePID++ }, session.Missing},
		"agent start": {func(s *record.Session) { s.PaneStart++ }, session.Missing},
		"foreign":     {func(s *record.Session) { s.TmuxTarget = "work" }, session.Unknown},
		"long socket": {func(s *record.Session) { s.TmuxSocket = "/" + strings.Repeat("x", 200) }, session.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := setup(t, nil)
			s := e.spawn(e.request("demo"))
			tc.edit(&s)
			if st, err := e.Recover(t.Context(), s); err != nil || st.State != tc.want {
				t.Errorf("status %s, %v; want %s", st, err, tc.want)
			}
		})
	}
}

func TestRecover_Ended(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	s := e.spawn(e.request("demo"))
	e.kill(s)
	if st, err := e.Recover(t.Context(), s); err != nil || st.State != session.Dead || st.Signal != 9 {
		t.Errorf("status %s, %v; want dead by signal 9", st, err)
	}
	tmuxtest.Command(t, tmuxtest.On(t, s.TmuxSocket), "kill-server")
	// While the server shuts down it may not answer, which is not an end yet.
	waitfor.Value(t, "the session to be missing", func() (session.Status, bool) {
		st, err := e.Recover(t.Context(), s)
		return st, err == nil && st.State == session.Missing
	})
}

// A crash between the start of the program and the completed handle.
func TestLocal_CompletesAHandle(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	s := e.spawn(e.request("demo"))
	path := filepath.Join(s.Dir, "handle.json")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var h map[string]any
	if err := json.Unmarshal(b, &h); err != nil {
		t.Fatal(err)
	}
	ses, ok := h["session"].(map[string]any)
	if !ok {
		t.Fatalf("handle %s", b)
	}
	for _, k := range []string{"server_pid", "server_start", "pane_pid", "pane_start"} {
		ses[k] = 0
	}
	if b, err = json.Marshal(h); err != nil {
		t.Fatal(err)
	}
	write(t, path, string(b))
	found, err := e.driver(demoOnly(t)).Local(t.Context())
	if err != nil || len(found) != 1 {
		t.Fatalf("found %v, %v", found, err)
	}
	if got := found[0].Session; got.PanePID != s.PanePID || got.PaneStart != s.PaneStart || got.ServerPID != s.ServerPID || got.ServerStart != s.ServerStart {
		t.Errorf("session %+v, want %+v", got, s)
	}
}

func TestLocal_ReportsWhatItCannotRead(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	s := e.spawn(e.request("demo"))
	broken := filepath.Join(filepath.Dir(s.Dir), "broken")
	if err := os.Mkdir(broken, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(broken, "handle.json"), "{")
	found, err := e.Local(t.Context())
	if err == nil || len(found) != 1 {
		t.Errorf("found %v, %v; want the good one and an error", found, err)
	}
}

func TestScreen_IsSafeToPrint(t *testing.T) {
	t.Parallel()
	e := setup(t, func(_ *session.Config, h map[string]config.Harness) {
		h["paints"] = sh(`printf 'a\033[31mred\033[0m\342\200\256b\n'; read -r l`, "none")
	})
	s := e.spawn(e.request("paints"))
	waitScreen(t, e, s, "red")
	got, err := e.Screen(t.Context(), s, 5)
	if err != nil || strings.ContainsAny(got, "\x1b\u202e") || strings.Count(got, "\n") > 5 {
		t.Errorf("screen %q, %v", got, err)
	}
}

func TestAttachCommand(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	s := record.Session{TmuxTarget: "loop-a-1-0000", TmuxSocket: "/tmp/x"}
	argv := e.AttachCommand(s, true)
	if !slices.Contains(argv, "-r") || !slices.Contains(argv, "=loop-a-1-0000:") || !slices.Contains(argv, "/tmp/x") {
		t.Errorf("argv %q", argv)
	}
	if argv := e.AttachCommand(s, false); slices.Contains(argv, "-r") {
		t.Errorf("argv %q", argv)
	}
	s.TmuxTarget = "work; rm -rf /"
	if argv := e.AttachCommand(s, false); argv != nil {
		t.Errorf("argv %q", argv)
	}
}
