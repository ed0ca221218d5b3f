package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"loopfleet/pkg/event"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
	"loopfleet/pkg/testutil/waitfor"
)

func want(w record.Want) func(record.Record) bool {
	return func(r record.Record) bool { return r.Want == w }
}

// Control that came before anybody owned the item is folded when somebody does.
func TestControl_BeforeTheFirstClaim(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		paused, closed := ref(t, 1), ref(t, 2)
		r.publish(paused, event.Pause, "pause-1")
		r.publish(paused, label, "e-1")
		r.publish(closed, label, "e-2")
		r.publish(closed, event.Close, "close-2")
		n := r.start("a", 5)
		waitfor.Until(t, "the paused item to be held", func() bool { return n.count(&n.held, "e-1: paused") > 0 })
		r.wantOutcome(closed, "e-2", record.Dropped, "closed")
		if _, told := r.ledger.find("e-1"); told {
			t.Error("a paused item was started")
		}
		if got := n.engine.Claims(); got != 0 {
			t.Errorf("a paused item sets room aside (%d)", got)
		}
		r.publish(paused, event.Resume, "resume-1")
		r.wantOutcome(paused, "e-1", record.Done, "")
	})
}

// A close without a record leaves a tombstone of all the item's control.
func TestControl_Tombstone(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		r.start("a", 5)
		item := ref(t, 1)
		r.publish(item, event.Pause, "pause-1")
		r.publish(item, event.Close, "close-1")
		rec := r.until(item, "a tombstone", func(rec record.Record) bool { return len(rec.ControlIDs) == 2 })
		if rec.Want != record.Closed || rec.State != record.StateClosed || rec.Owner != "" || rec.Reason != event.IssueClosed {
			t.Errorf("tombstone: %+v", rec)
		}
		r.publish(item, comment, "e-1")
		r.wantOutcome(item, "e-1", record.Dropped, "closed")
		if got := r.ledger.of(item); len(got) != 0 {
			t.Errorf("told %v", got)
		}
	})
}

func TestControl_WakesAHeldEvent(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		n := r.start("a", 5)
		item := ref(t, 1)
		r.publish(item, label, "e-1")
		r.wantOutcome(item, "e-1", record.Done, "")
		r.publish(item, event.Pause, "pause-1")
		r.until(item, "paused", want(record.Paused))
		r.publish(item, comment, "e-2")
		waitfor.Until(t, "the comment to be held", func() bool { return n.count(&n.held, "e-2: paused") > 0 })
		r.publish(item, event.Resume, "resume-1")
		r.wantOutcome(item, "e-2", record.Done, "")

		r.publish(item, event.Pause, "pause-2")
		r.until(item, "paused", want(record.Paused))
		r.publish(item, comment, "e-3")
		waitfor.Until(t, "the comment to be held", func() bool { return n.count(&n.held, "e-3: paused") > 0 })
		r.publish(item, event.Close, "close-1")
		r.wantOutcome(item, "e-3", record.Dropped, "closed")
		r.until(item, "closed", func(rec record.Record) bool { return rec.State == record.StateClosed && rec.Owner == "" })
	})
}

// A close ends what can be ended: a side effect that looks at its context.
func TestControl_CloseInterruptsAct(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		item := ref(t, 1)
		began, cause := make(chan struct{}, 8), make(chan error, 8)
		r.start("a", 5, func(h *recorder) {
			h.work = func(ctx context.Context, _ *queue.Item, _ *queue.Message) error {
				began <- struct{}{}
				<-ctx.Done()
				cause <- context.Cause(ctx)
				return context.Cause(ctx)
			}
		})
		r.publish(item, label, "e-1")
		<-began
		r.publish(item, event.Close, "close-1")
		if err := <-cause; !errors.Is(err, queue.ErrControl) {
			t.Errorf("interrupted by %v", err)
		}
		r.wantOutcome(item, "e-1", record.Dropped, "closed")
		if got := r.ledger.of(item); len(got) != 0 {
			t.Errorf("told %v", got)
		}
	})
}

// What ignores its context (between paste and Enter) is finished first; the
// session ends after it.
func TestControl_CloseWaitsForWhatCannotBeInterrupted(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		item := ref(t, 1)
		began, release := make(chan struct{}), make(chan struct{})
		r.start("a", 5, func(h *recorder) {
			h.work = func(context.Context, *queue.Item, *queue.Message) error {
				close(began)
				<-release
				return nil
			}
		})
		r.publish(item, label, "e-1")
		<-began
		r.publish(item, event.Close, "close-1")
		rec := r.until(item, "the close to be folded", want(record.Closed))
		if rec.State == record.StateClosed {
			t.Error("the session ended under the one who uses it")
		}
		close(release)
		r.wantOutcome(item, "e-1", record.Done, "")
		r.until(item, "closed", func(rec record.Record) bool { return rec.State == record.StateClosed && rec.Owner == "" })
	})
}

// A backoff of an hour, cut short.
func TestControl_CutsABackoffShort(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		kind event.Kind
		out  record.OutcomeKind
		why  string
	}{
		"retry": {event.Retry, record.Done, ""},
		"close": {event.Close, record.Dropped, "closed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(r *rig) {
				item := ref(t, 1)
				r.start("a", 5, func(h *recorder) {
					h.retryIn = time.Hour
					h.work = func(_ context.Context, it *queue.Item, _ *queue.Message) error {
						if rec, _ := it.Record(); rec.Started.Failures == 0 {
							return errWork
						}
						return nil
					}
				})
				r.publish(item, label, "e-1")
				r.until(item, "a failed try", func(rec record.Record) bool { return rec.Started != nil && rec.Started.Failures == 1 })
				r.publish(item, tt.kind, "control-1")
				r.wantOutcome(item, "e-1", tt.out, tt.why)
			})
		})
	}
}

// A retry that is folded after the failure was recorded and before the message
// went back with its delay is not lost.
func TestControl_RetryWhileTheFailedTryIsPutBack(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		item := ref(t, 1)
		failed, folded := make(chan struct{}), make(chan struct{})
		n := r.start("a", 5, func(h *recorder) {
			h.handle = func(ctx context.Context, it *queue.Item, m *queue.Message) (queue.Verdict, bool) {
				if h.count(&h.handled, m.Event.ID) > 1 {
					return queue.Verdict{}, false
				}
				_, err := it.Update(ctx, func(rec *record.Record) bool {
					rec.Begin(m.Event.ID, 0, m.Seq)
					rec.Arm(m.Event.At)
					rec.Fail("failed", time.Now().Add(time.Hour))
					return true
				})
				if err != nil {
					return queue.Back, true
				}
				close(failed)
				<-folded
				return queue.Later(time.Hour), true
			}
		})
		r.publish(item, label, "e-1")
		<-failed
		r.publish(item, event.Retry, "retry-1")
		r.until(item, "the retry to be folded", func(rec record.Record) bool { return rec.ControlSeq > 0 })
		close(folded)
		r.wantOutcome(item, "e-1", record.Done, "")
		if got := n.count(&n.handled, "e-1"); got != 2 {
			t.Errorf("handed out %d times", got)
		}
	})
}

// Another worker's bell: the poke reaches the owner.
func TestControl_ReachesTheOwnerThroughAnyWorker(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		r.start("a", 5)
		item := ref(t, 1)
		r.publish(item, label, "e-1")
		r.wantOutcome(item, "e-1", record.Done, "")
		for _, id := range []string{"b", "c", "d"} {
			r.start(id, 5)
		}
		for _, c := range []struct {
			kind event.Kind
			id   string
			want record.Want
		}{
			{event.Pause, "pause-1", record.Paused},
			{event.Resume, "resume-1", record.Run},
			{event.Pause, "pause-2", record.Paused},
			{event.Resume, "resume-2", record.Run},
			{event.Stop, "stop-1", record.Stopped},
			{event.Retry, "retry-1", record.Run},
			{event.Close, "close-1", record.Closed},
		} {
			r.publish(item, c.kind, c.id)
			r.until(item, string(c.kind)+" folded", func(rec record.Record) bool {
				return rec.Want == c.want && rec.ControlIDs[len(rec.ControlIDs)-1] == c.id
			})
		}
	})
}
