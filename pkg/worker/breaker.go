package worker

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"loopfleet/pkg/decide"
	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/notice"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
)

// breakerWait is how long to wait for a pause to be folded before the record is
// looked at again; the fold wakes the event sooner.
const breakerWait = 2 * time.Second

// breakerReason is why the breaker pauses.
const breakerReason = "too-many-prompts"

// breaker pauses the item instead of sending one more prompt when it got too
// many within the hour: something answers itself. It reports whether it did; the
// event is held as of any paused item, once the pause is folded.
func (h *handling) breaker(ctx context.Context, rec record.Record) bool {
	in := h.input(rec)
	prompts, tripped := decide.TooMany(in)
	if !tripped {
		return false
	}
	if !h.tripped {
		if err := h.trip(ctx, prompts, in.Routing.MaxEventsPerHour); err != nil {
			h.w.log.Warn().Err(err).Stringer(logkey.WorkItem, h.it.Ref).Msg("the item got too many prompts; the event waits until it can be paused")
		} else {
			h.tripped = true
		}
	}
	t := time.NewTimer(breakerWait)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-h.it.Woken():
	case <-t.C:
	}
	return true
}

// trip tells ticket and log, then pauses. Each is named after the event that is
// not sent, so that doing it again after a crash does nothing.
func (h *handling) trip(ctx context.Context, prompts, limit int) error {
	w, ev := h.w, h.m.Event
	object := "breaker " + h.it.Ref.String() + " " + ev.ID + " " + strconv.Itoa(ev.Generation)
	pause := event.Event{
		ID: event.NewID(event.Pause, h.it.Ref.Host, ev.RepoID, object, "", time.Time{}), Kind: event.Pause,
		Source: event.Breaker, WorkItem: h.it.Ref, RepoID: ev.RepoID, At: now(), Reason: breakerReason,
	}
	if err := notice.Send(ctx, w.js, notice.Note{
		ID: pause.ID, Kind: notice.Paused, WorkItem: h.it.Ref, Prompts: prompts, Limit: limit, At: pause.At,
	}); err != nil {
		return fmt.Errorf("pause %s: %w", h.it.Ref, err)
	}
	if err := w.events.Emit(ctx, eventlog.Entry{
		Type: event.BreakerTripped, Level: event.Warn, WorkItem: h.it.Ref, EventID: ev.ID, Key: pause.ID,
		Fields: map[string]any{"prompts": prompts, "limit": limit, logkey.Hint: "look at what answers what, then `loopfleet sessions resume " + h.it.Ref.String() + "`"},
	}); err != nil {
		return fmt.Errorf("pause %s: %w", h.it.Ref, err)
	}
	if _, err := queue.NewPublisher(w.js).Publish(ctx, pause); err != nil {
		return fmt.Errorf("pause %s: %w", h.it.Ref, err)
	}
	return nil
}
