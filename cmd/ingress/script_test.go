package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/testutil/githubtest"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/testutil/waitfor"
)

var update = flag.Bool("update", false, "rewrite the golden outputs in testdata/script")

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"ingress": main}) }

const secret = "s3cret"

type serverKey struct{}

// TestScript runs the real program against a real server.
func TestScript(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"deliver": func(ts *testscript.TestScript, _ bool, args []string) { deliver(t, ts, args) },
			"logged":  func(ts *testscript.TestScript, neg bool, args []string) { logged(t, ts, neg, args) },
			"ready":   func(ts *testscript.TestScript, _ bool, args []string) { ready(t, ts, args) },
		},
		Setup: func(e *testscript.Env) error {
			s := natstest.StartTCP(t, filepath.Join(e.WorkDir, ".nats"))
			e.Defer(s.Stop)
			e.Values[serverKey{}] = s
			port, err := freePort(t)
			if err != nil {
				return err
			}
			e.Setenv("NATS", s.URL())
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("LISTEN", "127.0.0.1:"+port)
			e.Setenv("SECRET", secret)
			return nil
		},
	})
}

func freePort(t *testing.T) (string, error) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return "", fmt.Errorf("listens on a %T", l.Addr())
	}
	return strconv.Itoa(addr.Port), l.Close()
}

// ready PATH waits until GET answers 200.
func ready(t *testing.T, ts *testscript.TestScript, args []string) {
	t.Helper()
	url := "http://" + ts.Getenv("LISTEN") + args[0]
	waitfor.Until(t, url+" to answer 200", func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		ts.Check(err)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		return resp.StatusCode == http.StatusOK
	})
}

// deliver NUMBER GUID STATUS OUTCOME sends a label and expects the answer.
func deliver(t *testing.T, ts *testscript.TestScript, args []string) {
	t.Helper()
	n, err := strconv.ParseInt(args[0], 10, 64)
	ts.Check(err)
	d := githubtest.LabeledIssue(n, "loopfleet", githubtest.GUID(args[1]))
	resp, err := http.DefaultClient.Do(githubtest.NewRequest(t.Context(), "http://"+ts.Getenv("LISTEN")+"/webhooks/github", secret, d))
	ts.Check(err)
	defer func() { _ = resp.Body.Close() }()
	var a struct {
		Outcome string `json:"outcome"`
	}
	ts.Check(json.NewDecoder(resp.Body).Decode(&a))
	if got := strconv.Itoa(resp.StatusCode); got != args[2] || a.Outcome != args[3] {
		ts.Fatalf("got %s %s, want %s %s", got, a.Outcome, args[2], args[3])
	}
}

// logged TYPE GUID expects a line of the log.
func logged(t *testing.T, ts *testscript.TestScript, neg bool, args []string) {
	t.Helper()
	s, ok := ts.Value(serverKey{}).(*natstest.Server)
	if !ok {
		ts.Fatalf("no server")
	}
	found := false
	ts.Check(eventlog.Read(t.Context(), s.JS, eventlog.Query{TypeGlob: args[0], Delivery: args[1]}, func(eventlog.Line) error {
		found = true
		return nil
	}))
	if found == neg {
		ts.Fatalf("a line %s of delivery %s: %t", args[0], args[1], found)
	}
}
