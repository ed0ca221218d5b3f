package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rs/zerolog"

	"loopfleet/pkg/config"
	"loopfleet/pkg/deadletter"
	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/ingress"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/testutil/tmuxtest"
	"loopfleet/pkg/tmux"
	"loopfleet/pkg/workitem"
	"loopfleet/streams"
)

type (
	serverKey   struct{}
	detacherKey struct{}
)

// commands are what scripts can do beside running the program.
func commands(t *testing.T) map[string]func(*testscript.TestScript, bool, []string) {
	t.Helper()
	return map[string]func(*testscript.TestScript, bool, []string){
		// streams-made: make the streams, as a fleet does when it starts.
		"streams-made": func(ts *testscript.TestScript, _ bool, _ []string) {
			_, err := streams.Apply(t.Context(), natsServer(ts).JS, provisioned)
			ts.Check(err)
		},
		// put record FILE, put worker FILE, put outcome ITEM FILE, put log FILE...:
		// write what a worker or the ingress would.
		"put": func(ts *testscript.TestScript, _ bool, args []string) { put(t, ts, args) },
		// lease ID: hold the worker's lease.
		"lease": func(ts *testscript.TestScript, _ bool, args []string) {
			l, err := reg(t.Context(), ts).NewLease(args[0], time.Hour, "lock of the test")
			ts.Check(err)
			ts.Check(l.Take(t.Context()))
		},
		// repo ID OWNER/NAME: see a repository under a name.
		"repo": func(ts *testscript.TestScript, _ bool, args []string) {
			owner, name, _ := strings.Cut(args[1], "/")
			var id int64
			_, err := fmt.Sscan(args[0], &id)
			ts.Check(err)
			_, _, err = reg(t.Context(), ts).Canonical(t.Context(), "github.com", id, owner, name)
			ts.Check(err)
		},
		// linked PR ITEM: record that a pull request delivers an item.
		"linked": func(ts *testscript.TestScript, _ bool, args []string) {
			_, err := reg(t.Context(), ts).LinkPR(t.Context(), ref(ts, args[0]), ref(ts, args[1]))
			ts.Check(err)
		},
		// down: stop the server.
		"down": func(ts *testscript.TestScript, _ bool, _ []string) { natsServer(ts).Down() },
		// tmux-session NAME SCRIPT: start a real session, and say where it is in
		// $SOCKET, $SERVER_PID and $SERVER_START.
		"tmux-session": func(ts *testscript.TestScript, _ bool, args []string) { tmuxSession(t, ts, args) },
		// tmux-gone: end that session's server.
		"tmux-gone": func(ts *testscript.TestScript, _ bool, _ []string) {
			srv := tmuxtest.On(t, ts.Getenv("SOCKET"))
			p, err := srv.ServerProcess(t.Context())
			ts.Check(err)
			ts.Check(srv.KillServer(t.Context()))
			tmuxtest.KillProcess(t.Context(), t, p)
		},
		// colours FILE: write that session's screen there, with its colours as
		// escape sequences.
		"colours": func(ts *testscript.TestScript, _ bool, args []string) {
			screen := tmuxOut(t.Context(), ts.Getenv("SOCKET"), "capture-pane", "-e", "-p", "-t", "="+ts.Getenv("TARGET")+":")
			ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.ReplaceAll(screen, "\x1b", "ESC")), 0o600))
		},
		// detach-next: when a client attaches to that session, note whether it
		// may type, and detach it. `clients WANT` waits for that and compares.
		"detach-next": func(ts *testscript.TestScript, _ bool, _ []string) { detachNext(t, ts) },
		"clients":     clients,
		// ingress SECRET: run a real one; its address is in $INGRESS.
		"ingress": func(ts *testscript.TestScript, _ bool, args []string) { startIngress(t, ts, args[0]) },
		// url-file FILE: write the server's address where `up` does.
		"url-file": func(ts *testscript.TestScript, _ bool, args []string) {
			file := ts.MkAbs(args[0])
			ts.Check(os.MkdirAll(filepath.Dir(file), 0o700))
			ts.Check(os.WriteFile(file, []byte(natsServer(ts).URL()+"\n"), 0o600))
		},
		// until-state ITEM STATE: wait until the item's record has the state.
		"until-state": func(ts *testscript.TestScript, _ bool, args []string) {
			poll(t.Context(), ts, args[0]+" to be "+args[1], func() bool {
				r, err := registry.Open(t.Context(), natsServer(ts).JS)
				if err != nil {
					return false // the streams are not made yet
				}
				e, err := r.Get(t.Context(), ref(ts, args[0]))
				return err == nil && string(e.Record.State) == args[1]
			})
		},
		// until-logged TYPE N: wait until so many lines of the type, or more, are
		// logged.
		"until-logged": func(ts *testscript.TestScript, _ bool, args []string) {
			want, err := strconv.Atoi(args[1])
			ts.Check(err)
			poll(t.Context(), ts, args[1]+" lines of "+args[0], func() bool {
				n := 0
				err := eventlog.Read(t.Context(), natsServer(ts).JS, eventlog.Query{TypeGlob: args[0]}, func(eventlog.Line) error { n++; return nil })
				return err == nil && n >= want
			})
		},
		// hangup NAME: send SIGHUP to a program in the background.
		"hangup": func(ts *testscript.TestScript, _ bool, args []string) {
			for _, c := range ts.BackgroundCmds() {
				if strings.Contains(strings.Join(c.Args, " "), " "+args[0]+" ") {
					ts.Check(c.Process.Signal(syscall.SIGHUP))
					return
				}
			}
			ts.Fatalf("no %s runs", args[0])
		},
		// until-outcome ITEM EVENT_ID: wait until the event has its outcome.
		"until-outcome": func(ts *testscript.TestScript, _ bool, args []string) {
			poll(t.Context(), ts, "the outcome of "+args[1], func() bool {
				outs, err := reg(t.Context(), ts).Outcomes(t.Context(), args[1])
				return err == nil && len(outs) > 0
			})
		},
		// gone FILE: the process whose id the JSON file's end.pane_pid is has ended.
		"gone": func(ts *testscript.TestScript, neg bool, args []string) {
			var v struct {
				End *record.End `json:"end"`
			}
			ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &v))
			if v.End == nil || v.End.PanePID == 0 {
				ts.Fatalf("%s names no process", args[0])
			}
			if _, err := tmux.Identify(v.End.PanePID); (err != nil) == neg {
				ts.Fatalf("process %d: %v", v.End.PanePID, err)
			}
		},
		// until-lines N FILE: wait until the file has so many lines.
		"until-lines": func(ts *testscript.TestScript, _ bool, args []string) {
			poll(t.Context(), ts, "line "+args[0]+" of "+args[1], func() bool {
				b, err := os.ReadFile(ts.MkAbs(args[1]))
				return err == nil && fmt.Sprint(bytes.Count(b, []byte("\n"))) == args[0]
			})
		},
		// narrow MAX FILE: no line of the file is longer.
		"narrow": func(ts *testscript.TestScript, _ bool, args []string) {
			var most int
			_, err := fmt.Sscan(args[0], &most)
			ts.Check(err)
			for line := range strings.Lines(ts.ReadFile(args[1])) {
				if n := columns(strings.TrimSuffix(line, "\n")); n > most {
					ts.Fatalf("%d columns: %s", n, line)
				}
			}
		},
		// harmless FILE: nothing in it moves a cursor, hides or turns text.
		"harmless": func(ts *testscript.TestScript, _ bool, args []string) {
			for line := range strings.Lines(ts.ReadFile(args[0])) {
				if line = strings.TrimSuffix(line, "\n"); eventlog.Escape(line) != line {
					ts.Fatalf("would reach the terminal: %q", line)
				}
			}
		},
	}
}

func natsServer(ts *testscript.TestScript) *natstest.Server {
	s, ok := ts.Value(serverKey{}).(*natstest.Server)
	if !ok {
		ts.Fatalf("no server")
	}
	return s
}

func reg(ctx context.Context, ts *testscript.TestScript) *registry.Registry {
	r, err := registry.Open(ctx, natsServer(ts).JS)
	ts.Check(err)
	return r
}

func ref(ts *testscript.TestScript, text string) workitem.Ref {
	r, err := workitem.Parse(text)
	ts.Check(err)
	return r
}

// read reads a file of the script as a template, in which {{ago "72h"}} is a
// time and {{env "HOST"}} a variable.
func read(ts *testscript.TestScript, file string) []byte {
	tpl, err := template.New(file).Funcs(template.FuncMap{
		"env": ts.Getenv,
		"ago": func(d string) (string, error) {
			age, err := time.ParseDuration(d)
			return time.Now().Add(-age).UTC().Format(time.RFC3339), err
		},
	}).Parse(ts.ReadFile(file))
	ts.Check(err)
	var b bytes.Buffer
	ts.Check(tpl.Execute(&b, nil))
	return b.Bytes()
}

func decode(ts *testscript.TestScript, data []byte, v any) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	ts.Check(dec.Decode(v))
}

func put(t *testing.T, ts *testscript.TestScript, args []string) {
	t.Helper()
	ctx := t.Context()
	what, args := args[0], args[1:]
	switch what {
	case "record":
		for _, file := range args {
			rec := record.Record{Version: record.Version}
			decode(ts, read(ts, file), &rec)
			e, err := reg(ctx, ts).Get(ctx, rec.WorkItem)
			ts.Check(err)
			_, err = reg(ctx, ts).Put(ctx, rec, e.Revision)
			ts.Check(err)
		}
	case "worker":
		for _, file := range args {
			var w registry.Worker
			decode(ts, read(ts, file), &w)
			ts.Check(reg(ctx, ts).PutWorker(ctx, w))
		}
	case "outcome":
		var o record.Outcome
		decode(ts, read(ts, args[1]), &o)
		_, err := reg(ctx, ts).PutOutcome(ctx, ref(ts, args[0]), o)
		ts.Check(err)
	case "event":
		var e event.Event
		decode(ts, read(ts, args[0]), &e)
		_, err := queue.NewPublisher(natsServer(ts).JS).Publish(ctx, e)
		ts.Check(err)
	case "letter":
		var l deadletter.Letter
		decode(ts, read(ts, args[0]), &l)
		ts.Check(deadletter.Keep(ctx, natsServer(ts).JS, l))
	case "log":
		putLog(t, ts, read(ts, args[0]))
	default:
		ts.Fatalf("put %s", what)
	}
}

// putLog writes entries, one JSON object per line, a second apart.
func putLog(t *testing.T, ts *testscript.TestScript, data []byte) {
	t.Helper()
	at := time.Date(2026, 1, 31, 15, 4, 0, 0, time.UTC)
	l, err := eventlog.New(natsServer(ts).JS, eventlog.Options{
		Worker: "w1", Source: "worker", Log: zerolog.Nop(),
		Now: func() time.Time { return at },
	})
	ts.Check(err)
	for line := range bytes.Lines(data) {
		var e struct {
			Type     event.LogType
			Level    event.Level
			Item     string
			EventID  string
			Delivery string
			Fields   map[string]any
		}
		decode(ts, line, &e)
		entry := eventlog.Entry{Type: e.Type, Level: e.Level, EventID: e.EventID, Delivery: e.Delivery, Fields: e.Fields}
		if e.Item != "" {
			entry.WorkItem = ref(ts, e.Item)
		}
		ts.Check(l.Emit(t.Context(), entry))
		at = at.Add(time.Second)
	}
	ts.Check(l.Close(t.Context()))
}

func tmuxSession(t *testing.T, ts *testscript.TestScript, args []string) {
	t.Helper()
	srv := tmuxtest.Server(t)
	ts.Check(srv.NewSession(t.Context(), tmux.Spec{
		Name: args[0], Argv: []string{"/bin/sh", ts.MkAbs(args[1])}, Dir: ts.MkAbs("."),
		Environ: []string{"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME"), "NATS=" + ts.Getenv("NATS")},
	}))
	p, err := srv.ServerProcess(t.Context())
	ts.Check(err)
	ts.Setenv("TARGET", args[0])
	ts.Setenv("SOCKET", srv.Socket())
	ts.Setenv("SERVER_PID", fmt.Sprint(p.PID))
	ts.Setenv("SERVER_START", fmt.Sprint(p.Start))
	// The program has printed all that the script waits for when it sleeps.
	poll(t.Context(), ts, "the program's text", func() bool {
		text, err := srv.Capture(t.Context(), args[0], 0)
		return err == nil && strings.Contains(text, "ready")
	})
}

// poll waits until cond holds.
func poll(ctx context.Context, ts *testscript.TestScript, what string, cond func() bool) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			ts.Fatalf("waited for %s", what)
		}
	}
}

// detachNext detaches the next client in the background.
func detachNext(t *testing.T, ts *testscript.TestScript) {
	t.Helper()
	ctx, socket, target := t.Context(), ts.Getenv("SOCKET"), ts.Getenv("TARGET")
	seen, ok := ts.Value(detacherKey{}).(chan string)
	if !ok {
		ts.Fatalf("no detacher")
	}
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			if out := tmuxOut(ctx, socket, "list-clients", "-F", "read-only=#{client_readonly}"); out != "" {
				tmuxOut(ctx, socket, "detach-client", "-s", "="+target)
				seen <- out
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
}

// tmuxOut runs a tmux command; "" when it fails.
func tmuxOut(ctx context.Context, socket string, args ...string) string {
	out, err := exec.CommandContext(ctx, "tmux", append([]string{"-u", "-S", socket}, args...)...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func clients(ts *testscript.TestScript, _ bool, args []string) {
	seen, ok := ts.Value(detacherKey{}).(chan string)
	if !ok {
		ts.Fatalf("no detacher")
	}
	select {
	case got := <-seen:
		if got != args[0] {
			ts.Fatalf("a client attached with %s, want %s", got, args[0])
		}
	case <-time.After(30 * time.Second):
		ts.Fatalf("no client attached")
	}
}

func startIngress(t *testing.T, ts *testscript.TestScript, secret string) {
	t.Helper()
	s := natsServer(ts)
	reader, err := queue.NewReader(t.Context(), s.JS)
	ts.Check(err)
	log, err := eventlog.New(s.JS, eventlog.Options{Source: "ingress", Log: zerolog.Nop()})
	ts.Check(err)
	cfg := config.Default()
	cfg.Routing.AuthorizedUsers = []string{"alice"}
	in, err := ingress.New(cfg, []byte(secret), ingress.Deps{
		Registry: reg(t.Context(), ts), Publisher: queue.NewPublisher(s.JS), Stream: reader, Events: log,
		Missing: func(context.Context) []string { return nil }, Log: zerolog.Nop(),
	})
	ts.Check(err)
	web := httptest.NewServer(in.Handler())
	ts.Defer(func() {
		web.Close()
		_ = log.Close(context.WithoutCancel(t.Context()))
	})
	ts.Setenv("INGRESS", web.URL+cfg.Webhooks.GHWebhook.Path)
}
