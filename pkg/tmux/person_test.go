package tmux_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"loopfleet/pkg/testutil/tmuxtest"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/tmux"
)

func TestClients(t *testing.T) {
	t.Parallel()
	s := tmuxtest.Server(t)
	start(t, s, tmux.Spec{Argv: sh("cat")})
	if c, err := s.Clients(t.Context(), name); err != nil || len(c) != 0 {
		t.Fatalf("clients %v, %v; want none", c, err)
	}
	for i, readOnly := range []bool{false, true} {
		desk := tmuxtest.Server(t)
		argv := s.AttachArgs(name, readOnly)
		argv[0] = "/usr/bin/env"
		start(t, desk, tmux.Spec{Argv: argv})
		clients := waitfor.Value(t, "the client", func() ([]tmux.Client, bool) {
			c, err := s.Clients(t.Context(), name)
			return c, err == nil && len(c) == i+1
		})
		c := clients[i]
		if clients[0].ReadOnly {
			clients[0], c = c, clients[0] // tmux sorts by terminal
		}
		if c.ReadOnly != readOnly || time.Since(c.Active).Abs() > 30*time.Second {
			t.Errorf("client %+v, want read-only %v, active now", c, readOnly)
		}
		if readOnly {
			continue
		}
		// A key moves its time on.
		waitfor.Value(t, "a later activity", func() (time.Time, bool) {
			tmuxtest.Command(t, desk, "send-keys", "-t", "="+name+":", "x")
			now, err := s.Clients(t.Context(), name)
			return now[0].Active, err == nil && now[0].Active.After(c.Active)
		})
	}
	if _, err := s.Clients(t.Context(), "loop-nope"); !errors.Is(err, tmux.ErrNoSession) {
		t.Errorf("error %v, want ErrNoSession", err)
	}
	if _, err := s.Clients(t.Context(), "work"); !errors.Is(err, tmux.ErrForeign) {
		t.Errorf("error %v, want ErrForeign", err)
	}
}

func TestUnread(t *testing.T) {
	t.Parallel()
	s, dir := tmuxtest.Server(t), t.TempDir()
	// It reads when it is told to, as an editor reads: byte by byte.
	start(t, s, tmux.Spec{Dir: dir, Argv: sh(`stty raw -echo; touch raw; until [ -e go ]; do sleep 0.05; done; dd bs=1 count=4 2>/dev/null > got; touch done; sleep 600`)})
	exists := func(file string) {
		t.Helper()
		waitfor.Until(t, file, func() bool { _, err := os.Stat(filepath.Join(dir, file)); return err == nil })
	}
	exists("raw")
	if n, err := pane(t, s).Unread(); n != 0 || err != nil {
		t.Errorf("unread %d, %v; want none", n, err)
	}
	if err := s.Paste(t.Context(), name, "abcd"); err != nil {
		t.Fatal(err)
	}
	waitfor.Value(t, "four bytes", func() (int, bool) {
		n, err := pane(t, s).Unread()
		return n, err == nil && n == 4
	})
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	exists("done")
	if n, err := pane(t, s).Unread(); n != 0 || err != nil {
		t.Errorf("unread %d, %v after it was read", n, err)
	}
	if _, err := (tmux.Pane{TTY: filepath.Join(dir, "none")}).Unread(); !errors.Is(err, tmux.ErrGone) {
		t.Errorf("error %v, want ErrGone", err)
	}
}
