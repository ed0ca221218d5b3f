package worker_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"loopfleet/pkg/config"
	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/forge"
	"loopfleet/pkg/harness/demoagent"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/testutil/faulttest"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/worker"
	"loopfleet/pkg/workitem"
	"loopfleet/streams"
)

// agentArg makes this test binary the demo agent, so that sessions run a real
// program in a real terminal.
const agentArg = "demo-agent"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == agentArg {
		err := demoagent.Run(context.Background(), demoagent.Config{
			Args: os.Args[2:], Environ: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout,
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	faulttest.Lag()
	os.Exit(m.Run())
}

// fleet is a real server with any number of real workers.
type fleet struct {
	t    *testing.T
	nats *natstest.Server
	reg  *registry.Registry
	pub  *queue.Publisher
	cfg  config.Config
	// queue changes the times of the workers started after.
	queue queue.Config
	// checkouts of the workers started after; nil for plain directories.
	checkouts worker.Checkouts
	// poster tells tickets; nil for none.
	poster forge.Poster
	// live is what the workers started after follow; nil for none.
	live *config.Live
}

func newFleet(t *testing.T, change ...func(*config.Config)) *fleet {
	t.Helper()
	s := natstest.Start(t, t.TempDir())
	t.Cleanup(s.Stop)
	if _, err := streams.Apply(t.Context(), s.JS, streams.Options{}); err != nil {
		t.Fatal(err)
	}
	reg, err := registry.Open(t.Context(), s.JS)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.StateDir = t.TempDir()
	cfg.Routing.AuthorizedUsers = []string{"alice"}
	cfg.Routing.DefaultHarness = "demo"
	cfg.Routing.RetryBackoffSeconds = []int{0}
	cfg.Routing.ArmGraceSeconds = 1
	cfg.Routing.QuietSeconds = 0
	cfg.Routing.Tmux.HarnessKillGraceSeconds = 2
	cfg.Harnesses["demo"] = config.Harness{Command: []string{self, agentArg}, Receipt: "file"}
	for _, c := range change {
		c(&cfg)
	}
	f := &fleet{t: t, nats: s, reg: reg, pub: queue.NewPublisher(s.JS), cfg: cfg}
	t.Cleanup(f.endSessions)
	return f
}

// endSessions leaves no agent behind, whatever the test did.
func (f *fleet) endSessions() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	entries, err := f.reg.List(ctx)
	if err != nil {
		f.t.Logf("list sessions to end: %v", err)
	}
	for _, e := range entries {
		if s := e.Record.Session; s != nil && s.ServerPID > 0 {
			if p, err := os.FindProcess(s.ServerPID); err == nil {
				_ = p.Kill()
			}
		}
	}
}

// running is one worker that runs.
type running struct {
	f    *fleet
	id   string
	stop context.CancelFunc
	done chan error
	once sync.Once
}

// start runs a worker and waits until it takes work.
func (f *fleet) start(id string, change ...func(*config.Config)) *running {
	f.t.Helper()
	cfg := f.cfg
	cfg.Worker.ID = id
	for _, c := range change {
		c(&cfg)
	}
	nc := f.nats.Connect(f.t)
	js, err := jetstream.New(nc)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(f.t.Context())
	r := &running{f: f, id: id, stop: stop, done: make(chan error, 1)}
	ready := make(chan struct{})
	self, _ := os.Executable()
	go func() {
		defer nc.Close()
		r.done <- worker.Run(ctx, cfg, worker.Options{
			Conn: nc, JS: js, Log: zerolog.New(zerolog.NewTestWriter(f.t)).Level(zerolog.InfoLevel), Version: "test",
			Executable: self, Environ: os.Environ(), Queue: f.queue, Checkouts: f.checkouts, Poster: f.poster, Live: f.live, Ready: func(string) { close(ready) },
		})
	}()
	select {
	case <-ready:
	case err := <-r.done:
		f.t.Fatalf("worker %s: %v", id, err)
	}
	f.t.Cleanup(r.end)
	return r
}

// end stops the worker and fails the test when it did not stop in order.
func (r *running) end() {
	r.once.Do(func() {
		r.stop()
		if err := <-r.done; err != nil {
			r.f.t.Errorf("worker %s: %v", r.id, err)
		}
	})
}

func item(t *testing.T, n int) workitem.Ref {
	t.Helper()
	ref, err := workitem.New(workitem.GitHub, "github.com", "octo", "hello", fmt.Sprint(n))
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

var clock = time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)

// label, comment and closing make events as the router would.
func label(ref workitem.Ref, at int) event.Event {
	when := clock.Add(time.Duration(at) * time.Second)
	return event.Event{
		ID:   event.NewID(event.Label, ref.Host, 1, ref.Number, "labeled", when),
		Kind: event.Label, Name: "issues", Action: "labeled", Source: event.Webhook, WorkItem: ref, RepoID: 1,
		Actor: event.Actor{Login: "alice"}, At: when, Labeled: true, Title: "Greet people", Body: "by their name",
		URL: "https://github.com/octo/hello/issues/" + ref.Number, DeliveryID: "d-label-" + ref.Number,
	}
}

func comment(ref workitem.Ref, n int) event.Event {
	return event.Event{
		ID:   event.NewID(event.Comment, ref.Host, 1, fmt.Sprintf("%s-%d", ref.Number, n), "", time.Time{}),
		Kind: event.Comment, Name: "issue_comment", Action: "created", Source: event.Webhook, WorkItem: ref, RepoID: 1,
		Actor: event.Actor{Login: "alice"}, At: clock.Add(time.Duration(n) * time.Second), Labeled: true,
		Title: "Greet people", Body: fmt.Sprintf("comment %d", n), DeliveryID: fmt.Sprintf("d-%s-%d", ref.Number, n),
	}
}

func closing(ref workitem.Ref, at int) event.Event {
	when := clock.Add(time.Duration(at) * time.Second)
	return event.Event{
		ID:   event.NewID(event.Close, ref.Host, 1, ref.Number, "closed", when),
		Kind: event.Close, Name: "issues", Action: "closed", Source: event.Webhook, WorkItem: ref, RepoID: 1,
		Actor: event.Actor{Login: "mallory"}, At: when, Reason: event.IssueClosed,
	}
}

func (f *fleet) publish(evs ...event.Event) {
	f.t.Helper()
	for _, e := range evs {
		if _, err := f.pub.Publish(f.t.Context(), e); err != nil {
			f.t.Fatal(err)
		}
	}
}

// outcome waits until the event has its outcome in the dedup bucket.
func (f *fleet) outcome(e event.Event) record.Outcome {
	f.t.Helper()
	return waitfor.Value(f.t, fmt.Sprintf("outcome of %s (%s) for %s", e.ID, e.Kind, e.WorkItem), func() (record.Outcome, bool) {
		o, ok, err := f.reg.Outcome(f.t.Context(), e.WorkItem, e.ID, e.Generation)
		return o, ok && err == nil
	})
}

func (f *fleet) want(e event.Event, kind record.OutcomeKind, reason string) record.Outcome {
	f.t.Helper()
	o := f.outcome(e)
	if o.Kind != kind || o.Reason != reason {
		f.t.Fatalf("outcome of %s for %s: %s(%s), last error %q; want %s(%s)", e.Kind, e.WorkItem, o.Kind, o.Reason, o.Error, kind, reason)
	}
	return o
}

func (f *fleet) record(ref workitem.Ref) record.Record {
	f.t.Helper()
	e, err := f.reg.Get(f.t.Context(), ref)
	if err != nil {
		f.t.Fatal(err)
	}
	return e.Record
}

// state waits until the item's session has a state.
func (f *fleet) state(ref workitem.Ref, want record.State) record.Record {
	f.t.Helper()
	return waitfor.Value(f.t, fmt.Sprintf("%s to be %s", ref, want), func() (record.Record, bool) {
		r := f.record(ref)
		return r, r.State == want
	})
}

// received lists the event ids the agents of an item have taken, in order.
func (f *fleet) received(ref workitem.Ref) []string {
	f.t.Helper()
	var ids []string
	paths, err := filepath.Glob(filepath.Join(f.cfg.StateDir, "workers", "*", "sessions", ref.DirName(), demoagent.TranscriptFile))
	if err != nil {
		f.t.Fatal(err)
	}
	for _, p := range paths {
		file, err := os.Open(p)
		if err != nil {
			f.t.Fatal(err)
		}
		sc := bufio.NewScanner(file)
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			var e demoagent.Entry
			if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
				f.t.Fatalf("%s: %v", p, err)
			}
			ids = append(ids, e.EventID)
		}
		_ = file.Close()
	}
	return ids
}

func (f *fleet) wantReceived(ref workitem.Ref, evs ...event.Event) {
	f.t.Helper()
	var want []string
	for _, e := range evs {
		want = append(want, e.ID)
	}
	if got := f.received(ref); !slices.Equal(got, want) {
		f.t.Errorf("agent of %s received %q, want %q", ref, got, want)
	}
}

// logged returns the lines of a type for an item.
func (f *fleet) logged(t event.LogType, ref workitem.Ref) []eventlog.Line {
	f.t.Helper()
	var out []eventlog.Line
	err := eventlog.Read(f.t.Context(), f.nats.JS, eventlog.Query{TypeGlob: string(t), WorkItem: ref}, func(l eventlog.Line) error {
		out = append(out, l)
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return out
}

func (f *fleet) wantLogged(t event.LogType, ref workitem.Ref, n int) []eventlog.Line {
	f.t.Helper()
	lines := waitfor.Value(f.t, fmt.Sprintf("%d lines of %s for %s", n, t, ref), func() ([]eventlog.Line, bool) {
		l := f.logged(t, ref)
		return l, len(l) >= n
	})
	if len(lines) != n {
		f.t.Errorf("%d lines of %s for %s, want %d", len(lines), t, ref, n)
	}
	return lines
}

func raw(l eventlog.Line) string { return strings.TrimSpace(string(l.Raw)) }
