package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/event"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/workitem"
)

// lane returns the item's consumer; nil when there is none.
func (r *rig) lane(item workitem.Ref) *jetstream.ConsumerInfo {
	r.t.Helper()
	c, err := r.srv.JS.Consumer(r.t.Context(), queue.EventsStream, item.LaneName())
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return c.CachedInfo()
}

// A lane with nothing to do is closed and deleted; the owner keeps the item; a
// bell opens the lane again, whoever gets it.
func TestLane_IdleClosesAndReopens(t *testing.T) {
	bubble(t, true, func(t *testing.T, r *rig) {
		r.config = func(c *queue.Config) { c.IdleAfter = 10 * time.Second }
		a := r.start("a", 5)
		item := ref(t, 1)
		r.publish(item, label, id(1, 0))
		r.wantOutcome(item, id(1, 0), record.Done, "")
		for _, peer := range []string{"b", "c"} {
			r.start(peer, 5)
		}
		for e := 1; e <= 6; e++ {
			time.Sleep(8 * time.Second)
			if !a.engine.Item(item).LaneOpen() || r.lane(item) == nil {
				t.Fatal("closed too soon")
			}
			time.Sleep(10 * time.Second)
			if a.engine.Item(item).LaneOpen() || r.lane(item) != nil || r.record(item).Owner != "a" {
				t.Fatalf("not closed: %+v", r.lane(item))
			}
			r.publish(item, comment, id(1, e))
			sent := time.Now()
			r.wantOutcome(item, id(1, e), record.Done, "")
			if d := time.Since(sent); d > time.Second {
				t.Errorf("the bell took %s", d)
			}
		}
	})
}

// Events that arrive just when the lane closes are not held up.
func TestLane_EventsAroundTheClosing(t *testing.T) {
	bubble(t, true, func(t *testing.T, r *rig) {
		r.config = func(c *queue.Config) { c.IdleAfter = 400 * time.Millisecond }
		r.start("a", 5)
		item := ref(t, 1)
		r.publish(item, label, id(1, 0))
		for e := 1; e <= 60; e++ {
			time.Sleep(time.Duration(350+5*e) * time.Millisecond)
			r.publish(item, comment, id(1, e))
			sent := time.Now()
			r.wantOutcome(item, id(1, e), record.Done, "")
			if d := time.Since(sent); d > 2*time.Second {
				t.Errorf("event %d waited %s", e, d)
			}
		}
	})
}

// A message under way is held for longer than AckWait and handed out once.
func TestLane_LongWorkIsNotHandedOutTwice(t *testing.T) {
	bubble(t, true, func(t *testing.T, r *rig) {
		n := r.start("a", 5, func(h *recorder) {
			h.work = func(ctx context.Context, _ *queue.Item, _ *queue.Message) error {
				select {
				case <-time.After(10 * time.Minute):
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		})
		item := ref(t, 1)
		r.publish(item, label, id(1, 0))
		time.Sleep(10*time.Minute - time.Second)
		if info := r.lane(item); info == nil || info.NumRedelivered != 0 || info.NumAckPending != 1 {
			t.Errorf("just before its end: %+v", info)
		}
		r.wantOutcome(item, id(1, 0), record.Done, "")
		if got := n.count(&n.handled, id(1, 0)); got != 1 {
			t.Errorf("handed out %d times", got)
		}
	})
}

// Failed tries come again after their backoff, not before, and hold up no other
// item.
func TestLane_Backoff(t *testing.T) {
	bubble(t, true, func(t *testing.T, r *rig) {
		const backoff = 90 * time.Second // longer than a lane may be idle
		var tries []time.Time
		r.start("a", 5, func(h *recorder) {
			h.retryIn = backoff
			h.work = func(_ context.Context, _ *queue.Item, m *queue.Message) error {
				if m.Event.ID != id(1, 0) {
					return nil
				}
				if tries = append(tries, time.Now()); len(tries) < 3 {
					return errWork
				}
				return nil
			}
		})
		r.publish(ref(t, 1), label, id(1, 0))
		r.publish(ref(t, 1), comment, id(1, 1))
		r.publish(ref(t, 2), label, id(2, 0))
		start := time.Now()
		r.wantOutcome(ref(t, 2), id(2, 0), record.Done, "")
		if d := time.Since(start); d > time.Second {
			t.Errorf("the other item waited %s", d)
		}
		time.Sleep(2 * backoff)
		r.wantOutcome(ref(t, 1), id(1, 1), record.Done, "")
		for i := 1; i < len(tries); i++ {
			if d := tries[i].Sub(tries[i-1]); d < backoff || d > backoff+2*time.Second {
				t.Errorf("try %d came after %s", i+1, d)
			}
		}
		if rec := r.record(ref(t, 1)); len(tries) != 3 || rec.Recent[0].EventID != id(1, 0) {
			t.Errorf("%d tries; %+v", len(tries), rec.Recent)
		}
	})
}

// What has had its outcome for long enough leaves the stream, and only that.
func TestPurge_BehindTheFloor(t *testing.T) {
	bubble(t, true, func(t *testing.T, r *rig) {
		r.config = func(c *queue.Config) { c.PurgeAfter = 6 * time.Minute }
		n := r.start("a", 5)
		item, other := ref(t, 1), ref(t, 2)
		r.publish(item, label, id(1, 0))
		r.publish(item, comment, id(1, 1))
		r.publish(item, event.Pause, "pause-1")
		r.publish(item, event.Resume, "resume-1")
		r.wantOutcome(item, id(1, 1), record.Done, "")
		time.Sleep(4 * time.Minute)
		r.publish(other, label, id(2, 0))
		r.wantOutcome(other, id(2, 0), record.Done, "")
		r.publish(item, event.Pause, "pause-2")
		r.until(item, "paused", want(record.Paused))
		r.publish(item, comment, id(1, 2)) // held: no outcome
		waitfor.Until(t, "the comment to be held", func() bool { return n.count(&n.held, id(1, 2)+": paused") > 0 })
		if got := r.stored(item); got != 3 {
			t.Fatalf("%d events stored before the purge", got)
		}
		time.Sleep(3 * time.Minute) // the purge of the sixth minute finds outcomes of 0 and of 4
		if got := r.stored(other); got != 1 {
			t.Errorf("%d events of the other item are left after three minutes", got)
		}
		time.Sleep(6 * time.Minute) // and that of the twelfth
		if got := r.stored(item); got != 1 {
			t.Errorf("%d events of the item are left, want the one without an outcome", got)
		}
		if got := r.stored(other); got != 0 {
			t.Errorf("%d events of the other item are left", got)
		}
		r.publish(item, event.Resume, "resume-2")
		r.wantOutcome(item, id(1, 2), record.Done, "")
		r.publish(item, comment, id(1, 3))
		r.wantOutcome(item, id(1, 3), record.Done, "")
	})
}

// stored counts the item's events in the stream.
func (r *rig) stored(item workitem.Ref) int {
	r.t.Helper()
	got, err := r.reader.Events(r.t.Context(), item, 1, 100)
	if err != nil {
		r.t.Fatal(err)
	}
	return len(got)
}
