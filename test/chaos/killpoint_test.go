package chaos_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loopfleet/pkg/config"
	"loopfleet/pkg/fault"
	"loopfleet/pkg/record"
	"loopfleet/pkg/testutil/fleettest"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/workitem"
)

// ingressPoints are passed by an ingress, elsewhere by neither process here:
// notices need a forge, and their own package kills there.
var (
	ingressPoints = []fault.Point{fault.PublishAnswer}
	elsewhere     = []fault.Point{fault.NoticeAck}
)

// A process dies at each fault point once, between a side effect and the write
// that records it, and comes back: every event still ends right, and no prompt
// is seen twice.
//
// rule: RR-22, rule: RR-12, rule: LAG-01
func TestKillPoints(t *testing.T) {
	t.Parallel()
	for _, p := range fault.Points {
		if slices.Contains(elsewhere, p) {
			continue
		}
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			dieAt(t, p)
		})
	}
}

// life is one item's, with one worker and one ingress.
type life struct {
	t   *testing.T
	f   *fleettest.Fleet
	ref workitem.Ref

	url    atomic.Pointer[string]
	deaths atomic.Int64
	wg     sync.WaitGroup
	events []sent
}

// dieAt leads an item through its life: its first start fails, it gets comments,
// is closed, and reopened. It passes every point.
func dieAt(t *testing.T, p fault.Point) {
	t.Helper()
	tried := filepath.Join(t.TempDir(), "tried")
	f := fleettest.New(t, func(c *config.Config) {
		agent := c.Harnesses["demo"].Command
		script := fmt.Sprintf(`test -e '%[1]s' || { : > '%[1]s'; exit 3; }; exec "$@"`, tried)
		c.Harnesses["demo"] = config.Harness{Command: append([]string{"sh", "-c", script, "sh"}, agent...), Receipt: "file"}
	})
	ref, err := workitem.New(workitem.GitHub, "github.com", "octo", "hello", "1")
	if err != nil {
		t.Fatal(err)
	}
	l := &life{t: t, f: f, ref: ref}
	ctx, stop := context.WithCancel(t.Context())
	defer l.wg.Wait()
	defer stop()
	l.supervise(ctx, string(p), !slices.Contains(ingressPoints, p))

	l.send(stepLabel, stepComment)
	l.settled()
	l.send(stepComment)
	l.settled()
	l.send(stepClose)
	l.closed()
	l.send(stepReopen, stepComment)
	l.settled()

	want := []string{}
	for _, e := range l.events {
		if e.kind != stepClose {
			want = append(want, e.id)
		}
	}
	if diff := cmp.Diff(want, f.ReceivedIDs(ref)); diff != "" {
		t.Errorf("the agents received (-want +got):\n%s", diff)
	}
	if n := len(f.AgentsOf(ref)); n != 1 {
		t.Errorf("%d agents run in the end, want 1", n)
	}
	if n := l.deaths.Load(); n != 1 {
		t.Errorf("%d processes died, want one, at %s", n, p)
	}
}

// supervise runs both processes, one of which is to die, and starts again what
// has died.
func (l *life) supervise(ctx context.Context, point string, workerDies bool) {
	l.t.Helper()
	const none = "FAULT_KILL="
	starts := map[bool]func(context.Context, string) (*fleettest.Proc, error){
		true: func(ctx context.Context, env string) (*fleettest.Proc, error) { return l.f.TryWorker(ctx, "w1", env) },
		false: func(ctx context.Context, env string) (*fleettest.Proc, error) {
			in, err := l.f.TryIngress(ctx, "in1", env)
			if err != nil {
				return nil, err
			}
			l.url.Store(&in.URL)
			return in.Proc, nil
		},
	}
	for isWorker, start := range starts {
		env := none
		if isWorker == workerDies {
			env += point + ":1"
		}
		proc, err := start(ctx, env)
		if err != nil {
			l.t.Fatal(err)
		}
		l.wg.Go(func() {
			for err == nil { // else the test waits in vain and shows why
				select {
				case <-proc.Ended():
					l.deaths.Add(1)
					proc, err = start(ctx, none)
				case <-ctx.Done():
					return
				}
			}
		})
	}
}

// send delivers until each is accepted.
func (l *life) send(kinds ...stepKind) {
	l.t.Helper()
	to := &load{url: func() string { return *l.url.Load() }}
	for _, k := range kinds {
		id, err := to.send(l.t.Context(), delivery(1, len(l.events), k))
		if err != nil {
			l.t.Fatal(err)
		}
		l.events = append(l.events, sent{kind: k, id: id})
	}
}

// settled waits until all events are done, within their budget: the first start
// of the label fails, and no other try.
func (l *life) settled() {
	l.t.Helper()
	for i, e := range l.events {
		if e.kind == stepClose {
			continue
		}
		o := waitfor.Value(l.t, fmt.Sprintf("the outcome of %s %s", e.kind, e.id), func() (record.Outcome, bool) {
			o, ok, err := l.f.Reg.Outcome(l.t.Context(), l.ref, e.id, 0)
			return o, ok && err == nil
		})
		most := 1
		if i == 0 {
			most = 2
		}
		if o.Kind != record.Done || o.Attempts < 1 || o.Attempts > most {
			l.t.Errorf("%s %s is %s(%s) after %d attempts, last error %q; want done after at most %d",
				e.kind, e.id, o.Kind, o.Reason, o.Attempts, o.Error, most)
		}
	}
}

func (l *life) closed() {
	l.t.Helper()
	waitfor.Until(l.t, "the item to be closed", func() bool {
		e, err := l.f.Reg.Get(l.t.Context(), l.ref)
		return err == nil && e.Record.State == record.StateClosed
	})
	if agents := l.f.AgentsOf(l.ref); len(agents) > 0 {
		l.t.Errorf("closed, and agents run: %+v", agents)
	}
}
