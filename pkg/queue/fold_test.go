package queue_test

import (
	"testing"
	"time"

	"loopfleet/pkg/event"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
)

// deafen keeps control bells from ringing.
func (r *rig) deafen() {
	r.t.Helper()
	_, err := r.srv.JS.PauseConsumer(r.t.Context(), queue.EventsStream, queue.ControlBell, time.Now().Add(time.Hour))
	if err != nil {
		r.t.Fatal(err)
	}
}

// Control is read before every event, so no comment overtakes the close before
// it, bell or no bell. rule: CL-01
func TestFold_BeforeEveryEvent(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		r.start("a", 5)
		item := ref(t, 1)
		r.publish(item, label, "e-1")
		r.wantOutcome(item, "e-1", record.Done, "")
		r.deafen()
		r.publish(item, event.Close, "close-1")
		r.publish(item, comment, "e-2")
		r.wantOutcome(item, "e-2", record.Dropped, "closed")
		r.publish(item, event.Reopen, "e-3")
		r.wantOutcome(item, "e-3", record.Done, "")
		r.publish(item, event.Stop, "stop-1")
		r.publish(item, comment, "e-4")
		r.wantOutcome(item, "e-4", record.Dropped, "stopped")
	})
}

// Whoever becomes owner reads control first, also when no event waits.
func TestFold_WhenOwnershipBegins(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		a := r.start("a", 5)
		item := ref(t, 1)
		r.publish(item, label, "e-1")
		r.wantOutcome(item, "e-1", record.Done, "")
		a.stop(true)
		r.deafen()
		r.publish(item, event.Close, "close-1")
		r.start("a", 5)
		if rec := r.record(item); rec.Want != record.Closed || rec.State != record.StateClosed {
			t.Errorf("adopted with want %s, state %s", rec.Want, rec.State)
		}
	})
}
