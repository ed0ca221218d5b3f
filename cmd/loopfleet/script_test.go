package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"loopfleet/pkg/registry"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/tmux"
	"loopfleet/streams"
)

var update = flag.Bool("update", false, "rewrite the golden outputs in testdata/script")

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"loopfleet": main}) }

// TestScript runs the real program against a real server. Scripts under
// testdata/script put records and log lines there with the commands of
// commands_test.go, which write as the product does.
func TestScript(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Cmds:                commands(t),
		Setup: func(e *testscript.Env) error {
			s := natstest.StartTCP(t, filepath.Join(e.WorkDir, ".nats"))
			e.Defer(s.Stop)
			e.Defer(func() { endSessions(t, s) })
			e.Values[serverKey{}] = s
			e.Values[detacherKey{}] = make(chan string, 1)
			for k, v := range map[string]string{
				"NATS": s.URL(),
				"TZ":   "UTC",
				"HOST": host,
				// For scripts that take PATH away.
				"OLDPATH": e.Getenv("PATH"),
				"PROGRAM": filepath.Join(filepath.SplitList(e.Getenv("PATH"))[0], "loopfleet"),
				"HOME":    e.WorkDir,
			} {
				e.Setenv(k, v)
			}
			return nil
		},
	})
}

// endSessions ends what workers of a script have left running. The record is
// believed only where the very process is there.
func endSessions(t *testing.T, s *natstest.Server) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	r, err := registry.Open(ctx, s.JS)
	if err != nil {
		return // no streams, or no server: no sessions
	}
	entries, err := r.List(ctx)
	if err != nil {
		return
	}
	for i := range entries {
		if ses := entries[i].Record.Session; ses != nil && ses.ServerPID > 0 {
			p := tmux.Process{PID: ses.ServerPID, Start: ses.ServerStart}
			if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, tmux.ErrGone) {
				t.Errorf("a session is left: %v", err)
			}
		}
	}
}

// provisioned are the options of scripts' servers: leases that outlive a slow
// machine's script.
var provisioned = streams.Options{LeaseTTL: time.Hour}
