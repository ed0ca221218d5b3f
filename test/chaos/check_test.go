package chaos_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"loopfleet/pkg/decide"
	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/harness/demoagent"
	"loopfleet/pkg/record"
	"loopfleet/pkg/testutil/fleettest"
	"loopfleet/pkg/tmux"
)

// facts are what the checker judges an item by: what was sent, what the agents
// noted themselves, which processes run, and what the product recorded.
type facts struct {
	told []sent
	// outcomes are those of the dedup bucket, generation 0, by event id.
	outcomes map[string]record.Outcome
	// received are the agents' own transcripts by worker.
	received map[string][]demoagent.Entry
	record   record.Record
	lastSeq  uint64
	agents   []fleettest.Agent
	lines    []eventlog.Line
	// budget is how many tries an event gets.
	budget int
}

// budget is how many tries an event gets by default.
const budget = 3

// counts are what a run comes to.
type counts struct {
	events, controls, done, dropped, dead int
	// lost have no outcome; doubled were sent again without a word; announced
	// were sent again and said so; foreign are what nobody sent.
	lost, doubled, announced, foreign int
	outOfOrder, overBudget, wrong     int
	// unlogged outcomes are in the bucket and not in the log.
	unlogged int
	failed   int
}

func (c *counts) add(o counts) {
	for _, f := range []struct {
		into *int
		n    int
	}{
		{&c.events, o.events},
		{&c.controls, o.controls},
		{&c.done, o.done},
		{&c.dropped, o.dropped},
		{&c.dead, o.dead},
		{&c.lost, o.lost},
		{&c.doubled, o.doubled},
		{&c.announced, o.announced},
		{&c.foreign, o.foreign},
		{&c.outOfOrder, o.outOfOrder},
		{&c.overBudget, o.overBudget},
		{&c.wrong, o.wrong},
		{&c.unlogged, o.unlogged},
		{&c.failed, o.failed},
	} {
		*f.into += f.n
	}
}

// checker collects what is wrong with one item.
type checker struct {
	facts
	counts
	bad []string
}

// check judges one item. Nothing of it asks the product what it thinks of
// itself, except where the record must agree with what happened.
func check(f facts) (counts, []string) {
	c := &checker{facts: f}
	c.checkOutcomes()
	for _, host := range slices.Sorted(maps.Keys(f.received)) {
		c.checkOrder(host, f.received[host])
	}
	c.checkPrompts()
	c.checkLog()
	c.checkEnd()
	return c.counts, c.bad
}

func (c *checker) blame(n *int, format string, args ...any) {
	*n++
	c.bad = append(c.bad, fmt.Sprintf(format, args...))
}

// fates says what an event may come to, from what was sent around it.
func (c *checker) fates(i int) (mayDone, mayClosed, mayAlready bool) {
	open, armed := true, false
	for _, e := range c.told[:i] {
		switch e.kind {
		case stepClose:
			open = false
		case stepLabel, stepReopen:
			open, armed = true, true
		case stepComment:
		}
	}
	closes := slices.ContainsFunc(c.told[i:], func(e sent) bool { return e.kind == stepClose })
	arming := c.told[i].kind == stepLabel || c.told[i].kind == stepReopen
	switch {
	case arming && open && armed:
		// With a close behind it, an event before it may have been dropped, and
		// then this one arms.
		return closes, closes, true
	case arming:
		return true, closes, false
	case !open:
		return false, true, false
	default:
		return true, closes, false
	}
}

func (c *checker) checkOutcomes() {
	for i, e := range c.told {
		if e.kind == stepClose {
			c.controls++
			continue
		}
		c.events++
		o, ok := c.outcomes[e.id]
		if !ok {
			c.blame(&c.lost, "lost: %s %s (event %d of the item) has no outcome", e.kind, e.id, i)
			continue
		}
		if o.Attempts > c.budget {
			c.blame(&c.overBudget, "over budget: %s took %d attempts", e.id, o.Attempts)
		}
		mayDone, mayClosed, mayAlready := c.fates(i)
		fits := false
		switch o.Kind {
		case record.Done:
			c.done++
			fits = mayDone
		case record.Dropped:
			c.dropped++
			fits = o.Reason == decide.ClosedItem && mayClosed || o.Reason == decide.Already && mayAlready
		case record.Dead:
			c.dead++
		}
		if !fits {
			c.blame(&c.wrong, "wrong: %s %s (event %d of the item) is %s(%s) after %d attempts, last error %q",
				e.kind, e.id, i, o.Kind, o.Reason, o.Attempts, o.Error)
		}
	}
}

// checkOrder compares what one worker's agents took with the order of sending.
// A repetition that is announced may come late; the first may not.
func (c *checker) checkOrder(host string, entries []demoagent.Entry) {
	at := map[string]int{}
	for i, e := range c.told {
		at[e.id] = i
	}
	last, seen := -1, map[string]bool{}
	for _, e := range entries {
		i, known := at[e.EventID]
		switch {
		case e.Error != "" || e.EventID == "" || !known:
			c.blame(&c.foreign, "foreign: the agent on %s took %q %.80q %s, which nobody sent", host, e.EventID, e.Text, e.Error)
			continue
		case seen[e.EventID]:
			continue
		case i < last:
			c.blame(&c.outOfOrder, "out of order: the agent on %s took event %d after event %d", host, i, last)
		}
		last, seen[e.EventID] = max(last, i), true
	}
}

// announcement is what a prompt says that may be a repetition.
const announcement = "may have sent you this event before"

// checkPrompts compares prompts with outcomes. Of the copies of one prompt all
// but one must say that they may be a copy.
func (c *checker) checkPrompts() {
	silent, all := map[string]int{}, map[string]int{}
	for _, entries := range c.received {
		for _, e := range entries {
			all[e.EventID]++
			if !strings.Contains(e.Text, announcement) {
				silent[e.EventID]++
			}
		}
	}
	for i, e := range c.told {
		o, n := c.outcomes[e.id], all[e.id]
		if n > 1 {
			c.announced += n - max(silent[e.id], 1)
		}
		if silent[e.id] > 1 {
			c.blame(&c.doubled, "doubled: agents took event %d (%s) %d times, %d of them without a warning", i, e.id, n, silent[e.id])
		}
		mayDone, _, _ := c.fates(i)
		switch {
		case o.Kind == record.Done && n == 0:
			c.blame(&c.wrong, "reported success, nothing happened: event %d (%s) is done and no agent took it", i, e.id)
		case n > 0 && (e.kind == stepClose || !mayDone):
			c.blame(&c.wrong, "agents took event %d (%s, %s), which may not be a prompt", i, e.kind, e.id)
		case n > 0 && o.Kind == record.Dropped && o.Reason == decide.Already:
			c.blame(&c.wrong, "agents took event %d (%s), which was dropped(%s)", i, e.id, o.Reason)
		}
	}
}

// checkLog compares the log with the outcomes: one kind of end for each event,
// and no more charged tries than the budget.
func (c *checker) checkLog() {
	ends := map[string]map[event.LogType]bool{}
	failed := map[string]int{}
	for _, l := range c.lines {
		switch l.Type {
		case event.DispatchFailed:
			failed[l.EventID]++
			c.failed++
		case event.DispatchDropped, event.DispatchSucceeded, event.DispatchDead:
			if l.Reason() == "duplicate" {
				continue
			}
			if ends[l.EventID] == nil {
				ends[l.EventID] = map[event.LogType]bool{}
			}
			ends[l.EventID][l.Type] = true
		default:
		}
	}
	for _, e := range c.told {
		if failed[e.id] > c.budget {
			c.blame(&c.overBudget, "over budget: the log has %d failed tries of %s", failed[e.id], e.id)
		}
		if len(ends[e.id]) > 1 {
			c.blame(&c.wrong, "wrong: the log has %d different ends of %s", len(ends[e.id]), e.id)
		}
		if o, ok := c.outcomes[e.id]; ok && !ends[e.id][logged[o.Kind]] {
			c.unlogged++
		}
	}
}

var logged = map[record.OutcomeKind]event.LogType{
	record.Done: event.DispatchSucceeded, record.Dropped: event.DispatchDropped, record.Dead: event.DispatchDead,
}

// checkEnd compares the state at rest with what was sent last.
func (c *checker) checkEnd() {
	open := (&story{events: c.told}).open()
	if c.record.Floor < c.lastSeq {
		c.blame(&c.lost, "lost: the record's floor is %d and the item's last event %d", c.record.Floor, c.lastSeq)
	}
	if c.record.Started != nil {
		c.blame(&c.wrong, "wrong: the record has a start of %s without an end", c.record.Started.EventID)
	}
	switch s := c.record.Session; {
	case !open && len(c.agents) > 0:
		c.blame(&c.wrong, "wrong: the item is closed and %d agents run: %+v", len(c.agents), c.agents)
	case !open && c.record.State != record.StateClosed:
		c.blame(&c.wrong, "wrong: the item is closed and its record says %s", c.record.State)
	case open && len(c.agents) > 1:
		c.blame(&c.wrong, "wrong: %d agents of one item run: %+v", len(c.agents), c.agents)
	case open && len(c.agents) == 1 && s != nil && c.agents[0].PID != s.PanePID:
		c.blame(&c.wrong, "wrong: process %d runs and the record names %d", c.agents[0].PID, s.PanePID)
	case open && len(c.agents) == 0 && c.record.State == record.StateActive:
		c.blame(&c.wrong, "dead but shown alive: no agent runs and the record says %s", c.record.State)
	}
}

// The checker is only worth something if it finds what is wrong.
func TestCheck_FindsViolations(t *testing.T) {
	t.Parallel()
	fresh := func() facts {
		id := func(i int) string { return fmt.Sprintf("e%d", i) }
		f := facts{
			budget: budget, outcomes: map[string]record.Outcome{}, received: map[string][]demoagent.Entry{}, lastSeq: 4,
			record: record.Record{Floor: 4, State: record.StateActive, Session: &record.Session{PanePID: 7}},
			agents: []fleettest.Agent{{Process: tmux.Process{PID: 7}}},
		}
		for i, k := range []stepKind{stepLabel, stepComment, stepComment, stepLabel} {
			f.told = append(f.told, sent{kind: k, id: id(i)})
			o := record.Outcome{EventID: id(i), Kind: record.Done, Attempts: 1}
			typ := event.DispatchSucceeded
			if i == 3 {
				o.Kind, o.Reason, typ = record.Dropped, decide.Already, event.DispatchDropped
			} else {
				f.received["w1"] = append(f.received["w1"], demoagent.Entry{EventID: id(i), At: time.Unix(int64(i), 0)})
			}
			f.outcomes[id(i)] = o
			f.lines = append(f.lines, eventlog.Line{Type: typ, EventID: id(i)})
		}
		return f
	}
	if _, bad := check(fresh()); len(bad) > 0 {
		t.Fatalf("nothing is wrong and the checker says %q", bad)
	}
	copied := func(f *facts, text string) {
		f.received["w1"] = append(f.received["w1"], demoagent.Entry{EventID: "e1", Text: text})
	}
	closed := func(f *facts) {
		f.told = append(f.told, sent{kind: stepClose, id: "e4"}, sent{kind: stepComment, id: "e5"})
		f.outcomes["e5"] = record.Outcome{EventID: "e5", Kind: record.Dropped, Reason: decide.ClosedItem}
		f.record.State, f.agents = record.StateClosed, nil
	}
	for name, tc := range map[string]struct {
		spoil func(*facts)
		count func(counts) int
	}{
		"lost":                 {func(f *facts) { delete(f.outcomes, "e2") }, func(c counts) int { return c.lost }},
		"left below the floor": {func(f *facts) { f.record.Floor = 3 }, func(c counts) int { return c.lost }},
		"order": {func(f *facts) {
			slices.Reverse(f.received["w1"][1:])
		}, func(c counts) int { return c.outOfOrder }},
		"doubled":           {func(f *facts) { copied(f, "") }, func(c counts) int { return c.doubled }},
		"foreign":           {func(f *facts) { f.received["w1"][0].EventID = "x" }, func(c counts) int { return c.foreign }},
		"over budget":       {func(f *facts) { f.outcomes["e1"] = record.Outcome{Kind: record.Done, Attempts: 4} }, func(c counts) int { return c.overBudget }},
		"nothing happened":  {func(f *facts) { f.received["w1"] = f.received["w1"][:2] }, func(c counts) int { return c.wrong }},
		"dropped for spite": {func(f *facts) { f.outcomes["e1"] = record.Outcome{Kind: record.Dropped, Reason: decide.ClosedItem} }, func(c counts) int { return c.wrong }},
		"dead":              {func(f *facts) { f.outcomes["e1"] = record.Outcome{Kind: record.Dead} }, func(c counts) int { return c.wrong }},
		"two ends":          {func(f *facts) { f.lines[1].EventID = "e3" }, func(c counts) int { return c.wrong }},
		"two agents":        {func(f *facts) { f.agents = append(f.agents, f.agents[0]) }, func(c counts) int { return c.wrong }},
		"no agent":          {func(f *facts) { f.agents = nil }, func(c counts) int { return c.wrong }},
		"another agent":     {func(f *facts) { f.agents[0].PID = 8 }, func(c counts) int { return c.wrong }},
		"prompt after a close": {func(f *facts) {
			closed(f)
			f.received["w1"] = append(f.received["w1"], demoagent.Entry{EventID: "e5"})
		}, func(c counts) int { return c.wrong }},
		"agent of a closed item": {func(f *facts) {
			agents := f.agents
			closed(f)
			f.agents = agents
		}, func(c counts) int { return c.wrong }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fresh()
			tc.spoil(&f)
			c, bad := check(f)
			if tc.count(c) == 0 || len(bad) == 0 {
				t.Errorf("not found: %+v %q", c, bad)
			}
		})
	}
	f := fresh()
	closed(&f)
	copied(&f, "Note: Loopfleet "+announcement)
	if c, bad := check(f); len(bad) > 0 || c.announced != 1 || c.controls != 1 {
		t.Errorf("closed in order, with one announced copy: %+v %q", c, bad)
	}
}
