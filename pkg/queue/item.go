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

// gate is a mutual exclusion whose waiters wait on a channel: it is held over
// requests and whole side effects, and a fake clock must not stop for those who
// wait meanwhile.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

func (g gate) Lock()   { g <- struct{}{} }
func (g gate) Unlock() { <-g }

// Item is one work item in this worker: the record as this worker last wrote or
// read it, and the locks that keep ownership, record and session in step.
//
// Lock order: op, then act, then rec, then mu.
type Item struct {
	Ref    workitem.Ref
	engine *Engine

	// op makes open, close, claim, adopt and release of the item serial.
	op   gate
	lane *lane // guarded by op for changes, by mu for looks

	// act is held by whoever touches the session.
	act gate

	// rec serialises compare-and-set loops, so that mu is never held over a
	// request to the server.
	rec gate

	mu    sync.Mutex
	entry registry.Entry
	owned bool
	// epoch counts the beginnings and ends of ownership: a write that began in
	// another epoch is not this one's.
	epoch     uint64
	cancelAct context.CancelCauseFunc
	// owes is the last outcome when a crash may have left its completion out.
	owes *record.Outcome

	wake     chan struct{}
	lastWork atomic.Int64
}

func newItem(ref workitem.Ref, e *Engine) *Item {
	return &Item{Ref: ref, engine: e, op: newGate(), act: newGate(), rec: newGate(), wake: make(chan struct{}, 1)}
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
	defer it.mu.Unlock()
	it.entry, it.owned = e, true
	it.epoch++
}

func (it *Item) disown() {
	it.mu.Lock()
	it.entry, it.owned = registry.Entry{}, false
	it.epoch++
	it.mu.Unlock()
	it.engine.giveRoom(it)
}

func (it *Item) owner() bool {
	it.mu.Lock()
	defer it.mu.Unlock()
	return it.owned
}

// Update changes the record by compare-and-set: change is applied to the newest
// record this worker knows and, after a lost race, again to what the other
// wrote. It returns false to write nothing. A write whose answer is lost is sent
// again as it was, so change is never applied twice. The error wraps ErrNotOwner
// when the item belongs to another by now; any other leaves it open whether the
// write landed.
func (it *Item) Update(ctx context.Context, change func(*record.Record) bool) (record.Record, error) {
	it.rec.Lock()
	defer it.rec.Unlock()
	for {
		it.mu.Lock()
		cur, owned, epoch := it.entry, it.owned, it.epoch
		it.mu.Unlock()
		if !owned {
			return record.Record{}, fmt.Errorf("%s: %w", it.Ref, ErrNotOwner)
		}
		next := cur.Record.Clone()
		if !change(&next) {
			return next, nil
		}
		err := it.put(ctx, next, cur.Revision, epoch)
		switch {
		case err == nil:
			it.decided(next)
			return next.Clone(), nil
		case !errors.Is(err, registry.ErrConflict):
			return record.Record{}, err
		}
	}
}

// put writes next and tries until it is known whether that landed. It reads what
// is there after every failure: an answer that was lost may have been a yes.
// ErrConflict: something else was written, and is now what this worker knows.
func (it *Item) put(ctx context.Context, next record.Record, revision, epoch uint64) error {
	e := it.engine
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		rev, err := e.reg.Put(ctx, next, revision)
		if err == nil {
			return it.wrote(registry.Entry{Record: next, Revision: rev}, epoch)
		}
		now, rerr := e.reg.Get(ctx, it.Ref)
		switch {
		case rerr != nil || now.Revision == revision: // it has not landed yet
		case same(now.Record, next):
			return it.wrote(now, epoch)
		case now.Record.Owner != e.cfg.Worker:
			it.mu.Lock()
			if it.epoch == epoch {
				it.owned = false
				it.epoch++
			}
			it.mu.Unlock()
			e.background(func() { e.lost(it, now.Record) })
			return fmt.Errorf("%s: %w: %s has it", it.Ref, ErrNotOwner, ownerName(now.Record.Owner))
		default:
			if err := it.wrote(now, epoch); err != nil {
				return err
			}
			return fmt.Errorf("%s: %w", it.Ref, registry.ErrConflict)
		}
		if !e.lease.Valid() || ctx.Err() != nil {
			return fmt.Errorf("%s: whether its record was written is not known: %w", it.Ref, err)
		}
		e.log.Warn().Err(err).Stringer("work_item", it.Ref).Msg("writing a record is tried again")
		pause(ctx, wait)
	}
}

const (
	minWait = 30 * time.Millisecond
	maxWait = 500 * time.Millisecond
)

// wrote takes up what the registry holds, unless ownership has ended since.
func (it *Item) wrote(now registry.Entry, epoch uint64) error {
	it.mu.Lock()
	defer it.mu.Unlock()
	if it.epoch != epoch {
		return fmt.Errorf("%s: %w any more", it.Ref, ErrNotOwner)
	}
	it.entry = now
	return nil
}

// decided gives back the room that the item was claimed with, once the handler
// has taken room itself (it does so before it records a start) or needs none.
func (it *Item) decided(r record.Record) {
	if r.Started != nil || r.Want != record.Run {
		it.engine.giveRoom(it)
	}
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
