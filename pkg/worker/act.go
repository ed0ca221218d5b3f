package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/fault"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/record"
	"loopfleet/pkg/session"
)

// perform puts the event in front of the agent: into the session that runs, or
// as the boot prompt of a new one. It reports whether the agent has it. The
// caller holds the item's session.
func (h *handling) perform(ctx context.Context, rec record.Record, resent bool) (bool, error) {
	s := rec.Session
	if s == nil || s.Host != h.w.cfg.ID {
		return h.spawn(ctx, rec, resent)
	}
	if taken, err := h.taken(*s); err != nil || taken {
		return taken, err
	}
	status, err := h.w.sessions.Inspect(ctx, *s)
	if err != nil {
		return false, fmt.Errorf("look at the session: %w", err)
	}
	if status.Ended() {
		if h.expectLive {
			h.w.died(h.it.Ref, *s, status)
		}
		return h.spawn(ctx, rec, resent)
	}
	h.w.hosts(h.it.Ref, *s)
	got, err := h.deliver(ctx, *s, resent)
	if missing, ok := errors.AsType[*session.MissingError](err); ok {
		h.w.died(h.it.Ref, *s, missing.Status)
		return h.spawn(ctx, rec, resent)
	}
	return got, err
}

// taken reports whether the agent took the event in an earlier start of it that
// nothing was recorded of, whatever became of the agent since. A receipt does
// not tell generations apart, so a later one is sent.
func (h *handling) taken(s record.Session) (bool, error) {
	if h.m.Event.Generation > 0 {
		return false, nil
	}
	got, err := h.w.sessions.HasReceipt(s, h.m.Event.ID)
	if err != nil {
		return false, fmt.Errorf("look for an earlier receipt: %w", err)
	}
	h.submitted = h.submitted || got
	return got, nil
}

// deliver sends the event to a running session and waits for its receipt.
func (h *handling) deliver(ctx context.Context, s record.Session, resent bool) (bool, error) {
	if s.BootEvent == h.m.Event.ID && h.m.Event.Generation == 0 {
		// Its boot prompt was this event: all there is to do is to wait.
		h.submitted = true
		return h.w.sessions.AwaitReceipt(ctx, s, h.m.Event.ID)
	}
	d, err := h.w.sessions.Deliver(ctx, s, h.prompt(resent))
	h.submitted = h.submitted || d.Submitted
	return d.Receipt, err
}

// prompt is the event's text for the agent. A comment that came before its
// label brings what the label's event tells of the item along.
func (h *handling) prompt(resent bool) session.Prompt {
	ev := h.m.Event
	boot := ev.Kind.Arming()
	text := session.Frame(ev, boot)
	if h.arming != nil {
		text = session.Frame(*h.arming, true) + "\n" + text
	}
	return session.Prompt{EventID: ev.ID, Generation: ev.Generation, Text: text, Resent: resent}
}

// spawn starts the item's session with the event as its boot prompt. What is
// recorded of an earlier session decides how; nothing is derived anew.
func (h *handling) spawn(ctx context.Context, rec record.Record, resent bool) (bool, error) {
	w := h.w
	if !w.reserve(h.it.Ref) {
		return false, &session.WithheldError{Reason: record.ReasonNoRoom}
	}
	req := session.SpawnRequest{
		Item: h.it.Ref, Incarnation: rec.Incarnation + 1, Harness: rec.Harness, Boot: h.prompt(resent),
	}
	respawn := rec.Session != nil
	if respawn {
		req.Resume = rec.Session.HarnessSessionID
	}
	var err error
	if req.Cwd, err = h.checkout(ctx, rec); err != nil {
		return false, err
	}
	res, err := w.sessions.Spawn(ctx, req)
	if err != nil {
		return false, err
	}
	h.submitted = true
	w.hosts(h.it.Ref, res.Session)
	fault.Pass(ctx, fault.SpawnRecord)
	_, err = h.it.Update(context.WithoutCancel(ctx), func(r *record.Record) bool {
		s := res.Session
		s.Host = w.cfg.ID
		r.Session = &s
		r.Incarnation = res.Incarnation
		return true
	})
	if err != nil {
		return false, err // another has the item now, and the queue ends what we started
	}
	t := event.SessionSpawned
	switch {
	case res.Adopted:
		t = event.SessionAdopted
	case respawn:
		t = event.SessionRespawned
	}
	w.events.Post(eventlog.Entry{Type: t, WorkItem: h.it.Ref, EventID: h.m.Event.ID, Fields: map[string]any{
		logkey.Harness: res.Session.Harness, logkey.Session: res.Session.TmuxTarget, "incarnation": res.Incarnation,
		"resumed": res.Resumed, logkey.Reason: res.Reason,
	}})
	if res.Adopted && res.Session.BootEvent != h.m.Event.ID {
		return h.deliver(ctx, res.Session, resent)
	}
	got, err := w.sessions.AwaitReceipt(ctx, res.Session, h.m.Event.ID)
	if missing, ok := errors.AsType[*session.MissingError](err); ok {
		w.died(h.it.Ref, res.Session, missing.Status)
		return false, fmt.Errorf("the agent ended before it took its boot prompt: %w", err)
	}
	return got, err
}

// jitter spreads d by a tenth either way, so that what failed together does not
// come back together.
func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d - d/10 + rand.N(d/5+1) //nolint:gosec // G404: no secret hangs on it
}
