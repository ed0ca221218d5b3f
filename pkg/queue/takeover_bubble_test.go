package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"loopfleet/pkg/event"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/workitem"
)

// bubble gives a test a rig under a fake clock, in memory or on disk.
func bubble(t *testing.T, memory bool, fn func(t *testing.T, r *rig)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T) {
		r := newRig(t, memory)
		defer r.close()
		fn(t, r)
	})
}

const items = 6

// each calls fn for every item of a test.
func each(t *testing.T, fn func(n int, item workitem.Ref)) {
	t.Helper()
	for n := 1; n <= items; n++ {
		fn(n, ref(t, n))
	}
}

func id(n, event int) string { return fmt.Sprintf("e-%d-%d", n, event) }

// labelled arms every item and waits until its session runs.
func (r *rig) labelled() {
	r.t.Helper()
	each(r.t, func(n int, item workitem.Ref) { r.publish(item, label, id(n, 0)) })
	each(r.t, func(n int, item workitem.Ref) { r.wantOutcome(item, id(n, 0), record.Done, "") })
}

func (r *rig) commented(event int) {
	r.t.Helper()
	each(r.t, func(n int, item workitem.Ref) { r.publish(item, comment, id(n, event)) })
}

// wantTold checks that every item was told its events up to this one in order.
func (r *rig) wantTold(last int) {
	r.t.Helper()
	each(r.t, func(n int, item workitem.Ref) {
		var want []string
		for e := range last + 1 {
			r.wantOutcome(item, id(n, e), record.Done, "")
			want = append(want, id(n, e))
		}
		if got := r.ledger.of(item); !slices.Equal(got, want) {
			r.t.Errorf("%s was told %v, want %v", item, got, want)
		}
	})
}

func (r *rig) wantOwner(id string) {
	r.t.Helper()
	each(r.t, func(_ int, item workitem.Ref) {
		if got := r.record(item).Owner; got != id {
			r.t.Errorf("%s is owned by %q, want %q", item, got, id)
		}
	})
}

// A worker dies. Its items move when its lease has ended, in order, and nothing
// is lost, also not what was under way. rule: RR-22
func TestCrash_ItemsMoveAfterTheLease(t *testing.T) {
	bubble(t, true, func(t *testing.T, r *rig) {
		hang := make(chan struct{})
		a := r.start("a", 20, func(h *recorder) {
			h.work = func(ctx context.Context, _ *queue.Item, m *queue.Message) error {
				if m.Event.ID == id(1, 1) {
					close(hang)
					<-ctx.Done() // dies in the middle of it
					return context.Cause(ctx)
				}
				return nil
			}
		})
		r.labelled()
		b := r.start("b", 20)
		time.Sleep(2 * ttl)
		r.publish(ref(t, 1), comment, id(1, 1))
		<-hang
		died := time.Now()
		a.crash()
		each(t, func(n int, item workitem.Ref) {
			if n > 1 {
				r.publish(item, comment, id(n, 1))
			}
		})
		r.commented(2)
		r.wantTold(2)
		r.wantOwner("b")
		each(t, func(n int, item workitem.Ref) {
			told, _ := r.ledger.find(id(n, 1))
			// The last renewal was up to a quarter of the TTL before the death.
			if d := told.at.Sub(died); told.worker != "b" || d < ttl/2 || d > ttl+2*time.Second {
				t.Errorf("%s went on with %s after %s", item, told.worker, d)
			}
			if !b.hosts(item) {
				t.Errorf("%s has no session on b", item)
			}
		})
	})
}

// The same worker is back before anybody could take its items.
func TestCrash_SameWorkerIsBackAtOnce(t *testing.T) {
	bubble(t, true, func(t *testing.T, r *rig) {
		a := r.start("a", 20)
		r.start("b", 20)
		time.Sleep(2 * ttl)
		each(t, func(_ int, item workitem.Ref) { // all of them on a
			rec := record.New(item)
			rec.Owner = "a"
			if _, err := r.reg.Put(t.Context(), rec, 0); err != nil {
				t.Fatal(err)
			}
		})
		r.labelled()
		r.wantOwner("a")
		a.crash()
		r.commented(1)
		again := r.start("a", 20, func(h *recorder) {
			for item := range a.live { // the host's sessions live on
				h.live[item] = true
			}
		})
		r.wantTold(1)
		r.wantOwner("a")
		time.Sleep(3 * ttl)
		r.wantOwner("a")
		if len(again.leftovers) != 0 {
			t.Errorf("ended its own sessions: %v", again.leftovers)
		}
	})
}

// A worker that restarts keeps its items for as long as it said, not longer.
func TestStop_KeepIsLeftAlone(t *testing.T) {
	const grace = 45 * time.Second
	for name, back := range map[string]bool{"and comes back": true, "and never comes back": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, true, func(t *testing.T, r *rig) {
				r.config = func(c *queue.Config) { c.RestartGrace = grace }
				a := r.start("a", 20)
				r.labelled()
				r.start("b", 20)
				time.Sleep(2 * ttl)
				a.stop(true)
				if w, _, err := r.reg.Worker(t.Context(), "a"); err != nil || w.State != registry.WorkerRestarting {
					t.Fatalf("a says it is %s, %v", w.State, err)
				}
				r.commented(1)
				r.publish(ref(t, 1), event.Pause, "pause-1") // acknowledged, folded when ownership begins
				time.Sleep(grace - time.Second)
				r.wantOwner("a")
				if _, told := r.ledger.find(id(2, 1)); told {
					t.Error("a peer told an agent of a restarting worker")
				}
				owner := "b"
				if back {
					owner = "a"
					r.start("a", 20)
				} else {
					time.Sleep(2*ttl + 2*time.Second)
				}
				r.until(ref(t, 1), "the pause", want(record.Paused))
				if _, told := r.ledger.find(id(1, 1)); told {
					t.Error("a paused item was told")
				}
				r.publish(ref(t, 1), event.Resume, "resume-1")
				r.wantTold(1)
				r.wantOwner(owner)
			})
		})
	}
}

// The server is away for three TTLs. All leases are gone at once, and that is
// nobody's death.
func TestOutage_LongerThanTheLeaseMovesNothing(t *testing.T) {
	bubble(t, false, func(t *testing.T, r *rig) {
		r.dial = func(id string) []nats.Option {
			if id == "b" {
				return []nats.Option{nats.ReconnectWait(7 * time.Second)} // is back later than a
			}
			return nil
		}
		a, b := r.start("a", 20), r.start("b", 20)
		r.labelled()
		time.Sleep(2 * ttl)
		before := map[workitem.Ref]string{}
		each(t, func(_ int, item workitem.Ref) { before[item] = r.record(item).Owner })
		r.srv.Down()
		time.Sleep(3 * ttl)
		r.srv.Up(t)
		// One of them is back before the other, and looks around.
		waitfor.Until(t, "a to hold its lease again", a.engine.Lease().Valid)
		waitfor.Until(t, "b's lease to be gone", func() bool {
			alive, err := r.reg.LeaseAlive(t.Context(), "b")
			return err == nil && !alive
		})
		if b.engine.Lease().Valid() {
			t.Fatal("b is back too soon for this test")
		}
		a.engine.Sweep()
		r.commented(1)
		r.wantTold(1)
		time.Sleep(3 * ttl)
		each(t, func(_ int, item workitem.Ref) {
			if got := r.record(item).Owner; got != before[item] {
				t.Errorf("%s moved from %s to %s", item, before[item], got)
			}
		})
		for _, n := range []*node{a, b} {
			if len(n.leftovers) != 0 {
				t.Errorf("%s ended %v", n.id, n.leftovers)
			}
		}
	})
}

// Without its lease a worker lets go of everything and hands out nothing; with
// it, everything.
func TestLease_WithoutItNothingIsHandedOut(t *testing.T) {
	bubble(t, true, func(t *testing.T, r *rig) {
		a := r.start("a", 20)
		r.labelled()
		kv, err := r.srv.JS.KeyValue(t.Context(), registry.LeasesBucket)
		if err != nil {
			t.Fatal(err)
		}
		// Another process has it, as after a long stop.
		if _, err = kv.PutString(t.Context(), "w.a", `{"worker":"a","lock":"elsewhere"}`); err != nil {
			t.Fatal(err)
		}
		waitfor.Until(t, "the lease to be lost", func() bool { return !a.engine.Lease().Valid() && !ownsAny(t, a) })
		r.commented(1)
		r.publish(ref(t, 1), event.Pause, "pause-1")
		time.Sleep(ttl / 2)
		each(t, func(n int, item workitem.Ref) {
			if got := a.count(&a.handled, id(n, 1)); got != 0 {
				t.Errorf("%s: handed out without a lease", item)
			}
		})
		if rec := r.record(ref(t, 1)); rec.Want != record.Run {
			t.Error("control was folded without a lease")
		}
		// The other's lease ends by itself.
		r.until(ref(t, 1), "the pause, with the lease", want(record.Paused))
		r.publish(ref(t, 1), event.Resume, "resume-1")
		r.wantTold(1)
		r.wantOwner("a")
		if len(a.leftovers) != 0 {
			t.Errorf("ended %v", a.leftovers)
		}
	})
}

func ownsAny(t *testing.T, n *node) bool {
	t.Helper()
	for i := 1; i <= items; i++ {
		it := n.engine.Item(ref(t, i))
		if _, owned := it.Record(); owned || it.LaneOpen() {
			return true
		}
	}
	return false
}

// A full peer leaves a dead worker's items to whoever has room, and to the dead
// worker's own return.
func TestCrash_FullPeerLeavesItemsUnowned(t *testing.T) {
	bubble(t, true, func(t *testing.T, r *rig) {
		a := r.start("a", 20)
		r.labelled()
		r.start("b", 0)
		time.Sleep(2 * ttl)
		r.publish(ref(t, 1), comment, id(1, 1))
		r.wantOutcome(ref(t, 1), id(1, 1), record.Done, "")
		a.crash()
		r.publish(ref(t, 2), comment, id(2, 1))
		each(t, func(n int, item workitem.Ref) {
			rec := r.until(item, "to be left", func(rec record.Record) bool { return rec.Owner == "" })
			if rec.Session == nil || rec.Session.Host != "a" || rec.Incarnation == 0 {
				t.Errorf("host and incarnation are gone: %+v", rec)
			}
			if waits := rec.State == record.StateWaiting; waits != (n == 2) {
				t.Errorf("%s: state %s", item, rec.State)
			}
		})
		again := r.start("a", 20, func(h *recorder) {
			for item := range a.live {
				h.live[item] = true
			}
		})
		r.wantOutcome(ref(t, 2), id(2, 1), record.Done, "")
		waitfor.Until(t, "all to be taken back", func() bool {
			ok := true
			each(t, func(_ int, item workitem.Ref) { ok = ok && r.record(item).Owner == "a" })
			return ok
		})
		if len(again.leftovers) != 0 {
			t.Errorf("ended %v", again.leftovers)
		}
	})
}

// A returning worker ends what another has taken meanwhile.
func TestReturn_EndsWhatAnotherHasTaken(t *testing.T) {
	bubble(t, true, func(t *testing.T, r *rig) {
		a := r.start("a", 20)
		r.labelled()
		r.start("b", 20)
		time.Sleep(2 * ttl)
		a.crash()
		r.commented(1)
		r.wantTold(1)
		again := r.start("a", 20, func(h *recorder) {
			for item := range a.live {
				h.live[item] = true
			}
		})
		each(t, func(_ int, item workitem.Ref) {
			if !again.hasRef(&again.leftovers, item) || again.hosts(item) {
				t.Errorf("%s still runs on a", item)
			}
		})
		r.wantOwner("b")
	})
}

// An event for which no bell is left is found by the sweep.
func TestSweep_FindsWhatNoBellTellsOf(t *testing.T) {
	bubble(t, true, func(t *testing.T, r *rig) {
		item := ref(t, 1)
		rec := record.New(item) // nobody's, as after a release
		if _, err := r.reg.Put(t.Context(), rec, 0); err != nil {
			t.Fatal(err)
		}
		r.publish(item, label, id(1, 0))
		if err := r.drainBells(); err != nil {
			t.Fatal(err)
		}
		r.start("a", 1)
		r.wantOutcome(item, id(1, 0), record.Done, "")
	})
}

// Crashed by its own event too often is not the queue's to judge, but a start
// without an outcome is counted over every crash.
func TestCrash_LostStartsAreCounted(t *testing.T) {
	bubble(t, true, func(t *testing.T, r *rig) {
		item := ref(t, 1)
		r.publish(item, label, id(1, 0))
		for crash := 1; crash <= 3; crash++ {
			began := make(chan struct{}, 8)
			n := r.start("a", 1, func(h *recorder) {
				h.work = func(ctx context.Context, _ *queue.Item, _ *queue.Message) error {
					began <- struct{}{}
					<-ctx.Done()
					return context.Cause(ctx)
				}
			})
			<-began
			n.crash()
			rec := r.record(item)
			if rec.Started == nil || rec.Started.Starts != crash || rec.Started.Lost != crash-1 {
				t.Fatalf("after %d crashes: %+v", crash, rec.Started)
			}
		}
		r.start("a", 1)
		r.wantOutcome(item, id(1, 0), record.Done, "")
	})
}

var errStop = errors.New("no bells left")

// drainBells acknowledges every bell that waits.
func (r *rig) drainBells() error {
	c, err := r.srv.JS.Consumer(r.t.Context(), queue.EventsStream, queue.Doorbell)
	if err != nil {
		return err
	}
	batch, err := c.FetchNoWait(100)
	if err != nil {
		return err
	}
	n := 0
	for m := range batch.Messages() {
		n++
		if err := m.DoubleAck(r.t.Context()); err != nil {
			return err
		}
	}
	if n == 0 {
		return errStop
	}
	return nil
}
