// Package chaos_test kills, suspends and restarts the processes of a fleet under
// load, on a schedule that its seed reproduces, and then compares what the
// agents noted with what was sent.
package chaos_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/harness/demoagent"
	"loopfleet/pkg/record"
	"loopfleet/pkg/testutil/fleettest"
	"loopfleet/pkg/workitem"
)

var options struct {
	items, events, workers, ingresses, kills int
	seed                                     uint64
	duration, settle                         time.Duration
}

func TestMain(m *testing.M) {
	o := &options
	flag.IntVar(&o.items, "items", 6, "work items")
	flag.IntVar(&o.events, "events", 150, "events of all items, repetitions not counted")
	flag.IntVar(&o.workers, "workers", 2, "worker processes")
	flag.IntVar(&o.ingresses, "ingresses", 2, "ingress processes")
	flag.IntVar(&o.kills, "kills", 12, "what is done to processes in all")
	flag.Uint64Var(&o.seed, "seed", 0, "reproduces a schedule; 0 takes a new one")
	flag.DurationVar(&o.duration, "duration", 30*time.Second, "how long the load and the schedule last")
	flag.DurationVar(&o.settle, "settle", time.Minute, "how long the healed fleet may make no progress before it counts as stuck")
	flag.Parse()
	os.Exit(fleettest.Main(m)) //nolint:forbidigo // a test's main
}

// sampleEvery is how often the running agents are counted.
const sampleEvery = 500 * time.Millisecond

// rule: RR-01, rule: RR-10, rule: RR-12, rule: RR-22, rule: LAG-06
func TestChaos(t *testing.T) {
	t.Parallel()
	o := options
	if o.seed == 0 {
		o.seed = rand.Uint64N(1 << 32)
	}
	t.Logf("seed %d: %d items, %d events, %d workers, %d ingresses, %d kills in %s (repeat with -seed %d and the same numbers)",
		o.seed, o.items, o.events, o.workers, o.ingresses, o.kills, o.duration, o.seed)
	plan := schedule(o.seed, o.kills, o.workers, o.ingresses, o.duration)
	for _, p := range plan {
		t.Log(p)
	}
	// Room for all on any two workers, not on one: items have to wait, and
	// there is always somewhere to go.
	w := newWorld(t, o.workers, o.ingresses, max(1, (o.items*3/2+o.workers-1)/o.workers))
	stories := make([]*story, o.items)
	for i := range stories {
		number := int64(i + 1)
		ref, err := workitem.New(workitem.GitHub, "github.com", "octo", "hello", fmt.Sprint(number))
		if err != nil {
			t.Fatal(err)
		}
		stories[i] = &story{ref: ref, number: number, script: script(o.seed, i, max(2, o.events/o.items), o.duration)}
	}
	begin := time.Now()
	supervised, endSupervision := context.WithCancel(t.Context())
	defer endSupervision()
	orphans := &orphanage{f: w.Fleet}
	var wg sync.WaitGroup
	wg.Go(func() { w.keepUp(supervised) })
	wg.Go(func() { orphans.watch(supervised) })
	wg.Go(func() { w.run(supervised, plan) })

	l := &load{url: w.url}
	const patience = 3 * time.Minute // for what no ingress accepts while servers are away
	ctx, cancel := context.WithTimeout(t.Context(), o.duration+patience)
	defer cancel()
	if err := l.run(ctx, stories); err != nil {
		t.Errorf("not everything was accepted: %v", err)
	}
	wait(t.Context(), time.Until(begin.Add(o.duration))) // the rest of the schedule
	loaded := time.Since(begin)
	left := w.settle(t, stories, o.settle)
	endSupervision()
	wg.Wait()
	w.wg.Wait()

	var total counts
	lines, agents := w.log(t), w.Agents()
	for _, s := range stories {
		f := w.facts(t, s, agents)
		f.lines = lines[s.ref]
		c, bad := check(f)
		total.add(c)
		if len(bad) > 0 {
			t.Errorf("%s:\n  %s\n%s", s.ref, strings.Join(bad, "\n  "), history(s, f))
		}
	}
	if left != "" {
		t.Errorf("stuck, nothing has moved for %s: %s", o.settle, left)
	}
	for _, d := range weights {
		t.Logf("%-26s %d", d.deed, w.deeds[d.deed].Load())
	}
	t.Logf("left out, all busy          %d", w.skipped.Load())
	t.Logf("loaded in %s, settled after %s more", loaded.Round(time.Second), (time.Since(begin) - loaded).Round(time.Second))
	t.Logf("deliveries %d, of them repeated %d, requests %d", l.deliveries.Load(), l.duplicates.Load(), l.tries.Load())
	t.Logf("events %d, controls %d: done %d, dropped %d, dead %d; failed tries %d", total.events, total.controls, total.done, total.dropped, total.dead, total.failed)
	t.Logf("lost %d, doubled %d, out of order %d, over budget %d, wrong %d, foreign %d", total.lost, total.doubled, total.outOfOrder, total.overBudget, total.wrong, total.foreign)
	t.Logf("announced repetitions %d, orphans %d, outcomes missing in the log %d", total.announced, orphans.n.Load(), total.unlogged)
	t.Logf("seed %d", o.seed)
}

// settle starts everything and waits until every event has its outcome and
// every item its end. It returns what is left when nothing has moved for so
// long.
func (w *world) settle(t *testing.T, stories []*story, patience time.Duration) (left string) {
	t.Helper()
	var was uint64
	for moved := time.Now(); time.Since(moved) < patience; {
		w.heal(t.Context())
		var now uint64
		if left, now = w.unsettled(t, stories); left == "" {
			return ""
		}
		if now != was {
			was, moved = now, time.Now()
		}
		if !wait(t.Context(), sampleEvery) {
			break
		}
	}
	return left
}

// unsettled tells one thing that is not as it should be, and a number that
// changes while there is progress.
func (w *world) unsettled(t *testing.T, stories []*story) (left string, progress uint64) {
	t.Helper()
	agents := w.Agents()
	for _, s := range stories {
		f := w.state(t, s, agents)
		progress += f.record.Floor + uint64(len(f.agents))
		switch open := s.open(); {
		case f.record.Floor < f.lastSeq || f.record.Started != nil:
			left = fmt.Sprintf("%s is at %d of %d", s.ref, f.record.Floor, f.lastSeq)
		case open && len(f.agents) > 1, !open && len(f.agents) > 0:
			left = fmt.Sprintf("%s has %d agents", s.ref, len(f.agents))
		case !open && f.record.State != record.StateClosed:
			left = fmt.Sprintf("%s is closed and %s", s.ref, f.record.State)
		}
	}
	if left != "" {
		return left, progress
	}
	for _, s := range stories {
		if id := w.outcomes(t, s); id != "" {
			return fmt.Sprintf("%s of %s has no outcome", id, s.ref), progress
		}
		progress += uint64(len(s.outcomes))
	}
	return "", progress
}

// state is what the record and the processes show of an item.
func (w *world) state(t *testing.T, s *story, agents []fleettest.Agent) facts {
	t.Helper()
	f := facts{told: s.events, budget: budget, lastSeq: ^uint64(0)}
	for _, a := range agents {
		if a.Item == s.ref {
			f.agents = append(f.agents, a)
		}
	}
	e, err := w.Reg.Get(t.Context(), s.ref)
	if err != nil {
		return f // the server is away; the sequence says that nothing is settled
	}
	f.record = e.Record
	if seq, err := w.reader.LastSeq(t.Context(), s.ref); err == nil {
		f.lastSeq = seq
	}
	return f
}

// outcomes reads the outcomes that are not known yet, and returns the first
// event that has none.
func (w *world) outcomes(t *testing.T, s *story) (missing string) {
	t.Helper()
	if s.outcomes == nil {
		s.outcomes = map[string]record.Outcome{}
	}
	for _, e := range s.events {
		if _, known := s.outcomes[e.id]; known || e.kind == stepClose {
			continue
		}
		o, ok, err := w.Reg.Outcome(t.Context(), s.ref, e.id, 0)
		switch {
		case err == nil && ok:
			s.outcomes[e.id] = o
		case missing == "":
			missing = e.id
		}
	}
	return missing
}

// facts gathers everything about an item but the log.
func (w *world) facts(t *testing.T, s *story, agents []fleettest.Agent) facts {
	t.Helper()
	f := w.state(t, s, agents)
	w.outcomes(t, s)
	f.outcomes, f.received = s.outcomes, map[string][]demoagent.Entry{}
	for _, m := range w.workers {
		entries, err := w.ReceivedOn(m.id, s.ref)
		if err != nil {
			t.Fatal(err)
		}
		f.received[m.id] = entries
	}
	return f
}

// log reads all lines, by item.
func (w *world) log(t *testing.T) map[workitem.Ref][]eventlog.Line {
	t.Helper()
	lines := map[workitem.Ref][]eventlog.Line{}
	err := eventlog.Read(t.Context(), w.JS, eventlog.Query{}, func(l eventlog.Line) error {
		lines[l.WorkItem] = append(lines[l.WorkItem], l)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// history is everything known of an item, for whoever looks into a failure.
func history(s *story, f facts) string {
	var b strings.Builder
	for i, e := range s.events {
		o := f.outcomes[e.id]
		fmt.Fprintf(&b, "  sent %3d %s %-8s %s  %s(%s) seq %d attempts %d\n", i, e.at.UTC().Format("15:04:05.000"), e.kind, e.id, o.Kind, o.Reason, o.Seq, o.Attempts)
	}
	for _, host := range slices.Sorted(maps.Keys(f.received)) {
		for _, e := range f.received[host] {
			note := ""
			if strings.Contains(e.Text, announcement) {
				note = " (announced)"
			}
			fmt.Fprintf(&b, "  %s took %s %s pid %d boot %v%s %s\n", host, e.At.Format("15:04:05.000"), e.EventID, e.PID, e.Boot, note, e.Error)
		}
	}
	for _, l := range f.lines {
		fmt.Fprintf(&b, "  log %s %s\n", l.TS.UTC().Format("15:04:05.000"), l.Raw)
	}
	if j, err := json.Marshal(f.record); err == nil {
		fmt.Fprintf(&b, "  record %s\n", j)
	}
	return b.String()
}

// orphanage counts the times that two agents of one item run at once: expected
// while a worker is away and its agents are not, until they are fenced.
type orphanage struct {
	f *fleettest.Fleet
	n atomic.Int64
}

func (o *orphanage) watch(ctx context.Context) {
	was := map[workitem.Ref]bool{}
	for wait(ctx, sampleEvery) {
		hosts := map[workitem.Ref]map[string]bool{}
		for _, a := range o.f.Agents() {
			if hosts[a.Item] == nil {
				hosts[a.Item] = map[string]bool{}
			}
			hosts[a.Item][a.Host] = true
		}
		now := map[workitem.Ref]bool{}
		for ref, on := range hosts {
			if len(on) > 1 {
				if now[ref] = true; !was[ref] {
					o.n.Add(1)
				}
			}
		}
		was = now
	}
}
