package worker_test

import (
	"strings"
	"testing"
	"time"

	"loopfleet/pkg/config"
	"loopfleet/pkg/decide"
	"loopfleet/pkg/event"
	"loopfleet/pkg/record"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/workitem"
)

// The thinnest true line: a label becomes a boot prompt in a live agent, later
// comments become prompts, in order, once each.
//
// rule: LAG-06 (one registered session), rule: RR-25 (framing is the session
// driver's; here that it reaches the agent).
func TestLabelThenComments(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.start("w1")
	ref := item(t, 42)
	l, c1, c2 := label(ref, 0), comment(ref, 1), comment(ref, 2)
	f.publish(l, c1, c2, label(ref, 60))
	f.want(l, record.Done, "")
	f.want(c1, record.Done, "")
	f.want(c2, record.Done, "")
	f.want(label(ref, 60), record.Dropped, decide.Already)
	f.wantReceived(ref, l, c1, c2)
	r := f.state(ref, record.StateActive)
	if r.Incarnation != 1 || r.Session == nil || r.Session.Host != "w1" || r.Owner != "w1" {
		t.Errorf("record: incarnation %d, owner %q, session %+v", r.Incarnation, r.Owner, r.Session)
	}
	f.wantLogged(event.SessionSpawned, ref, 1)
	f.wantLogged(event.DispatchSucceeded, ref, 3)
}

// A comment whose event comes before its label's is not lost, and one of an item
// that nobody armed is dropped with its reason.
func TestCommentBeforeLabel(t *testing.T) {
	t.Parallel()
	f := newFleet(t, func(c *config.Config) { c.Routing.ArmGraceSeconds = 30 })
	ref := item(t, 7)
	c, l := comment(ref, 1), label(ref, 0)
	f.publish(c, l) // both wait already when the worker comes
	f.start("w1")
	f.want(c, record.Done, "")
	f.want(l, record.Dropped, decide.Already)
	f.wantReceived(ref, c)

	late := item(t, 8)
	c, l = comment(late, 1), label(late, 0)
	f.publish(c)
	waitfor.Until(t, "the comment to be held", func() bool { return len(f.logged(event.DispatchWithheld, late)) > 0 })
	f.publish(l)
	f.want(c, record.Done, "")
	f.wantReceived(late, c)
}

func TestCommentNotArmed(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.start("w1")
	ref := item(t, 9)
	c := comment(ref, 1)
	f.publish(c)
	f.want(c, record.Dropped, decide.NotArmed)
	waitfor.Until(t, "the item to be nobody's again", func() bool { return f.record(ref).Owner == "" })
	if _, err := f.nats.JS.Consumer(t.Context(), "LOOP_EVENTS", ref.LaneName()); err == nil {
		t.Error("the lane of an item with nothing to do is still open")
	}
}

// rule: CL-01 (the close is never a prompt and ends the session), rule: CL-02,
// rule: CL-03 (mallory may close), rule: CL-20 (half: a reopen respawns).
func TestCloseEndsAndReopenRespawns(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.start("w1")
	ref := item(t, 11)
	l := label(ref, 0)
	f.publish(l)
	f.want(l, record.Done, "")
	pid := f.record(ref).Session.PanePID
	f.publish(closing(ref, 100))
	r := f.state(ref, record.StateClosed)
	if r.Reason != event.IssueClosed {
		t.Errorf("reason %q", r.Reason)
	}
	if alive(pid) {
		t.Errorf("process %d of the closed item lives", pid)
	}
	lines := f.wantLogged(event.SessionAutoclosed, ref, 1)
	if len(lines) > 0 && !strings.Contains(raw(lines[0]), event.IssueClosed) {
		t.Errorf("session.autoclosed without its reason: %s", raw(lines[0]))
	}
	after := comment(ref, 101)
	f.publish(after)
	f.want(after, record.Dropped, decide.ClosedItem)

	again := label(ref, 200)
	again.Kind, again.Action = event.Reopen, "reopened"
	again.ID = event.NewID(event.Reopen, ref.Host, 1, ref.Number, "reopened", again.At)
	f.publish(again)
	f.want(again, record.Done, "")
	if r := f.state(ref, record.StateActive); r.Incarnation != 2 {
		t.Errorf("incarnation %d after the reopen, want 2", r.Incarnation)
	}
	f.publish(closing(ref, 300))
	f.state(ref, record.StateClosed)
	f.wantLogged(event.SessionAutoclosed, ref, 2)
	f.wantReceived(ref, l, again)
}

// A close that waits with its label wins: nothing is ever spawned.
func TestClosedBeforeAnybodyHadRoom(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ref := item(t, 12)
	l := label(ref, 0)
	f.publish(l, closing(ref, 5))
	f.start("w1")
	f.want(l, record.Dropped, decide.ClosedItem)
	if got := f.received(ref); len(got) != 0 {
		t.Errorf("an agent received %q", got)
	}
	f.wantLogged(event.SessionSpawned, ref, 0)
}

// rule: RR-02, rule: RR-08
func TestKilledSessionRespawnsWithTheEvent(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.start("w1")
	ref := item(t, 13)
	l, c := label(ref, 0), comment(ref, 1)
	f.publish(l)
	f.want(l, record.Done, "")
	before := f.record(ref).Session
	kill(t, before.PanePID)
	waitfor.Until(t, "the agent to be gone", func() bool { return !alive(before.PanePID) })
	f.publish(c)
	f.want(c, record.Done, "")
	r := f.record(ref)
	if r.Incarnation != 2 || r.Session.Cwd != before.Cwd || r.Session.TmuxTarget != before.TmuxTarget {
		t.Errorf("incarnation %d, cwd %q, target %q; want 2 and those of before", r.Incarnation, r.Session.Cwd, r.Session.TmuxTarget)
	}
	if _, ok := r.Outcome(l.ID, 0); !ok {
		t.Error("the recent deliveries were not carried over")
	}
	f.wantReceived(ref, l, c)
	f.wantLogged(event.SessionRespawned, ref, 1)
}

// rule: RR-22, rule: RR-10: a worker that comes back under its id adopts its
// sessions; the agent is the same process.
func TestRestartAdopts(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.start("w1")
	ref := item(t, 14)
	l, c := label(ref, 0), comment(ref, 1)
	f.publish(l)
	f.want(l, record.Done, "")
	before := f.record(ref).Session
	w.end()
	if !alive(before.PanePID) {
		t.Fatal("onStop keep ended the agent")
	}
	f.publish(c)
	f.start("w1")
	f.want(c, record.Done, "")
	if after := f.record(ref).Session; after.PanePID != before.PanePID || after.ServerPID != before.ServerPID {
		t.Errorf("the agent is another process: %+v, before %+v", after, before)
	}
	f.wantReceived(ref, l, c)
	f.wantLogged(event.SessionAdopted, ref, 1)
	f.wantLogged(event.SessionRespawned, ref, 0)
}

// A full worker leaves items waiting; they are taken oldest first when room
// appears, and waiting is charged to nobody.
func TestCapacity(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.start("w1", func(c *config.Config) { c.Worker.Capacity = 1 })
	refs := []workitem.Ref{item(t, 21), item(t, 22), item(t, 23)}
	f.publish(label(refs[0], 0))
	f.want(label(refs[0], 0), record.Done, "")
	for _, r := range refs[1:] {
		f.publish(label(r, 0))
		w := f.state(r, record.StateWaiting)
		if w.Reason != record.ReasonNoRoom {
			t.Errorf("waiting reason %q", w.Reason)
		}
	}
	f.publish(closing(refs[0], 50))
	f.want(label(refs[1], 0), record.Done, "")
	if s := f.record(refs[2]).State; s != record.StateWaiting {
		t.Errorf("the younger item is %s", s)
	}
	f.publish(closing(refs[1], 50))
	o := f.want(label(refs[2], 0), record.Done, "")
	if o.Attempts != 1 {
		t.Errorf("attempts %d, want 1: waiting costs nothing", o.Attempts)
	}
}

// rule: RR-01, rule: RR-07, rule: RR-05: what fails is tried again up to the
// budget, then kept as a dead letter.
func TestBudget(t *testing.T) {
	t.Parallel()
	f := newFleet(t, func(c *config.Config) {
		c.Harnesses["broken"] = config.Harness{Command: []string{"/nonexistent/agent"}, Receipt: "none"}
		c.Routing.DefaultHarness = "broken"
	})
	f.start("w1")
	ref := item(t, 31)
	l := label(ref, 0)
	f.publish(l)
	o := f.want(l, record.Dead, "attempts-spent")
	if o.Attempts != 3 || o.Error == "" {
		t.Errorf("attempts %d, error %q", o.Attempts, o.Error)
	}
	f.wantLogged(event.DispatchFailed, ref, 3)
	f.wantLogged(event.DispatchDead, ref, 1)
	f.state(ref, record.StateFailed)
	st, err := f.nats.JS.Stream(t.Context(), "LOOP_DEAD")
	if err != nil {
		t.Fatal(err)
	}
	m, err := st.GetLastMsgForSubject(t.Context(), ref.DeadSubject())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(m.Data), l.Title) {
		t.Errorf("the dead letter does not hold the event: %s", m.Data)
	}
}

// Two workers on one server never handle one item at once, and an item stays
// where its session is.
//
// rule: LAG-06
func TestTwoWorkers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.start("w1")
	f.start("w2")
	const items, comments = 6, 4
	var all []event.Event
	for i := range items {
		ref := item(t, 100+i)
		all = append(all, label(ref, 0))
		for n := range comments {
			all = append(all, comment(ref, n+1))
		}
	}
	f.publish(all...)
	f.publish(all...) // every webhook comes twice
	for _, e := range all {
		f.want(e, record.Done, "")
	}
	for i := range items {
		ref := item(t, 100+i)
		f.wantReceived(ref, all[i*(comments+1):(i+1)*(comments+1)]...)
		f.wantLogged(event.SessionSpawned, ref, 1)
	}
}

// drain ends the sessions and hands the items over; the next event respawns
// elsewhere.
func TestDrain(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w1 := f.start("w1", func(c *config.Config) { c.Worker.OnStop = "drain" })
	ref := item(t, 41)
	l, c := label(ref, 0), comment(ref, 1)
	f.publish(l)
	f.want(l, record.Done, "")
	pid := f.record(ref).Session.PanePID
	w1.end()
	if alive(pid) {
		t.Error("drain left the agent running")
	}
	if r := f.record(ref); r.Owner != "" || r.State != record.StateSleeping {
		t.Errorf("owner %q, state %s", r.Owner, r.State)
	}
	start := time.Now()
	f.start("w2")
	f.publish(c)
	f.want(c, record.Done, "")
	t.Logf("handed over in %s", time.Since(start).Round(time.Millisecond))
	f.wantReceived(ref, l, c)
}

// A process that ends between events is noticed: nothing dead is shown alive.
func TestDeathIsNoticed(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.start("w1")
	ref := item(t, 51)
	l := label(ref, 0)
	f.publish(l)
	f.want(l, record.Done, "")
	kill(t, f.record(ref).Session.PanePID)
	r := f.state(ref, record.StateDead)
	if !strings.Contains(r.Reason, "signal 9") {
		t.Errorf("reason %q, want the signal", r.Reason)
	}
	f.wantLogged(event.SessionDied, ref, 1)
	c := comment(ref, 1)
	f.publish(c)
	f.want(c, record.Done, "")
	f.wantReceived(ref, l, c)
}
