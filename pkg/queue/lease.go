package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/workitem"
)

// takeLease tries until it has the lease or ctx ends.
func (e *Engine) takeLease(ctx context.Context) error {
	var said error
	for {
		err := e.lease.Take(ctx)
		if err == nil {
			e.post(eventlog.Entry{Type: event.LeaseTaken})
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if said == nil || errors.Is(err, registry.ErrLeaseHeld) != errors.Is(said, registry.ErrLeaseHeld) {
			e.log.Warn().Err(err).Msg("waiting for this worker's lease")
			said = err
		}
		pause(ctx, 200*time.Millisecond)
	}
}

// leaseLoop renews the lease and is delayed by nothing else. When the lease is
// lost it lets go of everything first and only then takes it again; what it
// finds then is read anew, beside the loop.
func (e *Engine) leaseLoop() {
	wait := e.lease.TTL() / 4
	for pause(e.runCtx, wait) {
		wait = e.lease.TTL() / 4
		err := e.lease.Renew(e.runCtx)
		if err == nil || e.runCtx.Err() != nil {
			continue
		}
		if !errors.Is(err, registry.ErrLeaseLost) {
			e.log.Warn().Err(err).Dur("left", e.lease.Left()).Msg("renewing the lease is tried again")
			wait = e.lease.TTL() / 20
			continue
		}
		if e.stopping.Load() {
			continue
		}
		e.post(eventlog.Entry{Type: event.LeaseLost, Level: event.Warn, Fields: map[string]any{logkey.Error: err.Error()}})
		e.letGo()
		if e.takeLease(e.runCtx) != nil {
			return
		}
		if err := e.putState(e.runCtx, registry.WorkerRunning, time.Time{}); err != nil {
			e.log.Warn().Err(err).Msg("peers could not be told that this worker is back")
		}
		e.background(func() {
			e.returnScan(e.runCtx)
			kick(e.claimNow)
		})
	}
}

// letGo stops all lanes and forgets all ownership, without a word to the
// server. Sessions run on: they may still be ours afterwards.
func (e *Engine) letGo() {
	var wg sync.WaitGroup
	for _, it := range e.all() {
		wg.Go(func() {
			it.op.Lock()
			defer it.op.Unlock()
			e.stopLane(it, registry.ErrLeaseLost)
			it.disown()
		})
	}
	wg.Wait()
}

// returnScan takes up what names this worker, takes back what runs here and
// was left unowned, and ends what another has taken.
func (e *Engine) returnScan(ctx context.Context) {
	e.scanning.Lock()
	defer e.scanning.Unlock()
	var entries []registry.Entry
	for {
		var err error
		if entries, err = e.list(ctx); err == nil {
			break
		}
		e.log.Warn().Err(err).Msg("reading the registry is tried again")
		if !pause(ctx, 200*time.Millisecond) {
			return
		}
	}
	hosted, err := e.handler.Hosted(ctx)
	if err != nil {
		e.log.Error().Err(err).Msg("the sessions on this machine could not all be listed")
	}
	byItem := map[workitem.Ref]record.Record{}
	for _, en := range entries {
		byItem[en.Record.WorkItem] = en.Record
		if en.Record.Owner == e.cfg.Worker {
			e.adopt(ctx, e.item(en.Record.WorkItem))
		}
	}
	for _, ref := range hosted {
		rec, ok := byItem[ref]
		switch {
		case !ok:
			rec = record.New(ref)
			e.handler.Leftover(ctx, rec)
		case rec.Owner == e.cfg.Worker:
		case rec.Owner == "" && rec.Session != nil && rec.Session.Host == e.cfg.Worker && !rec.Want.Ended():
			e.claim(ctx, e.item(ref), claimReturn)
		default:
			e.adopt(ctx, e.item(ref)) // reads again, and ends the leftover
		}
	}
}
