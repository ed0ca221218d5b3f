package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/workitem"
)

// Item is one work item in this worker: the record as this worker last wrote or
// read it, and the locks that keep ownership, record and session in step.
//
// Lock order: op, then act, then mu.
type Item struct {
	Ref    workitem.Ref
	engine *Engine

	// op makes open, close, claim, adopt and release of the item serial.
	op   sync.Mutex
	lane *lane // guarded by op for changes, by mu for looks

	// act is held by whoever touches the session.
	act sync.Mutex

	mu        sync.Mutex
	entry     registry.Entry
	owned     bool
	cancelAct context.CancelCauseFunc

	// rec serialises compare-and-set loops, so that mu is never held over a
	// request to the server.
	rec sync.Mutex

	wake     chan struct{}
	lastWork atomic.Int64
}

// Record returns a copy of the record as this worker knows it, and whether this
// worker owns the item.
func (it *Item) Record() (record.Record, bool) {
	it.mu.Lock()
	defer it.mu.Unlock()
	return it.entry.Record.Clone(), it.owned
}

// Woken is signalled when something changed that a held event may wait for.
func (it *Item) Woken() <-chan struct{} { return it.wake }

func (it *Item) own(e registry.Entry) {
	it.mu.Lock()
	it.entry, it.owned = e, true
	it.mu.Unlock()
}

func (it *Item) disown() {
	it.mu.Lock()
	it.owned = false
	it.entry = registry.Entry{}
	it.mu.Unlock()
}

func (it *Item) owner() bool {
	it.mu.Lock()
	defer it.mu.Unlock()
	return it.owned
}

// Update changes the record by compare-and-set: change is applied to the newest
// record this worker knows and, after a lost race, again to what the other
// wrote. It returns false to write nothing. The error wraps ErrNotOwner when
// the item belongs to another by now.
//
// Change must depend on nothing but its argument and may run more than once.
func (it *Item) Update(ctx context.Context, change func(*record.Record) bool) (record.Record, error) {
	it.rec.Lock()
	defer it.rec.Unlock()
	e := it.engine
	for {
		it.mu.Lock()
		cur, owned := it.entry, it.owned
		it.mu.Unlock()
		if !owned {
			return record.Record{}, fmt.Errorf("%s: %w", it.Ref, ErrNotOwner)
		}
		next := cur.Record.Clone()
		if !change(&next) {
			return next, nil
		}
		err := it.put(ctx, next, cur.Revision)
		switch {
		case err == nil:
			return next.Clone(), nil
		case errors.Is(err, ErrNotOwner):
			return record.Record{}, err
		case !e.lease.Valid() || ctx.Err() != nil:
			return record.Record{}, err
		case !errors.Is(err, registry.ErrConflict):
			e.log.Warn().Err(err).Msg("writing a record is tried again")
		}
		pause(ctx, 30*time.Millisecond)
	}
}

// put is one compare-and-set. After any failure it reads what is there: an
// answer that was lost may have been a yes.
func (it *Item) put(ctx context.Context, next record.Record, revision uint64) error {
	e := it.engine
	rev, err := e.reg.Put(ctx, next, revision)
	if err == nil {
		it.mu.Lock()
		it.entry = registry.Entry{Record: next, Revision: rev}
		it.mu.Unlock()
		return nil
	}
	now, rerr := e.reg.Get(ctx, it.Ref)
	if rerr != nil {
		return err
	}
	if now.Record.Owner != e.cfg.Worker {
		it.mu.Lock()
		it.owned = false
		it.mu.Unlock()
		e.background(func() { e.lost(it, now.Record) })
		return fmt.Errorf("%s: %w: %s has it", it.Ref, ErrNotOwner, ownerName(now.Record.Owner))
	}
	it.mu.Lock()
	it.entry = now
	it.mu.Unlock()
	if now.Revision > revision && same(now.Record, next) {
		return nil
	}
	return err
}

func same(a, b record.Record) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

func ownerName(id string) string {
	if id == "" {
		return "nobody"
	}
	return id
}

// Act runs fn with the item's session to itself. The context that fn gets ends
// with cause ErrControl when a close or stop is folded meanwhile, so fn must
// look at the record after it began and before it does anything.
func (it *Item) Act(ctx context.Context, fn func(ctx context.Context) error) error {
	it.act.Lock()
	defer it.act.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	it.mu.Lock()
	it.cancelAct = cancel
	it.mu.Unlock()
	defer func() {
		it.mu.Lock()
		it.cancelAct = nil
		it.mu.Unlock()
	}()
	return fn(ctx)
}

// interrupt ends what Act runs, if it can be ended.
func (it *Item) interrupt() {
	it.mu.Lock()
	defer it.mu.Unlock()
	if it.cancelAct != nil {
		it.cancelAct(ErrControl)
	}
}

// Owns reports whether this worker owns the item and its lease surely holds.
func (it *Item) Owns() bool { return it.owner() && it.engine.lease.Valid() }
