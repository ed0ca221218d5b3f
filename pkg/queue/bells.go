package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/workitem"
)

const (
	// waitingSubject hints at a new waiting record; nobody depends on it.
	waitingSubject = "loop.waiting"
	pokePrefix     = "loop.poke."

	bellBatch   = 32
	bellWorkers = 64
	// bellTries bounds how often one bell is looked at before it goes back.
	bellTries = 40
	// bellPull is short, so that a stopped worker's open pulls die soon.
	bellPull = 2 * time.Second
)

func pokeSubject(worker string) string { return pokePrefix + workitem.Escape(worker) }

// pokeKind is what a poke is about.
type pokeKind string

const (
	pokeBell    pokeKind = "bell"
	pokeControl pokeKind = "control"
)

// pokeAnswer is what an owner says.
type pokeAnswer string

const (
	pokeOK      pokeAnswer = "ok"
	pokeNotMine pokeAnswer = "not-mine"
	pokeBusy    pokeAnswer = "busy"
)

type pokeRequest struct {
	Kind pokeKind     `json:"kind"`
	Item workitem.Ref `json:"item"`
}

// bellLoop pulls from one of the shared consumers.
func (e *Engine) bellLoop(consumer string, ring func(context.Context, jetstream.Msg)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, bellWorkers)
	var c jetstream.Consumer
	for e.pullCtx.Err() == nil {
		if !e.lease.Valid() {
			pause(e.pullCtx, 50*time.Millisecond)
			continue
		}
		if c == nil {
			var err error
			if c, err = e.js.Consumer(e.pullCtx, EventsStream, consumer); err != nil {
				c = nil
				pause(e.pullCtx, 200*time.Millisecond)
				continue
			}
		}
		if !e.pullBells(c, slots, &wg, ring) {
			c = nil
			pause(e.pullCtx, 100*time.Millisecond)
		}
	}
}

func (e *Engine) pullBells(c jetstream.Consumer, slots chan struct{}, wg *sync.WaitGroup, ring func(context.Context, jetstream.Msg)) bool {
	ctx, cancel := context.WithTimeout(e.pullCtx, bellPull)
	defer cancel()
	batch, err := c.Fetch(bellBatch, jetstream.FetchContext(ctx))
	if err != nil {
		return false
	}
	for m := range batch.Messages() {
		if e.pullCtx.Err() != nil {
			_ = m.Nak()
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ring(e.runCtx, m)
		})
	}
	err = batch.Error()
	return err == nil || errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// answer handles one bell: it tries look until it has an answer. Bells are
// never put back with a delay, as those would fill the consumer's pending limit
// and block every other item.
func (e *Engine) answer(ctx context.Context, m jetstream.Msg, look func(it *Item, seq uint64) (done bool)) {
	item, err := workitem.ParseSubject(m.Subject())
	if err != nil {
		e.log.Error().Err(err).Msg("a bell of no item is passed over")
		_ = m.Ack()
		return
	}
	md, err := m.Metadata()
	if err != nil {
		_ = m.Nak()
		return
	}
	it := e.item(item)
	for i := range bellTries {
		if i > 0 && !pause(ctx, min(time.Duration(20*i)*time.Millisecond, 250*time.Millisecond)) {
			break
		}
		if e.stopping.Load() || !e.lease.Valid() {
			break
		}
		if i > 0 && i%8 == 0 {
			_ = m.InProgress()
		}
		if look(it, md.Sequence.Stream) {
			_ = m.Ack()
			return
		}
	}
	_ = m.Nak()
}

// ring makes sure that somebody owns the item. It never decides an event.
func (e *Engine) ring(ctx context.Context, m jetstream.Msg) {
	e.answer(ctx, m, func(it *Item, seq uint64) bool {
		if it.owner() {
			return e.pokeHere(ctx, it, pokeBell) == pokeOK
		}
		cur, err := e.reg.Get(ctx, it.Ref)
		if errors.Is(err, registry.ErrUnreadable) {
			e.log.Error().Err(err).Msg("the item waits for a program that can read its record")
			return true // whose sweep compares floor and last sequence
		}
		if err != nil {
			return false
		}
		rec := cur.Record
		switch {
		case cur.Revision != 0 && seq <= rec.Floor:
			return true
		case rec.Owner == e.cfg.Worker:
			e.adopt(ctx, it)
			return false
		case rec.Owner != "":
			return e.ringOwner(ctx, it, rec.Owner)
		}
		switch owned, full := e.claim(ctx, it, claimBell); {
		case !full:
			return owned
		case rec.State == record.StateWaiting:
			return true
		}
		rec.Wait(record.ReasonNoRoom, time.Now().UTC())
		if _, err := e.reg.Put(ctx, rec, cur.Revision); err != nil {
			return false
		}
		e.announceWaiting(it, record.ReasonNoRoom)
		return true
	})
}

// ringOwner deals with a bell of an item that another worker owns.
func (e *Engine) ringOwner(ctx context.Context, it *Item, owner string) bool {
	switch e.ownerState(ctx, owner) {
	case ownerAlive:
		return e.poke(ctx, owner, it, pokeBell) == pokeOK
	case ownerRestarting, ownerGone:
		// The returning owner, or the sweep, compares floor and last sequence.
		return true
	default:
		return false
	}
}

// ringControl sees to it that control is folded by the owner, or into the
// record of an item that nobody owns.
func (e *Engine) ringControl(ctx context.Context, m jetstream.Msg) {
	e.answer(ctx, m, func(it *Item, seq uint64) bool {
		if it.owner() {
			return e.pokeHere(ctx, it, pokeControl) == pokeOK
		}
		cur, err := e.reg.Get(ctx, it.Ref)
		if err != nil {
			return false
		}
		rec := cur.Record
		switch {
		case cur.Revision != 0 && seq <= rec.ControlSeq:
			return true
		case rec.Owner == e.cfg.Worker:
			e.adopt(ctx, it)
			return false
		case rec.Owner == "":
			return e.controlUnowned(ctx, it, cur)
		}
		switch e.ownerState(ctx, rec.Owner) {
		case ownerAlive:
			return e.poke(ctx, rec.Owner, it, pokeControl) == pokeOK
		case ownerRestarting:
			return true // folded when its ownership begins again
		case ownerGone:
			if _, full := e.claim(ctx, it, claimControl); full {
				e.leaveUnowned(ctx, it, rec.Owner)
			}
		case ownerUnknown:
		}
		return false
	})
}

// controlUnowned folds the control of an item that nobody owns. Where that
// leaves something to be done on the session's machine, the worker there does it
// as the item's owner; when that worker is gone, whoever is here does what can
// be done without it.
func (e *Engine) controlUnowned(ctx context.Context, it *Item, cur registry.Entry) bool {
	msgs, err := e.reader.Controls(ctx, it.Ref, cur.Record.ControlSeq)
	if err != nil {
		return false
	}
	after := cur.Record.Clone()
	after.Fold(msgs)
	if !after.Wishes() {
		return e.foldUnowned(ctx, it, cur, msgs)
	}
	if host := hostOf(after); host != "" && host != e.cfg.Worker {
		switch e.ownerState(ctx, host) {
		case ownerAlive:
			return e.poke(ctx, host, it, pokeControl) == pokeOK
		case ownerUnknown, ownerRestarting:
			return false // it may be back in a moment, and nobody else reaches the session
		case ownerGone:
		}
	}
	// Owner for as long as it takes. Whether the control was folded then is for
	// the next look to say.
	e.claim(ctx, it, claimEnd)
	return false
}

// hostOf is the worker on whose machine the item's session is, if it has one.
func hostOf(r record.Record) string {
	if r.Session == nil {
		return ""
	}
	return r.Session.Host
}

// foldUnowned writes the fold of all the item's control; for an item without a
// record that is its tombstone. A session that runs here all the same is a
// leftover and ends with the close.
func (e *Engine) foldUnowned(ctx context.Context, it *Item, cur registry.Entry, msgs []record.Control) bool {
	rec := cur.Record
	folded := rec.Fold(msgs)
	if len(folded) == 0 {
		return true
	}
	if rec.Want.Ended() && rec.State != record.StateWaiting {
		rec.Set(record.StateClosed, rec.CloseReason, time.Now().UTC())
	}
	if _, err := e.reg.Put(ctx, rec, cur.Revision); err != nil {
		return false
	}
	e.logFolded(it, folded)
	switch {
	case rec.State != record.StateWaiting:
	case e.needsRoom(rec):
		_ = e.nc.Publish(waitingSubject, nil) // a resumed item may be claimed now
	default:
		e.claim(ctx, it, claimControl) // what waits is only to be dropped
	}
	return true
}

// poke asks an item's owner to look at it.
func (e *Engine) poke(ctx context.Context, owner string, it *Item, kind pokeKind) pokeAnswer {
	b, err := json.Marshal(pokeRequest{Kind: kind, Item: it.Ref})
	if err != nil {
		return pokeBusy
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	m, err := e.nc.RequestWithContext(ctx, pokeSubject(owner), b)
	if err != nil {
		return pokeBusy
	}
	return pokeAnswer(m.Data)
}

func (e *Engine) onPoke(m *nats.Msg) {
	answer := pokeBusy
	var req pokeRequest
	if err := json.Unmarshal(m.Data, &req); err != nil || req.Item.Zero() {
		e.log.Warn().Err(err).Msg("a poke that cannot be read is answered busy")
	} else if e.ready.Load() && !e.stopping.Load() && e.lease.Valid() {
		answer = e.pokeHere(e.runCtx, e.item(req.Item), req.Kind)
	}
	_ = m.Respond([]byte(answer))
}

// pokeHere looks at an item this worker should own.
func (e *Engine) pokeHere(ctx context.Context, it *Item, kind pokeKind) pokeAnswer {
	if !it.owner() {
		if kind == pokeControl {
			return e.pokeHost(ctx, it)
		}
		return pokeNotMine
	}
	if kind == pokeControl {
		if err := e.fold(ctx, it); err != nil {
			if errors.Is(err, ErrNotOwner) {
				return pokeNotMine
			}
			e.log.Warn().Err(err).Msg("control could not be folded yet")
			return pokeBusy
		}
		return pokeOK
	}
	kick(it.wake)
	it.mu.Lock()
	open := it.lane != nil
	it.mu.Unlock()
	if open {
		return pokeOK
	}
	it.op.Lock()
	defer it.op.Unlock()
	if !it.owner() {
		return pokeNotMine
	}
	e.openLane(ctx, it)
	return pokeOK
}

// pokeHost looks at an item that nobody owns and whose session is on this
// machine.
func (e *Engine) pokeHost(ctx context.Context, it *Item) pokeAnswer {
	cur, err := e.reg.Get(ctx, it.Ref)
	switch {
	case err != nil:
		return pokeBusy
	case cur.Record.Owner != "" || hostOf(cur.Record) != e.cfg.Worker:
		return pokeNotMine
	case e.controlUnowned(ctx, it, cur):
		return pokeOK
	default:
		return pokeBusy
	}
}

// ownerState is what the leader knows of another worker.
type ownerState int

const (
	ownerUnknown ownerState = iota
	ownerAlive
	ownerRestarting
	ownerGone
)

func (e *Engine) ownerState(ctx context.Context, owner string) ownerState {
	alive, err := e.reg.LeaseAlive(ctx, owner)
	switch {
	case err != nil:
		return ownerUnknown
	case alive:
		return ownerAlive
	}
	restarting, err := e.restarting(ctx, owner)
	switch {
	case err != nil:
		return ownerUnknown
	case restarting:
		return ownerRestarting
	default:
		return ownerGone
	}
}

func (e *Engine) restarting(ctx context.Context, owner string) (bool, error) {
	w, ok, err := e.reg.Worker(ctx, owner)
	if err != nil {
		return false, fmt.Errorf("state of worker %s: %w", owner, err)
	}
	return ok && w.State == registry.WorkerRestarting && time.Now().Before(w.Until), nil
}

// mayTake reports whether an owner is proven gone. The proof needs our own
// lease held for a full TTL: after a server outage every lease is gone at once.
func (e *Engine) mayTake(ctx context.Context, owner string) bool {
	return e.lease.HeldFull() && e.ownerState(ctx, owner) == ownerGone && e.lease.HeldFull()
}
