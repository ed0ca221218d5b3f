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
	"loopfleet/pkg/registry"
	"loopfleet/pkg/session"
)

// withheldWait is how often a withheld event is looked at again when nothing
// tells of a change: a person at the terminal leaves no trace in the queue.
const withheldWait = 2 * time.Second

// Handle is the life of one event: known already? decide; begin; act on the
// session; record the outcome. The queue acknowledges after it.
func (w *Worker) Handle(ctx context.Context, it *queue.Item, m *queue.Message) queue.Verdict {
	h := &handling{w: w, it: it, m: m}
	if m.Err != nil {
		return h.dead(ctx, deadletter.ReasonUndecodable, m.Err)
	}
	known, err := h.known(ctx)
	switch {
	case err != nil:
		w.log.Warn().Err(err).Msg("the event waits until its outcome can be looked up")
		return queue.Back
	case known:
		return h.pass(ctx)
	}
	for {
		rec, owned := it.Record()
		if !owned || ctx.Err() != nil {
			return queue.Back
		}
		if h.unsettled(rec) {
			// A close that an arming event follows at once still ends what ran.
			w.Settle(ctx, it)
			continue
		}
		action, err := h.decide(ctx, rec)
		if err != nil {
			w.log.Warn().Err(err).Msg("the event waits until the stream can be read")
			return queue.Back
		}
		switch action.Do {
		case decide.Drop:
			return h.finish(ctx, record.Outcome{Kind: record.Dropped, Reason: action.Reason})
		case decide.Hold:
			h.hold(ctx, action)
		case decide.Deliver, decide.Spawn:
			if h.breaker(ctx, rec) {
				continue
			}
			v, again := h.try(ctx, action)
			if !again {
				return v
			}
		}
	}
}

// handling is one event on its way.
type handling struct {
	w  *Worker
	it *queue.Item
	m  *queue.Message

	// arming is the event behind this one that arms the item, once found.
	arming *event.Event
	// held is the reason last logged for holding.
	held string
	// expectLive says that the session was thought to run.
	expectLive bool
	// submitted says that the prompt went in, whatever became of it.
	submitted bool
	// tripped says that the breaker has paused the item, which shows shortly.
	tripped bool
	// settled says that the end of a closed item was seen to before this event.
	settled bool
}

// unsettled reports, once, whether the item was closed and its session has not
// been ended yet: no event is judged between the two.
func (h *handling) unsettled(rec record.Record) bool {
	if h.settled || !rec.Want.Ended() {
		return false
	}
	h.settled = true
	return rec.Wishes() || rec.State != record.StateClosed && rec.ForgottenAt.IsZero()
}

// known reports whether this generation has its outcome: in the record, or, for
// what the record no longer carries, in the dedup bucket.
func (h *handling) known(ctx context.Context) (bool, error) {
	ev := h.m.Event
	rec, _ := h.it.Record()
	o, ok := rec.Outcome(ev.ID, ev.Generation)
	if !ok {
		var err error
		if o, ok, err = h.w.reg.Outcome(ctx, h.it.Ref, ev.ID, ev.Generation); err != nil || !ok {
			return false, err
		}
	}
	if err := h.w.Complete(ctx, h.it.Ref, o); err != nil {
		return false, err
	}
	return true, nil
}

// pass moves the floor past a message whose event has its outcome.
func (h *handling) pass(ctx context.Context) queue.Verdict {
	_, err := h.it.Update(ctx, func(r *record.Record) bool {
		r.Pass(h.m.Event.ID, h.m.Event.Generation, h.m.Seq)
		return true
	})
	if err != nil {
		return queue.Back
	}
	h.post(event.DispatchDropped, event.Info, map[string]any{logkey.Reason: "duplicate"})
	return queue.Ack
}

// decide gathers what the decision depends on and decides.
func (h *handling) decide(ctx context.Context, rec record.Record) (decide.Action, error) {
	in := h.input(rec)
	a := decide.Event(in)
	if rec.Armed || h.m.Event.Kind.Arming() || a.Do == decide.Drop && a.Reason != decide.NotArmed {
		return a, nil
	}
	ahead, ok, err := h.w.engine.Reader().ArmingAhead(ctx, h.it.Ref, h.m.Seq)
	if err != nil || !ok {
		return a, err
	}
	h.arming = &ahead.Event
	in.ArmingAhead = true
	return decide.Event(in), nil
}

func (h *handling) input(rec record.Record) decide.Input {
	return decide.Input{
		Event: h.m.Event, Seq: h.m.Seq, Published: h.m.Published, Record: rec,
		ArmingAhead: h.arming != nil, Now: time.Now(), Routing: h.w.routing(),
	}
}

// hold waits, uncharged, until something changes or the time is up.
func (h *handling) hold(ctx context.Context, a decide.Action) {
	if h.held != a.Reason && a.Reason != decide.Backoff {
		h.held = a.Reason
		fields := map[string]any{logkey.Reason: a.Reason}
		if !a.Until.IsZero() {
			fields["until"] = a.Until
		}
		h.post(event.DispatchWithheld, event.Info, fields)
		if a.Reason == decide.PausedItem {
			_, err := h.it.Update(ctx, func(r *record.Record) bool {
				if r.Want != record.Paused || r.State != record.StateActive {
					return false
				}
				r.Set(record.StatePaused, "", now())
				return true
			})
			if err != nil && !errors.Is(err, queue.ErrNotOwner) {
				h.w.log.Warn().Err(err).Msg("the pause is not shown yet")
			}
		}
	}
	wait := time.Hour
	if !a.Until.IsZero() {
		wait = time.Until(a.Until)
	}
	t := time.NewTimer(max(wait, time.Millisecond))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-h.it.Woken():
	case <-t.C:
	}
}

// errNotTried ends a try before its side effect.
var errNotTried = errors.New("not tried")

// try is one start: recorded, acted, and its end recorded. Again means that the
// event is to be decided anew.
func (h *handling) try(ctx context.Context, action decide.Action) (v queue.Verdict, again bool) {
	w := h.w
	if action.Do == decide.Spawn {
		if !w.reserve(h.it.Ref) {
			h.post(event.DispatchWithheld, event.Info, map[string]any{logkey.Reason: record.ReasonNoRoom})
			return queue.NoRoom, false
		}
		defer w.unreserve(h.it.Ref)
	}
	att, resent, err := h.begin(ctx, action)
	switch {
	case errors.Is(err, errNotTried):
		return queue.Verdict{}, true
	case err != nil:
		return queue.Back, false
	case att.Lost >= record.MaxLostStarts:
		return h.dead(ctx, CrashLoop, fmt.Errorf("%d starts of this event ended without an outcome", att.Lost)), false
	}
	h.post(event.DispatchStarted, event.Info, map[string]any{
		logkey.Attempt: att.Failures + 1, logkey.Delivered: h.m.Delivered, logkey.Action: string(action.Do), "resent": resent,
	})
	var got bool
	err = h.it.Act(ctx, func(actx context.Context) error {
		rec, owned := h.it.Record()
		if !owned || !h.it.Owns() {
			return queue.ErrNotOwner
		}
		if a := decide.Event(h.input(rec)); a.Do == decide.Drop || a.Do == decide.Hold {
			return errNotTried // closed or paused since
		}
		var err error
		got, err = h.perform(actx, rec, resent)
		if err != nil && errors.Is(context.Cause(actx), queue.ErrControl) {
			return queue.ErrControl
		}
		return err
	})
	return h.conclude(ctx, att, got, err)
}

// begin records the start before its side effect, unless the decision has
// changed since.
func (h *handling) begin(ctx context.Context, action decide.Action) (att record.Attempt, resent bool, err error) {
	ev := h.m.Event
	stale := false
	_, err = h.it.Update(ctx, func(r *record.Record) bool {
		if a := decide.Event(h.input(*r)); a.Do != action.Do {
			stale = true
			return false
		}
		stale = false
		h.expectLive = r.Live()
		att, resent = r.Begin(ev.ID, ev.Generation, h.m.Seq)
		armedBy := &ev
		if !ev.Kind.Arming() {
			armedBy = h.arming
		}
		if armedBy != nil && (ev.Kind.Arming() || !r.Armed) {
			r.Arm(armedBy.At)
			r.Title, r.URL = armedBy.Title, armedBy.URL
			r.PullRequest = armedBy.Name == "pull_request" && armedBy.Via.Zero()
		}
		if r.Harness == "" {
			r.Harness = h.w.routing().DefaultHarness
		}
		if action.Do == decide.Spawn {
			r.Set(record.StateStarting, "", now())
		}
		return true
	})
	if err == nil && stale {
		err = errNotTried
	}
	return att, resent, err
}

// conclude turns the end of a try into a recorded outcome, a charged failure,
// or a start taken back.
func (h *handling) conclude(ctx context.Context, att record.Attempt, got bool, err error) (v queue.Verdict, again bool) {
	w := h.w
	var (
		withheld *session.WithheldError
		fence    *session.FenceError
	)
	switch {
	case err == nil && got:
		return h.finish(ctx, record.Outcome{Kind: record.Done, Attempts: att.Failures + 1}), false
	case err == nil:
		return h.dead(ctx, record.ReasonNoReceipt, fmt.Errorf("the prompt was submitted and the agent gave no receipt within %s; it is not sent again by itself", w.routing().ReceiptTimeout())), false
	case errors.Is(err, queue.ErrControl):
		if !h.submitted {
			h.takeBack(ctx)
		}
		return queue.Verdict{}, true
	case errors.Is(err, errNotTried):
		h.takeBack(ctx)
		return queue.Verdict{}, true
	case errors.As(err, &withheld):
		h.takeBack(ctx)
		h.withheld(ctx, withheld)
		return queue.Verdict{}, true
	case errors.As(err, &fence), errors.Is(err, queue.ErrNotOwner), errors.Is(err, registry.ErrLeaseLost), ctx.Err() != nil:
		// Ours no longer, or the worker stops. A prompt that went in stays
		// started: who comes next reads the receipts.
		if !h.submitted {
			h.takeBack(context.WithoutCancel(ctx))
		}
		return queue.Back, false
	default:
		return h.failed(ctx, err), false
	}
}

// takeBack undoes a start that was not tried.
func (h *handling) takeBack(ctx context.Context) {
	_, err := h.it.Update(ctx, func(r *record.Record) bool {
		r.TakeBack()
		return true
	})
	if err != nil && !errors.Is(err, queue.ErrNotOwner) {
		h.w.log.Warn().Err(err).Msg("a start could not be taken back; it counts as lost")
	}
}

// withheld shows that the agent cannot take the prompt now, and waits.
func (h *handling) withheld(ctx context.Context, e *session.WithheldError) {
	if h.held != e.Reason {
		h.held = e.Reason
		h.post(event.DispatchWithheld, event.Warn, map[string]any{logkey.Reason: e.Reason, logkey.Error: e.Error()})
		_, err := h.it.Update(ctx, func(r *record.Record) bool {
			if r.State != record.StateActive {
				return false
			}
			r.Reason = record.ReasonWaitingForPerson
			return true
		})
		if err != nil && !errors.Is(err, queue.ErrNotOwner) {
			h.w.log.Warn().Err(err).Msg("the wait is not shown yet")
		}
	}
	t := time.NewTimer(withheldWait)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-h.it.Woken():
	case <-t.C:
	}
}

// failed charges the try, and gives the event up when that was the last.
func (h *handling) failed(ctx context.Context, cause error) queue.Verdict {
	w := h.w
	fault.Pass(ctx, fault.AttemptFailed)
	var att record.Attempt
	var wait time.Duration
	_, err := h.it.Update(ctx, func(r *record.Record) bool {
		failures := 1
		if r.Started != nil {
			failures = r.Started.Failures + 1
		}
		wait = jitter(w.routing().Backoff(failures))
		r.Fail(cause.Error(), now().Add(wait))
		if r.Started != nil {
			att = *r.Started
		}
		return true
	})
	if err != nil {
		return queue.Back
	}
	permanent := session.Permanent(cause)
	retry := !permanent && att.Failures < w.budget(h.m.Event.Source)
	h.post(event.DispatchFailed, event.Warn, map[string]any{
		logkey.Attempt: att.Failures, logkey.Delivered: h.m.Delivered, logkey.Error: cause.Error(),
		logkey.Reason: session.Reason(cause), "will_retry": retry, "retry_in": wait,
	})
	switch {
	case permanent:
		return h.dead(ctx, session.Reason(cause), cause)
	case !retry:
		return h.dead(ctx, AttemptsSpent, cause)
	}
	return queue.Later(wait)
}

// budget is how many tries an event gets in all.
func (w *Worker) budget(source event.Source) int {
	if source == event.Poll {
		return w.cfg.PollRetries
	}
	return w.routing().MaxRetries
}

func (h *handling) post(t event.LogType, level event.Level, fields map[string]any) {
	fields["kind"] = string(h.m.Event.Kind)
	fields[logkey.Seq] = h.m.Seq
	h.w.events.Post(eventlog.Entry{
		Type: t, Level: level, WorkItem: h.it.Ref, EventID: h.m.Event.ID, Delivery: h.m.Event.DeliveryID, Fields: fields,
	})
}
