package queue

import (
	"context"
	"errors"
	"time"

	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/fault"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
)

// logOwner says that an item changed hands.
func (e *Engine) logOwner(it *Item, from, to, why string) {
	e.post(eventlog.Entry{Type: event.OwnerChanged, WorkItem: it.Ref, Fields: map[string]any{
		"from": from, "to": to, logkey.Reason: why,
	}})
}

// claim makes this worker the owner if nobody living is.
func (e *Engine) claim(ctx context.Context, it *Item, why string) bool {
	it.op.Lock()
	defer it.op.Unlock()
	if it.owner() {
		return true
	}
	if !e.lease.Valid() || e.stopping.Load() {
		return false
	}
	cur, err := e.reg.Get(ctx, it.Ref)
	if err != nil {
		e.log.Warn().Err(err).Msg("claim: the record cannot be read")
		return false
	}
	from := cur.Record.Owner
	if from != "" && from != e.cfg.Worker && !e.mayTake(ctx, from) {
		return false
	}
	next := cur.Record.Clone()
	next.Owner = e.cfg.Worker
	e.settleState(&next)
	rev, err := e.reg.Put(ctx, next, cur.Revision)
	if err != nil {
		// A write without an answer may have landed; the sweep adopts what
		// names this worker.
		if !errors.Is(err, registry.ErrConflict) {
			e.log.Warn().Err(err).Msg("claim: no answer")
		}
		return false
	}
	if next.Session == nil && !next.Want.Ended() {
		e.mu.Lock()
		e.claims[it.Ref.Key()] = true
		e.mu.Unlock()
	}
	it.own(registry.Entry{Record: next, Revision: rev})
	e.logOwner(it, from, e.cfg.Worker, why)
	e.beginOwnership(ctx, it)
	e.openLane(ctx, it, true)
	return true
}

// settleState says what an item is that begins to be ours: no longer waiting,
// and lost when its session is on a machine we cannot reach.
func (e *Engine) settleState(r *record.Record) {
	now := time.Now().UTC()
	r.Unwait(now)
	if r.Session == nil || r.Session.Host == e.cfg.Worker {
		return
	}
	switch r.State {
	case record.StateActive, record.StateStarting, record.StatePaused:
		r.Set(record.StateLost, r.Session.Host, now)
	default:
	}
}

// beginOwnership completes what a crash left out, folds control and brings the
// session in line. The caller holds it.op.
func (e *Engine) beginOwnership(ctx context.Context, it *Item) {
	rec, _ := it.Record()
	if n := len(rec.Recent); n > 0 {
		if err := e.handler.Complete(ctx, it.Ref, rec.Recent[n-1]); err != nil {
			e.log.Warn().Err(err).Msg("the last outcome could not be completed")
		}
	}
	if err := e.foldOnly(ctx, it); err != nil {
		e.log.Warn().Err(err).Msg("control is folded before the next event")
	}
	e.handler.Settle(ctx, it)
}

// adopt takes up ownership of a record that names this worker already: after a
// restart, a lost lease, or a claim whose answer was lost. An item that is
// another's has its leftovers here ended.
func (e *Engine) adopt(ctx context.Context, it *Item) bool {
	it.op.Lock()
	defer it.op.Unlock()
	for ctx.Err() == nil && e.lease.Valid() {
		if it.owner() {
			return true
		}
		cur, err := e.reg.Get(ctx, it.Ref)
		if err != nil {
			pause(ctx, 100*time.Millisecond)
			continue
		}
		if cur.Record.Owner != e.cfg.Worker {
			e.handler.Leftover(ctx, cur.Record)
			return false
		}
		// Writing it again fences our own late writes from before.
		rev, err := e.reg.Put(ctx, cur.Record, cur.Revision)
		if err != nil {
			pause(ctx, 30*time.Millisecond)
			continue
		}
		it.own(registry.Entry{Record: cur.Record, Revision: rev})
		e.beginOwnership(ctx, it)
		rec, _ := it.Record()
		if last, err := e.reader.LastSeq(ctx, it.Ref); err != nil || last > rec.Floor {
			e.openLane(ctx, it, true)
		}
		return true
	}
	return false
}

// lost lets go of an item that another took.
func (e *Engine) lost(it *Item, rec record.Record) {
	it.op.Lock()
	defer it.op.Unlock()
	if it.owner() {
		return
	}
	e.stopLane(it, ErrNotOwner)
	e.handler.Leftover(e.runCtx, rec)
}

type releaseReason string

const (
	releaseDrain  releaseReason = "drain"
	releaseIdle   releaseReason = "nothing-to-do"
	releaseNoRoom releaseReason = "no-room"
)

// release gives the item up. What still waits makes it a waiting record.
func (e *Engine) release(ctx context.Context, it *Item, why releaseReason) {
	it.op.Lock()
	defer it.op.Unlock()
	if !it.owner() {
		return
	}
	e.stopLane(it, ErrStopping)
	if why == releaseDrain {
		e.handler.Evict(ctx, it)
	}
	if err := e.deleteLane(ctx, it); err != nil {
		e.log.Warn().Err(err).Msg("the next owner deletes the lane")
	}
	last, err := e.reader.LastSeq(ctx, it.Ref)
	if err != nil {
		e.log.Warn().Err(err).Msg("release: what waits cannot be read; the sweep looks again")
	}
	waits := false
	_, err = it.Update(ctx, func(r *record.Record) bool {
		r.Owner = ""
		if waits = last > r.Floor; waits {
			r.Wait(waitReason(why), time.Now().UTC())
		}
		return true
	})
	// Update refuses a record without this owner only when somebody else wrote.
	if err != nil && !errors.Is(err, ErrNotOwner) {
		e.log.Warn().Err(err).Msg("release: the record could not be written")
		return
	}
	it.disown()
	e.mu.Lock()
	delete(e.claims, it.Ref.Key())
	e.mu.Unlock()
	e.logOwner(it, e.cfg.Worker, "", string(why))
	if waits {
		e.announceWaiting(it, waitReason(why))
	} else {
		e.markWaiting(ctx, it)
	}
}

func waitReason(why releaseReason) string {
	if why == releaseNoRoom {
		return record.ReasonNoRoom
	}
	return ""
}

// announceWaiting tells workers with room that an item waits.
func (e *Engine) announceWaiting(it *Item, reason string) {
	e.post(eventlog.Entry{Type: event.DispatchWaiting, WorkItem: it.Ref, Fields: map[string]any{logkey.Reason: reason}})
	_ = e.nc.Publish(waitingSubject, nil)
}

// markWaiting makes an unowned record with something pending a waiting one: its
// bell may have been acked while the item was owned.
func (e *Engine) markWaiting(ctx context.Context, it *Item) bool {
	for range 20 {
		last, err := e.reader.LastSeq(ctx, it.Ref)
		if err != nil {
			pause(ctx, 50*time.Millisecond)
			continue
		}
		cur, err := e.reg.Get(ctx, it.Ref)
		if err != nil {
			pause(ctx, 50*time.Millisecond)
			continue
		}
		r := cur.Record
		if cur.Revision == 0 || r.Owner != "" || r.State == record.StateWaiting || last <= r.Floor {
			return false
		}
		r.Wait("", time.Now().UTC())
		if _, err := e.reg.Put(ctx, r, cur.Revision); err == nil {
			e.announceWaiting(it, "")
			return true
		}
	}
	return false
}

// fold applies all new control to the record and, when it changed anything,
// brings the session in line.
func (e *Engine) fold(ctx context.Context, it *Item) error {
	changed, err := e.foldChanged(ctx, it)
	if err != nil || !changed {
		return err
	}
	e.background(func() { e.afterControl(it) })
	return nil
}

// foldOnly is fold for callers that settle the session themselves.
func (e *Engine) foldOnly(ctx context.Context, it *Item) error {
	_, err := e.foldChanged(ctx, it)
	return err
}

func (e *Engine) foldChanged(ctx context.Context, it *Item) (bool, error) {
	rec, owned := it.Record()
	if !owned {
		return false, ErrNotOwner
	}
	msgs, err := e.reader.Controls(ctx, it.Ref, rec.ControlSeq)
	if err != nil || len(msgs) == 0 {
		return false, err
	}
	var folded []record.Folded
	after, err := it.Update(ctx, func(r *record.Record) bool {
		folded = r.Fold(msgs)
		if len(folded) > 0 {
			fault.Pass(ctx, fault.ControlRecord)
		}
		return len(folded) > 0
	})
	if err != nil {
		return false, err
	}
	changed := e.logFolded(it, folded)
	if changed {
		if after.Want.Ended() {
			it.interrupt()
		}
		kick(it.wake)
	}
	return changed, nil
}

// logFolded logs each control message once and reports whether any had effect.
func (e *Engine) logFolded(it *Item, folded []record.Folded) bool {
	changed := false
	for _, f := range folded {
		changed = changed || f.Effect == record.Applied
		e.post(eventlog.Entry{Type: event.ControlApplied, WorkItem: it.Ref, EventID: f.EventID, Delivery: f.Delivery, Fields: map[string]any{
			logkey.Action: string(f.Kind), "effect": string(f.Effect), logkey.Reason: f.Reason, logkey.Seq: f.Seq,
		}})
	}
	return changed
}

// afterControl follows a change of what the item wants: the session, then a
// backoff that was cut short, then an item with nothing left to do.
func (e *Engine) afterControl(it *Item) {
	e.handler.Settle(e.runCtx, it)
	it.op.Lock()
	if it.owner() && it.lane != nil && !it.lane.busy.Load() {
		// A message that was put back with a delay sits in the server until
		// that is over; a new lane hands it out now.
		if rec, _ := it.Record(); rec.Started != nil {
			e.stopLane(it, ErrControl)
			e.openLane(e.runCtx, it, true)
		}
	}
	it.op.Unlock()
	e.afterWork(it)
}

// afterWork gives an item up that has neither a session nor a wish for one.
func (e *Engine) afterWork(it *Item) {
	rec, owned := it.Record()
	if !owned || e.stopping.Load() {
		return
	}
	live := rec.Session != nil && rec.State != record.StateClosed
	if live || (rec.Armed && !rec.Want.Ended()) || rec.Started != nil {
		return
	}
	last, err := e.reader.LastSeq(e.runCtx, it.Ref)
	if err != nil || last > rec.Floor {
		return
	}
	e.release(e.runCtx, it, releaseIdle)
}
