package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"loopfleet/pkg/deadletter"
	"loopfleet/pkg/decide"
	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/fault"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
	"loopfleet/pkg/session"
	"loopfleet/pkg/workitem"
)

// recordTimeout bounds the writes that follow a side effect; they are finished
// even when the lane is being closed.
const recordTimeout = 10 * time.Second

// Reasons of a dead outcome, beside record.ReasonNoReceipt and, for a fault that
// no later try can mend, the session's own.
const (
	// AttemptsSpent: every try failed.
	AttemptsSpent = "attempts-spent"
	// CrashLoop: too many starts ended without an outcome.
	CrashLoop = "crash-loop"
)

// finish records how the event ended: record, then dedup and log. The floor
// moves with it.
func (h *handling) finish(ctx context.Context, o record.Outcome) queue.Verdict {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	ev := h.m.Event
	o.EventID, o.Generation, o.Seq = ev.ID, ev.Generation, h.m.Seq
	o.Delivery, o.At = ev.DeliveryID, now()
	if o.Kind != record.Dropped {
		fault.Pass(ctx, fault.OutcomeRecord)
	}
	rec, err := h.it.Update(ctx, func(r *record.Record) bool {
		if r.Started != nil && r.Started.EventID == o.EventID && r.Started.Generation == o.Generation {
			o.Attempts = max(o.Attempts, r.Started.Failures)
			if o.Error == "" {
				o.Error = r.Started.Error
			}
		}
		r.Finish(o)
		if ev.Kind.Arming() && o.Reason == decide.Already {
			r.Confirm(ev.At)
		}
		h.state(r, o)
		return true
	})
	if err != nil {
		h.w.log.Warn().Err(err).Msg("the outcome is recorded by the next owner")
		return queue.Back
	}
	if err := h.w.complete(ctx, h.it.Ref, o, map[string]any{
		"kind": string(ev.Kind), logkey.Delivered: h.m.Delivered, "submitted": h.submitted,
		"incarnation": rec.Incarnation, logkey.Harness: rec.Harness,
	}); err != nil {
		h.w.log.Warn().Err(err).Msg("the outcome is in the record; dedup and log follow")
		return queue.Back
	}
	return queue.Ack
}

// state moves the session's state with the outcome.
func (h *handling) state(r *record.Record, o record.Outcome) {
	if r.Want.Ended() {
		return // Settle ends the session and says so
	}
	switch {
	case o.Kind == record.Done && r.Want == record.Paused:
		r.Set(record.StatePaused, "", o.At)
	case o.Kind == record.Done:
		r.Set(record.StateActive, "", o.At)
	case o.Kind == record.Dead && o.Reason == record.ReasonNoReceipt:
		r.Set(record.StateActive, record.ReasonNoReceipt, o.At)
	case o.Kind == record.Dead && r.State == record.StateStarting:
		r.Set(record.StateFailed, o.Error, o.At)
	}
}

// dead keeps the whole event where it can be looked at and replayed, then
// records the outcome.
func (h *handling) dead(ctx context.Context, reason string, cause error) queue.Verdict {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	rec, _ := h.it.Record()
	l := deadletter.Letter{
		Event: h.m.Event, Reason: reason, Error: cause.Error(), Public: public(cause), Seq: h.m.Seq, At: now(), Worker: h.w.cfg.ID,
	}
	if rec.Started != nil {
		l.Attempts = rec.Started.Failures
	}
	if err := deadletter.Keep(ctx, h.w.js, l); err != nil {
		h.w.log.Error().Err(err).Msg("the event waits until its dead letter can be kept")
		return queue.Later(time.Second)
	}
	return h.finish(ctx, record.Outcome{Kind: record.Dead, Reason: reason, Error: cause.Error(), Attempts: l.Attempts})
}

// public is what a ticket may show of an error: not what an agent printed.
func public(cause error) string {
	if e, ok := errors.AsType[*session.SpawnError](cause); ok {
		quiet := *e
		quiet.Screen = ""
		return quiet.Error()
	}
	return cause.Error()
}

// Complete writes what a crash may have left out after an outcome was recorded.
func (w *Worker) Complete(ctx context.Context, item workitem.Ref, o record.Outcome) error {
	return w.complete(ctx, item, o, map[string]any{})
}

// complete puts a recorded outcome into the dedup bucket and the log. Both are
// idempotent.
func (w *Worker) complete(ctx context.Context, item workitem.Ref, o record.Outcome, fields map[string]any) error {
	fault.Pass(ctx, fault.DedupPut)
	created, err := w.reg.PutOutcome(ctx, item, o)
	if err != nil {
		return err
	}
	const logWindow = time.Hour // within it the stream knows a line it has
	if !created && time.Since(o.At) > logWindow {
		return nil
	}
	fault.Pass(ctx, fault.LogOutcome)
	fields[logkey.Reason], fields[logkey.Error] = o.Reason, o.Error
	fields[logkey.Seq], fields["generation"] = o.Seq, o.Generation
	if o.Attempts > 0 {
		fields[logkey.Attempt] = o.Attempts
	}
	t, level := event.DispatchDropped, event.Info
	switch o.Kind {
	case record.Done:
		t = event.DispatchSucceeded
	case record.Dead:
		t, level = event.DispatchDead, event.Error
	case record.Dropped:
	}
	return w.events.Emit(ctx, eventlog.Entry{
		Type: t, Level: level, WorkItem: item, EventID: o.EventID, Delivery: o.Delivery,
		Key: fmt.Sprintf("%s.g%d", o.EventID, o.Generation), Fields: fields,
	})
}
