package queue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"loopfleet/pkg/event"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
	"loopfleet/pkg/testutil/waitfor"
)

func waiting(r record.Record) bool {
	return r.Owner == "" && r.State == record.StateWaiting && r.Reason == record.ReasonNoRoom
}

// A full worker leaves a waiting record; room, when it appears, goes to who has
// waited longest.
func TestFull_OldestWaitingFirst(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		n := r.start("a", 1)
		r.publish(ref(t, 1), label, "e-1")
		r.wantOutcome(ref(t, 1), "e-1", record.Done, "")
		const last = 5
		for i := 2; i <= last; i++ {
			r.publish(ref(t, i), label, fmt.Sprintf("e-%d", i))
			r.until(ref(t, i), "waiting for room", waiting)
		}
		for i := 2; i <= last; i++ {
			if i == 3 {
				n.grow(1) // room of another kind: the capacity was raised
			} else {
				r.publish(ref(t, i-1), event.Close, fmt.Sprintf("close-%d", i-1))
			}
			r.wantOutcome(ref(t, i), fmt.Sprintf("e-%d", i), record.Done, "")
			for j := i + 1; j <= last; j++ {
				if !waiting(r.record(ref(t, j))) {
					t.Errorf("%d got room before %d", j, i)
				}
			}
		}
	})
}

// Room is for spawns only: fifty bells at once make no full worker claim what it
// has no room for, and nothing stays set aside.
func TestFull_BellsAtOnceClaimNoMoreThanFits(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		const items, room = 30, 3
		for i := range items {
			r.publish(ref(t, i+1), label, fmt.Sprintf("e-%d", i+1))
		}
		n := r.start("a", room)
		waitfor.Until(t, "three to run and all others to wait", func() bool {
			entries, err := r.reg.List(t.Context())
			wait, done := 0, 0
			for _, e := range entries {
				switch {
				case waiting(e.Record):
					wait++
				case len(e.Record.Recent) == 1:
					done++
				}
			}
			return err == nil && wait == items-room && done == room
		})
		if got := n.count(&n.handled, "e-1"); got > 1 {
			t.Errorf("the first event was handed out %d times", got)
		}
		n.mu.Lock()
		handled := len(n.handled)
		n.mu.Unlock()
		if handled != room {
			t.Errorf("%d events were handed out for %d places", handled, room)
		}
		if got := n.engine.Claims(); got != 0 {
			t.Errorf("room is still set aside for %d items", got)
		}
	})
}

// An owner without room that meets a spawn lets the item go.
func TestFull_OwnerThatMeetsASpawn(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		n := r.start("a", 1, func(h *recorder) {
			h.handle = func(ctx context.Context, it *queue.Item, m *queue.Message) (queue.Verdict, bool) {
				if m.Event.ID == "e-3" { // finds the session dead
					if _, err := it.Update(ctx, func(rec *record.Record) bool { rec.Set(record.StateDead, "exit 1", time.Now()); return true }); err != nil {
						t.Error(err)
					}
				}
				return queue.Verdict{}, false
			}
		})
		item, other := ref(t, 1), ref(t, 2)
		r.publish(item, label, "e-1")
		r.wantOutcome(item, "e-1", record.Done, "")
		n.end(item) // its session died; the place goes to another item
		r.publish(other, label, "e-2")
		r.wantOutcome(other, "e-2", record.Done, "")
		r.publish(item, comment, "e-3")
		if rec := r.until(item, "waiting for room", waiting); rec.Was != record.StateDead {
			t.Errorf("below the wait it is %q", rec.Was)
		}
		b := r.start("b", 1)
		r.wantOutcome(item, "e-3", record.Done, "")
		if !b.hosts(item) {
			t.Error("not on the worker with room")
		}
	})
}

// A full worker owns what only has events to drop.
func TestFull_ClosedItemsNeedNoRoom(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		r.start("a", 0)
		item := ref(t, 1)
		r.publish(item, label, "e-1")
		r.until(item, "waiting for room", waiting)
		// Labelled and closed before anybody had room: it never spawns.
		r.publish(item, event.Close, "close-1")
		r.until(item, "closed", func(rec record.Record) bool { return rec.Want == record.Closed })
		r.publish(item, comment, "e-2")
		r.wantOutcome(item, "e-1", record.Dropped, "closed")
		r.wantOutcome(item, "e-2", record.Dropped, "closed")
		if got := r.ledger.of(item); len(got) != 0 {
			t.Errorf("a closed item's agent was told %v", got)
		}
		r.until(item, "nobody's again", func(rec record.Record) bool { return rec.Owner == "" })
		// A reopen needs room again: it waits, and does not go round and round.
		r.publish(item, event.Reopen, "e-3")
		r.until(item, "waiting for room", waiting)
		r.start("b", 1)
		r.wantOutcome(item, "e-3", record.Done, "")
	})
}
