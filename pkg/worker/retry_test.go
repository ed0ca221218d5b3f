package worker_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loopfleet/pkg/config"
	"loopfleet/pkg/decide"
	"loopfleet/pkg/event"
	"loopfleet/pkg/record"
	"loopfleet/pkg/session"
	"loopfleet/pkg/testutil/waitfor"
)

// rule: RR-03 (a fault while the session lives is a failed attempt, without a
// respawn), rule: RR-12 (each failure is charged once), scenario 4.
func TestTransientFaultIsRetriedInPlace(t *testing.T) {
	t.Parallel()
	f := newFleet(t, func(c *config.Config) {
		c.Routing.MaxRetries = 50
		c.Routing.RetryBackoffSeconds = []int{1}
	})
	f.start("w1")
	ref := item(t, 61)
	l, c := label(ref, 0), comment(ref, 1)
	f.publish(l)
	f.want(l, record.Done, "")
	before := f.record(ref).Session
	inbox := filepath.Join(before.Cwd, ".loopfleet")
	if err := os.RemoveAll(inbox); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(inbox, []byte("in the way"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.publish(c)
	waitfor.Until(t, "two failed tries", func() bool { return len(f.logged(event.DispatchFailed, ref)) >= 2 })
	if err := os.Remove(inbox); err != nil {
		t.Fatal(err)
	}
	o := f.want(c, record.Done, "")
	if failed := len(f.logged(event.DispatchFailed, ref)); o.Attempts != failed+1 {
		t.Errorf("attempts %d with %d failures", o.Attempts, failed)
	}
	r := f.record(ref)
	if r.Incarnation != 1 || r.Session.PanePID != before.PanePID {
		t.Errorf("incarnation %d, agent %d: the session was started again", r.Incarnation, r.Session.PanePID)
	}
	f.wantReceived(ref, l, c)
}

// rule: RR-23: a harness that dies at every boot costs its budget and no more,
// each event in turn, and everything is visible. Scenario 3; scenario 6: a
// comment after the give-up tries again with a full budget.
func TestHarnessThatDiesAtEveryBoot(t *testing.T) {
	t.Parallel()
	f := newFleet(t, func(c *config.Config) {
		c.Harnesses["brief"] = config.Harness{Command: []string{"/bin/sh", "-c", "echo started >> starts; exit 3"}, Receipt: "none"}
		c.Routing.DefaultHarness = "brief"
		c.Routing.MaxRetries = 2
	})
	f.start("w1")
	ref := item(t, 62)
	l := label(ref, 0)
	f.publish(l)
	o := f.want(l, record.Dead, "attempts-spent")
	if !strings.Contains(o.Error, "exit status 3") {
		t.Errorf("last error %q does not tell how it ended", o.Error)
	}
	f.state(ref, record.StateFailed)
	starts := func() int {
		b, err := os.ReadFile(filepath.Join(f.cfg.StateDir, "work", ref.DirName(), "starts"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(b), "started")
	}
	if n := starts(); n != 2 {
		t.Errorf("%d starts for a budget of 2", n)
	}
	c := comment(ref, 1)
	f.publish(c)
	if o := f.want(c, record.Dead, "attempts-spent"); o.Attempts != 2 {
		t.Errorf("the comment had %d attempts, want a full budget of 2", o.Attempts)
	}
	if n := starts(); n != 4 {
		t.Errorf("%d starts after two events with a budget of 2 each", n)
	}
	if _, ok, err := f.reg.Outcome(t.Context(), ref, l.ID, 1); err != nil || ok {
		t.Errorf("the abandoned label came back: %v, %v", ok, err)
	}
}

// rule: RR-04: a respawn uses what is recorded, whatever the configuration says
// by now.
func TestRespawnUsesRecordedFields(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.start("w1")
	ref := item(t, 63)
	l, c := label(ref, 0), comment(ref, 1)
	f.publish(l)
	f.want(l, record.Done, "")
	before := f.record(ref).Session
	w.end()
	kill(t, before.PanePID)
	f.start("w1", func(c *config.Config) { c.Routing.DefaultHarness = "claude" })
	f.publish(c)
	f.want(c, record.Done, "")
	after := f.record(ref).Session
	if after.Harness != "demo" || after.Cwd != before.Cwd || after.TmuxTarget != before.TmuxTarget {
		t.Errorf("respawned as %+v, recorded was %+v", after, before)
	}
}

// A dispatch that outlasts the lane's ack wait is kept alive: it is delivered
// once and costs one attempt. Scenario 8.
func TestSlowDispatch(t *testing.T) {
	t.Parallel()
	f := newFleet(t, func(c *config.Config) {
		demo := c.Harnesses["demo"]
		demo.Command = append(demo.Command, "--work", "3s")
		c.Harnesses["demo"] = demo
	})
	f.queue.AckWait = time.Second
	f.start("w1")
	ref := item(t, 64)
	l, c := label(ref, 0), comment(ref, 1)
	f.publish(l, c)
	for _, e := range []event.Event{l, c} {
		if o := f.want(e, record.Done, ""); o.Attempts != 1 {
			t.Errorf("%s took %d attempts", e.Kind, o.Attempts)
		}
	}
	f.wantReceived(ref, l, c)
	for _, line := range f.logged(event.DispatchSucceeded, ref) {
		if !strings.Contains(raw(line), `"delivered":1`) {
			t.Errorf("redelivered while it was under way: %s", raw(line))
		}
	}
}

// An agent that never gives its receipt: reported, and not sent again by itself.
func TestNoReceipt(t *testing.T) {
	t.Parallel()
	f := newFleet(t, func(c *config.Config) {
		c.Harnesses["mute"] = config.Harness{Command: []string{"/bin/sh", "-c", "while read -r l; do echo \"$l\"; done", "sh"}, Receipt: "file"}
		c.Routing.DefaultHarness = "mute"
		c.Routing.ReceiptTimeoutSeconds = 1
	})
	f.start("w1")
	ref := item(t, 65)
	l := label(ref, 0)
	f.publish(l)
	f.want(l, record.Dead, record.ReasonNoReceipt)
	r := f.state(ref, record.StateActive)
	if r.Reason != record.ReasonNoReceipt || r.Incarnation != 1 {
		t.Errorf("reason %q, incarnation %d", r.Reason, r.Incarnation)
	}
	f.wantLogged(event.DispatchStarted, ref, 1)
}

// rule: RR-26 (half: items do not hurt each other), scenario 5: the event that
// cannot be delivered ends in a dead letter, the one behind it is tried on its
// own, and other items never notice.
func TestFailureStaysWithItsItem(t *testing.T) {
	t.Parallel()
	f := newFleet(t, func(c *config.Config) { c.Routing.MaxRetries = 1 })
	f.start("w1")
	bad, good := item(t, 66), item(t, 67)
	f.publish(label(bad, 0), label(good, 0))
	f.want(label(bad, 0), record.Done, "")
	f.want(label(good, 0), record.Done, "")
	inbox := filepath.Join(f.record(bad).Session.Cwd, ".loopfleet")
	if err := os.RemoveAll(inbox); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), inbox); err != nil {
		t.Fatal(err)
	}
	c1, c2, other := comment(bad, 1), comment(bad, 2), comment(good, 1)
	f.publish(c1, other)
	f.want(c1, record.Dead, "attempts-spent")
	f.want(other, record.Done, "")
	if err := os.Remove(inbox); err != nil {
		t.Fatal(err)
	}
	f.publish(c2)
	f.want(c2, record.Done, "")
	f.wantReceived(bad, label(bad, 0), c2)
	f.wantReceived(good, label(good, 0), other)
}

// Pause holds, at no charge and in order; resume delivers what was held.
func TestPauseHolds(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.start("w1")
	ref := item(t, 68)
	l, c1, c2 := label(ref, 0), comment(ref, 1), comment(ref, 2)
	f.publish(l)
	f.want(l, record.Done, "")
	control := func(kind event.Kind, n int) event.Event {
		e := closing(ref, n)
		e.Kind, e.Source, e.Reason = kind, event.Operator, ""
		e.ID = event.NewID(kind, ref.Host, 1, ref.Number, fmt.Sprint(n), e.At)
		return e
	}
	f.publish(control(event.Pause, 10))
	f.state(ref, record.StatePaused)
	f.publish(c1, c2)
	waitfor.Until(t, "the comment to be withheld", func() bool {
		for _, line := range f.logged(event.DispatchWithheld, ref) {
			if strings.Contains(raw(line), decide.PausedItem) {
				return true
			}
		}
		return false
	})
	f.wantReceived(ref, l)
	f.publish(control(event.Resume, 20))
	for _, e := range []event.Event{c1, c2} {
		if o := f.want(e, record.Done, ""); o.Attempts != 1 {
			t.Errorf("a held event was charged: %d attempts", o.Attempts)
		}
	}
	f.state(ref, record.StateActive)
	f.wantReceived(ref, l, c1, c2)
}

// A close while the agent works on its boot prompt wins: the process ends and
// nothing is left that says it runs. Scenario 23.
func TestCloseDuringSpawn(t *testing.T) {
	t.Parallel()
	f := newFleet(t, func(c *config.Config) {
		c.Harnesses["mute"] = config.Harness{Command: []string{"/bin/sh", "-c", "while read -r l; do echo \"$l\"; done", "sh"}, Receipt: "file"}
		c.Routing.DefaultHarness = "mute"
	})
	f.start("w1")
	ref := item(t, 69)
	l := label(ref, 0)
	f.publish(l)
	pid := waitfor.Value(t, "the agent to run", func() (int, bool) {
		s := f.record(ref).Session
		if s == nil {
			return 0, false
		}
		return s.PanePID, true
	})
	f.publish(closing(ref, 50))
	f.want(l, record.Dropped, decide.ClosedItem)
	f.state(ref, record.StateClosed)
	if alive(pid) {
		t.Errorf("agent %d of the closed item lives", pid)
	}
}

// A worker that died after the agent took the prompt, and the agent died too:
// the receipt is read before anything is sent again. Half of scenario 29.
func TestTakenBeforeDeath(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.start("w1")
	ref := item(t, 70)
	l, c := label(ref, 0), comment(ref, 1)
	f.publish(l)
	f.want(l, record.Done, "")
	w.end()
	s := f.record(ref).Session
	// What a crash between receipt and record leaves behind.
	file, err := os.OpenFile(filepath.Join(s.Dir, "receipts"), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(c.ID + "\n"); err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	kill(t, s.PanePID)
	f.publish(c)
	f.start("w1")
	f.want(c, record.Done, "")
	f.wantReceived(ref, l)
	f.wantLogged(event.SessionRespawned, ref, 0)
}

// Starts that end without an outcome are crashes; the fifth gives the event up.
func TestCrashLoop(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ref := item(t, 71)
	l := label(ref, 0)
	rec := record.New(ref)
	for range record.MaxLostStarts {
		rec.Begin(l.ID, 0, 1)
	}
	if _, err := f.reg.Put(t.Context(), rec, 0); err != nil {
		t.Fatal(err)
	}
	f.publish(l)
	f.start("w1")
	if o := f.want(l, record.Dead, "crash-loop"); o.Attempts != 0 {
		t.Errorf("crashes were charged: %d attempts", o.Attempts)
	}
	f.wantLogged(event.SessionSpawned, ref, 0)
}

// Polled events have a budget of their own.
func TestBudgetOfPolledEvents(t *testing.T) {
	t.Parallel()
	f := newFleet(t, func(c *config.Config) {
		c.Harnesses["broken"] = config.Harness{Command: []string{"/nonexistent/agent"}, Receipt: "none"}
		c.Routing.DefaultHarness = "broken"
		c.Polling.MaxRetries = 1
	})
	f.start("w1")
	ref := item(t, 72)
	l := label(ref, 0)
	l.Source, l.Kind = event.Poll, event.Presence
	f.publish(l)
	if o := f.want(l, record.Dead, "attempts-spent"); o.Attempts != 1 {
		t.Errorf("%d attempts of a budget of 1", o.Attempts)
	}
}

// A live session that is not ours holds the item's name: refused at once with a
// reason, never killed, never tried in a loop. Scenario 10.
func TestNameHeldByAnother(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ref := item(t, 73)
	first := f.start("w1")
	l := label(ref, 0)
	f.publish(l)
	f.want(l, record.Done, "")
	s := f.record(ref).Session
	first.end()
	// Somebody ends the session and starts one of their own under its name.
	kill(t, s.ServerPID)
	waitfor.Until(t, "the session's server to be gone", func() bool { return !alive(s.ServerPID) && !alive(s.PanePID) })
	_ = os.Remove(s.TmuxSocket)
	theirs := exec.CommandContext(t.Context(), "tmux", "-S", s.TmuxSocket, "-f", "/dev/null", "new-session", "-d", "-s", s.TmuxTarget, "sleep", "600")
	if out, err := theirs.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		_ = exec.CommandContext(context.WithoutCancel(t.Context()), "tmux", "-S", s.TmuxSocket, "kill-server").Run()
	})
	c := comment(ref, 1)
	f.publish(c)
	f.start("w1")
	f.want(c, record.Dead, session.ReasonNameHeld)
	f.wantLogged(event.DispatchFailed, ref, 1)
	if out, err := exec.CommandContext(t.Context(), "tmux", "-S", s.TmuxSocket, "has-session", "-t", "="+s.TmuxTarget).CombinedOutput(); err != nil {
		t.Errorf("their session was ended: %v: %s", err, out)
	}
}
