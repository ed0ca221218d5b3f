package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
)

// purgeEvery is how often finished events are looked for.
const purgeEvery = time.Hour

// claimLoop gives waiting items, oldest first, to this worker while it has
// room: when one is announced, when room appears, and on a timer.
func (e *Engine) claimLoop() {
	for {
		t := time.NewTimer(e.lease.TTL())
		select {
		case <-e.pullCtx.Done():
			t.Stop()
			return
		case <-e.claimNow:
			t.Stop()
			if !e.room() {
				continue // what needs none can wait for the timer
			}
		case <-t.C:
		}
		e.claimOldest(e.pullCtx)
	}
}

// list reads all records that can be read.
func (e *Engine) list(ctx context.Context) ([]registry.Entry, error) {
	entries, err := e.reg.List(ctx)
	if errors.Is(err, registry.ErrUnreadable) {
		e.log.Error().Err(err).Msg("these items wait for a program that can read their records")
		err = nil
	}
	return entries, err
}

func (e *Engine) claimOldest(ctx context.Context) {
	if !e.lease.Valid() || e.stopping.Load() {
		return
	}
	entries, err := e.list(ctx)
	if err != nil {
		e.log.Warn().Err(err).Msg("waiting items could not be listed; the timer tries again")
		return
	}
	room := e.room()
	entries = slices.DeleteFunc(entries, func(en registry.Entry) bool {
		r := en.Record
		return r.Owner != "" || r.State != record.StateWaiting || r.Want == record.Paused || !room && e.needsRoom(r)
	})
	slices.SortFunc(entries, func(a, b registry.Entry) int { return a.Record.Since.Compare(b.Record.Since) })
	for _, en := range entries {
		if ctx.Err() != nil {
			return
		}
		if e.needsRoom(en.Record) && !e.room() {
			continue
		}
		e.claim(ctx, e.item(en.Record.WorkItem), claimWaiting)
	}
}

// watchLeases sweeps as soon as a lease ends.
func (e *Engine) watchLeases() {
	for e.pullCtx.Err() == nil {
		err := e.reg.WatchLeases(e.pullCtx, func() { kick(e.sweepNow) })
		if e.pullCtx.Err() == nil {
			e.log.Debug().Err(err).Msg("the watch on leases begins again")
			pause(e.pullCtx, 500*time.Millisecond)
		}
	}
}

// sweepLoop compares every item's last sequence with its floor, on lease
// expiry and on a timer, where no bell may be left to tell of it.
func (e *Engine) sweepLoop() {
	for {
		e.sweep(e.pullCtx)
		t := time.NewTimer(e.lease.TTL() + time.Second)
		select {
		case <-e.pullCtx.Done():
			t.Stop()
			return
		case <-e.sweepNow:
			t.Stop()
		case <-t.C:
		}
	}
}

// sweep moves ownership; it never respawns anything: the next event does.
func (e *Engine) sweep(ctx context.Context) {
	if !e.lease.Valid() || e.stopping.Load() {
		return
	}
	entries, err := e.list(ctx)
	if err != nil {
		e.log.Warn().Err(err).Msg("the sweep is tried again")
		return
	}
	gone := map[string]bool{}
	for _, en := range entries {
		if e.stopping.Load() || !e.lease.Valid() || ctx.Err() != nil {
			return
		}
		r := en.Record
		it := e.item(r.WorkItem)
		switch r.Owner {
		case e.cfg.Worker:
			e.sweepOwn(ctx, it)
		case "":
			if r.State != record.StateWaiting {
				e.markWaiting(ctx, it)
			}
		default:
			g, known := gone[r.Owner]
			if !known {
				g = e.mayTake(ctx, r.Owner)
				gone[r.Owner] = g
			}
			if g {
				e.sweepGone(ctx, it, r.Owner)
			}
		}
	}
}

// sweepOwn looks after an item that names this worker.
func (e *Engine) sweepOwn(ctx context.Context, it *Item) {
	if !it.owner() {
		e.adopt(ctx, it)
		return
	}
	it.op.Lock()
	if rec, owned := it.Record(); owned && it.lane == nil {
		if last, err := e.reader.LastSeq(ctx, it.Ref); err == nil && last > rec.Floor {
			e.openLane(ctx, it)
		}
	}
	it.op.Unlock()
	rec, owned := it.Record()
	if last, err := e.reader.LastControlSeq(ctx, it.Ref); owned && err == nil && last > rec.ControlSeq {
		if err := e.fold(ctx, it); err != nil {
			e.log.Warn().Err(err).Msg("control is folded before the next event")
		}
	}
}

// sweepGone takes an item from an owner that is proven gone, or, without room,
// leaves it unowned with host and incarnation kept, so that its host may take it
// back.
func (e *Engine) sweepGone(ctx context.Context, it *Item, owner string) {
	if _, full := e.claim(ctx, it, claimGone); full {
		e.leaveUnowned(ctx, it, owner)
	}
}

// leaveUnowned takes an item from an owner that is proven gone, for nobody.
func (e *Engine) leaveUnowned(ctx context.Context, it *Item, owner string) {
	cur, err := e.reg.Get(ctx, it.Ref)
	if err != nil || cur.Record.Owner != owner || !e.mayTake(ctx, owner) {
		return
	}
	r := cur.Record
	from := r.Owner
	r.Owner = ""
	if r.Session != nil && r.State != record.StateClosed {
		r.Set(record.StateLost, r.Session.Host, time.Now().UTC())
	}
	last, err := e.reader.LastSeq(ctx, it.Ref)
	waits := err == nil && last > r.Floor
	if waits {
		r.Wait(record.ReasonNoRoom, time.Now().UTC())
	}
	if _, err := e.reg.Put(ctx, r, cur.Revision); err != nil {
		return
	}
	e.logOwner(it, from, "", "owner-gone, no room here")
	if waits {
		e.announceWaiting(it, record.ReasonNoRoom)
	}
}

// idleLoop closes lanes with nothing to do, so that cost follows the items that
// have something to do. The owner keeps the item; a bell opens the lane again.
func (e *Engine) idleLoop() {
	for pause(e.pullCtx, e.cfg.IdleAfter/4) {
		for _, it := range e.all() {
			it.mu.Lock()
			l := it.lane
			it.mu.Unlock()
			if l == nil || l.busy.Load() || !e.lease.Valid() ||
				time.Since(time.Unix(0, it.lastWork.Load())) < e.cfg.IdleAfter {
				continue
			}
			e.closeIdle(e.runCtx, it)
		}
	}
}

// closeIdle stops the pull, makes sure that nothing is pending, deletes the
// lane and then looks once more for what came in between.
func (e *Engine) closeIdle(ctx context.Context, it *Item) {
	it.op.Lock()
	defer it.op.Unlock()
	rec, owned := it.Record()
	if !owned || it.lane == nil || e.stopping.Load() || rec.Started != nil {
		return // a message that was put back with a delay is not done
	}
	e.stopLane(it, ErrStopping)
	e.giveRoom(it)
	cctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := e.js.Consumer(cctx, EventsStream, it.Ref.LaneName())
	if err != nil {
		e.openLane(ctx, it)
		return
	}
	if info := c.CachedInfo(); info.NumPending > 0 || info.NumAckPending > 0 || !e.lease.Valid() {
		e.openLane(ctx, it)
		return
	}
	if err := e.deleteLane(cctx, it); err != nil {
		e.openLane(ctx, it)
		return
	}
	rec, _ = it.Record()
	if last, err := e.reader.LastSeq(ctx, it.Ref); err != nil || last > rec.Floor {
		e.openLane(ctx, it)
	}
}

// purgeLoop removes from the stream what has had its outcome for long enough,
// else a stream full of finished events would refuse new ones.
func (e *Engine) purgeLoop() {
	for pause(e.pullCtx, min(purgeEvery, e.cfg.PurgeAfter)) {
		if !e.lease.Valid() {
			continue
		}
		entries, err := e.list(e.pullCtx)
		if err != nil {
			continue
		}
		for _, en := range entries {
			r := en.Record
			if r.Owner != e.cfg.Worker && r.Owner != "" {
				continue
			}
			if err := e.purge(e.pullCtx, r); err != nil {
				e.log.Warn().Err(err).Msg("finished events stay a while longer")
			}
		}
	}
}

func (e *Engine) purge(ctx context.Context, r record.Record) error {
	before := time.Now().Add(-e.cfg.PurgeAfter)
	var upTo uint64
	for _, o := range r.Recent {
		if o.At.Before(before) {
			upTo = max(upTo, o.Seq)
		}
	}
	if upTo == 0 {
		return nil
	}
	if err := e.reader.purge(ctx, r.WorkItem.EventsSubject(), upTo+1); err != nil {
		return err
	}
	if r.ControlSeq != 0 {
		return e.reader.purge(ctx, r.WorkItem.ControlSubject(), min(r.ControlSeq, upTo)+1)
	}
	return nil
}
