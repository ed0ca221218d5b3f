package queue

import (
	"context"
	"errors"
	"fmt"
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

// needsRoom: room is needed only to spawn, not to drop events and not for a
// session that runs here already.
func (e *Engine) needsRoom(r record.Record) bool {
	if r.Want.Ended() {
		return r.Reason == record.ReasonNoRoom // it met a spawn in a full worker
	}
	if r.Session == nil || r.Session.Host != e.cfg.Worker {
		return true
	}
	switch r.State {
	case record.StateActive, record.StateStarting, record.StatePaused:
		return false
	default:
		return true
	}
}

// claim makes this worker the owner if nobody living is; full says that it lacks
// the room.
func (e *Engine) claim(ctx context.Context, it *Item, why claimReason) (owned, full bool) {
	it.op.Lock()
	defer it.op.Unlock()
	if it.owner() {
		return true, false
	}
	if !e.lease.Valid() || e.stopping.Load() {
		return false, false
	}
	cur, err := e.reg.Get(ctx, it.Ref)
	if err != nil {
		e.log.Warn().Err(err).Msg("claim: the record cannot be read")
		return false, false
	}
	from := cur.Record.Owner
	if from != "" && from != e.cfg.Worker && !e.mayTake(ctx, from) {
		return false, false
	}
	if why != claimReturn && why != claimEnd && e.needsRoom(cur.Record) && !e.takeRoom(it) {
		return false, true
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
		e.giveRoom(it)
		return false, false
	}
	e.logOwner(it, from, e.cfg.Worker, string(why))
	e.beginOwnership(ctx, it, registry.Entry{Record: next, Revision: rev})
	return true, false
}

// claimReason says what made a worker claim an item.
type claimReason string

const (
	claimBell    claimReason = "bell"
	claimControl claimReason = "control"
	claimEnd     claimReason = "to-end"
	claimGone    claimReason = "owner-gone"
	claimPending claimReason = "pending"
	claimReturn  claimReason = "return"
	claimWaiting claimReason = "waiting"
)

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

// beginOwnership completes what a crash left out, folds control, brings the
// session in line and opens the lane when something waits. The caller holds
// it.op.
func (e *Engine) beginOwnership(ctx context.Context, it *Item, entry registry.Entry) {
	e.stopLane(it, ErrNotOwner) // of an ownership that was lost a moment ago
	it.own(entry)
	var last *record.Outcome
	if n := len(entry.Record.Recent); n > 0 {
		last = &entry.Record.Recent[n-1]
	}
	it.mu.Lock()
	it.owes = last
	it.mu.Unlock()
	if err := e.payOwed(ctx, it); err != nil {
		e.log.Warn().Err(err).Stringer("work_item", it.Ref).Msg("the last outcome is completed before the next event")
	}
	if err := e.foldOnly(ctx, it); err != nil {
		e.log.Warn().Err(err).Stringer("work_item", it.Ref).Msg("control is folded before the next event")
	}
	e.handler.Settle(ctx, it)
	rec, owned := it.Record()
	if !owned {
		return
	}
	if rec.Want != record.Run {
		e.giveRoom(it)
	}
	if seq, err := e.reader.LastSeq(ctx, it.Ref); err != nil || seq > rec.Floor {
		e.openLane(ctx, it)
		return
	}
	e.giveRoom(it)
	e.background(func() { e.afterWork(it) })
}

// payOwed completes the last outcome of the owner before, once.
func (e *Engine) payOwed(ctx context.Context, it *Item) error {
	it.mu.Lock()
	owes := it.owes
	it.mu.Unlock()
	if owes == nil {
		return nil
	}
	if err := e.handler.Complete(ctx, it.Ref, *owes); err != nil {
		return fmt.Errorf("complete %s of %s: %w", owes.EventID, it.Ref, err)
	}
	it.mu.Lock()
	it.owes = nil
	it.mu.Unlock()
	return nil
}

// adopt takes up ownership of a record that names this worker already: after a
// restart, a lost lease, or a claim whose answer was lost. An item that is
// another's has its leftovers here ended.
func (e *Engine) adopt(ctx context.Context, it *Item) {
	it.op.Lock()
	defer it.op.Unlock()
	for ctx.Err() == nil && e.lease.Valid() {
		if it.owner() {
			return
		}
		if e.stopping.Load() {
			return
		}
		cur, err := e.reg.Get(ctx, it.Ref)
		if errors.Is(err, registry.ErrUnreadable) {
			e.log.Error().Err(err).Msg("adopt: the record cannot be read")
			return
		}
		if err != nil {
			pause(ctx, 100*time.Millisecond)
			continue
		}
		if cur.Record.Owner != e.cfg.Worker {
			e.handler.Leftover(ctx, cur.Record)
			return
		}
		// Writing it again fences our own late writes from before.
		rev, err := e.reg.Put(ctx, cur.Record, cur.Revision)
		if err != nil {
			pause(ctx, minWait)
			continue
		}
		e.beginOwnership(ctx, it, registry.Entry{Record: cur.Record, Revision: rev})
		return
	}
}

// lost lets go of an item that another took.
func (e *Engine) lost(it *Item, rec record.Record) {
	it.op.Lock()
	defer it.op.Unlock()
	if it.owner() {
		return
	}
	e.stopLane(it, ErrNotOwner)
	e.giveRoom(it)
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
	if e.letItemGo(ctx, it, why) {
		// Something may have come since; this may claim the item, and so it
		// needs the lock that was held until now.
		e.markWaiting(ctx, it)
	}
}

// letItemGo is release under the item's lock. Look says that what came last has
// to be looked at once more.
func (e *Engine) letItemGo(ctx context.Context, it *Item, why releaseReason) (look bool) {
	it.op.Lock()
	defer it.op.Unlock()
	if !it.owner() {
		return false
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
		return false
	}
	it.disown()
	e.logOwner(it, e.cfg.Worker, "", string(why))
	if waits {
		e.announceWaiting(it, waitReason(why))
	}
	return !waits
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
func (e *Engine) markWaiting(ctx context.Context, it *Item) {
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
			return
		}
		if !e.needsRoom(r) {
			if owned, _ := e.claim(ctx, it, claimPending); owned {
				return // only drops, or our own session: nobody need wait
			}
		}
		r.Wait("", time.Now().UTC())
		if _, err := e.reg.Put(ctx, r, cur.Revision); err == nil {
			e.announceWaiting(it, "")
			return
		}
	}
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
			logkey.Actor: f.Actor,
		}})
	}
	return changed
}

// afterControl follows a change of what the item wants: the session, then a
// backoff that was cut short, then an item with nothing left to do.
func (e *Engine) afterControl(it *Item) {
	e.handler.Settle(e.runCtx, it)
	e.hurry(it)
	e.afterWork(it)
}

// hurry hands out a message that was put back with a delay: it would sit in the
// server until that is over, and a new lane starts with it. While the message is
// still being handled, the lane does the same right after it.
func (e *Engine) hurry(it *Item) {
	it.op.Lock()
	defer it.op.Unlock()
	l := it.lane
	if l == nil || !it.owner() {
		return
	}
	l.hurry.Store(true)
	if rec, _ := it.Record(); rec.Started == nil || !rec.Started.NotBefore.IsZero() && !rec.Want.Ended() {
		l.hurry.Store(false)
		return
	}
	if !l.busy.Load() {
		e.stopLane(it, ErrControl)
		e.openLane(e.runCtx, it)
	}
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
