package tmuxtest

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"loopfleet/pkg/tmux"
)

// Dir returns a new directory with a path short enough for sockets, which
// t.TempDir is not: it carries the test's name. It is removed after the test,
// and every tmux server whose socket lies in it is ended before.
func Dir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "lf")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type()&fs.ModeSocket != 0 {
				end(ctx, tb, path)
			}
			return nil // what a program under test removes meanwhile is gone
		})
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("remove %s: %v", dir, err)
		}
	})
	return dir
}

// Server returns a tmux server, not started yet, on a socket of its own.
func Server(tb testing.TB) *tmux.Server {
	tb.Helper()
	return On(tb, filepath.Join(Dir(tb), "s"))
}

// On returns the server of the given socket.
func On(tb testing.TB, socket string) *tmux.Server {
	tb.Helper()
	s, err := tmux.New(tmux.Config{Socket: socket})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// end kills the server on socket and waits for its process: a server that
// outlives its test keeps the agents of the test alive.
func end(ctx context.Context, tb testing.TB, socket string) {
	tb.Helper()
	s, err := tmux.New(tmux.Config{Socket: socket})
	if err != nil || !s.Listening(ctx) {
		return
	}
	p, err := s.ServerProcess(ctx)
	if err != nil {
		return
	}
	_ = s.KillServer(ctx) // the process is what counts
	KillProcess(ctx, tb, p)
}

// KillProcess ends p and waits until it has ended.
func KillProcess(ctx context.Context, tb testing.TB, p tmux.Process) {
	tb.Helper()
	for p.Alive() {
		_ = p.Signal(syscall.SIGKILL) // it may have ended by itself
		t := time.NewTimer(5 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			tb.Errorf("process %d is still alive", p.PID)
			return
		}
	}
}

// Command runs a tmux command of the test's own choice against the server, as a
// person would who found its socket, and returns what it prints.
func Command(tb testing.TB, s *tmux.Server, args ...string) string {
	tb.Helper()
	argv := append([]string{"-u", "-S", s.Socket(), "-f", "/dev/null"}, args...)
	cmd := exec.CommandContext(tb.Context(), "tmux", argv...)
	cmd.Env = append(os.Environ(), "TMUX=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		tb.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}
