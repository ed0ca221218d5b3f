package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/event"
	"loopfleet/pkg/fault"
	"loopfleet/pkg/record"
	"loopfleet/streams"
)

// fetchWait is how long one pull stays open.
const fetchWait = 30 * time.Second

// Message is one event at the head of a lane.
type Message struct {
	Event event.Event
	Seq   uint64
	// Published is when the stream stored it.
	Published time.Time
	// Delivered counts how often the server handed it out.
	Delivered uint64
	// Err says why the message could not be decoded; Event then holds only what
	// its headers and subject tell.
	Err error
}

// lane is the open consumer of an item this worker owns.
type lane struct {
	ctx      context.Context //nolint:containedctx // the lane's life
	cancel   context.CancelCauseFunc
	done     chan struct{}
	busy     atomic.Bool
	hurry    atomic.Bool        // look again at a message put back with a delay
	consumer jetstream.Consumer // used by its loop only
	anew     bool               // the consumer that is found is deleted first
}

// openLane starts to pull the item's events from the floor. A consumer that is
// found is deleted first: a former owner may still have a pull open on it, and
// what a closed pull of our own was handed would come again only after AckWait.
// The caller holds it.op and the item is owned.
func (e *Engine) openLane(ctx context.Context, it *Item) {
	if it.lane != nil || e.stopping.Load() {
		return
	}
	l := &lane{done: make(chan struct{}), anew: true}
	l.ctx, l.cancel = context.WithCancelCause(e.runCtx)
	if err := e.bindLane(ctx, it, l); err != nil {
		e.log.Warn().Err(err).Msg("opening a lane is tried again")
	}
	it.lastWork.Store(time.Now().UnixNano())
	it.mu.Lock()
	it.lane = l
	it.mu.Unlock()
	go e.laneLoop(it, l) //nolint:contextcheck // ends with the lane's own context
}

// stopLane ends the pull and waits for the event under way to be left alone. The
// caller holds it.op.
func (e *Engine) stopLane(it *Item, cause error) {
	l := it.lane
	if l == nil {
		return
	}
	l.cancel(cause)
	<-l.done // the handler returns soon after its context has ended
	it.mu.Lock()
	it.lane = nil
	it.mu.Unlock()
}

// bindLane makes, or finds, the item's consumer.
func (e *Engine) bindLane(ctx context.Context, it *Item, l *lane) error {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	name := it.Ref.LaneName()
	if l.anew {
		if err := e.deleteLane(ctx, it); err != nil {
			return err
		}
	}
	c, err := e.js.Consumer(ctx, EventsStream, name)
	switch {
	case err == nil:
		l.consumer, l.anew = c, false
		return nil
	case !errors.Is(err, jetstream.ErrConsumerNotFound):
		return fmt.Errorf("open lane of %s: %w", it.Ref, err)
	}
	rec, owned := it.Record()
	if !owned {
		return fmt.Errorf("open lane of %s: %w", it.Ref, ErrNotOwner)
	}
	cfg := streams.Lane(e.cfg.Replicas)
	cfg.Durable, cfg.FilterSubject = name, it.Ref.EventsSubject()
	cfg.Description = it.Ref.String()
	cfg.Metadata = map[string]string{"work_item": it.Ref.String()}
	cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, rec.Floor+1
	cfg.AckWait = e.cfg.AckWait
	cfg.MemoryStorage = e.cfg.Memory
	if c, err = e.js.CreateConsumer(ctx, EventsStream, cfg); err != nil {
		return fmt.Errorf("create lane of %s: %w", it.Ref, err)
	}
	l.consumer, l.anew = c, false
	return nil
}

func (e *Engine) deleteLane(ctx context.Context, it *Item) error {
	err := e.js.DeleteConsumer(ctx, EventsStream, it.Ref.LaneName())
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("delete lane of %s: %w", it.Ref, err)
	}
	return nil
}

// laneLoop pulls one message at a time until the lane is closed.
func (e *Engine) laneLoop(it *Item, l *lane) {
	defer close(l.done)
	for l.ctx.Err() == nil {
		if !e.lease.Valid() {
			pause(l.ctx, 50*time.Millisecond)
			continue
		}
		if l.consumer == nil {
			if err := e.bindLane(l.ctx, it, l); err != nil {
				pause(l.ctx, 100*time.Millisecond)
				continue
			}
		}
		if err := e.pullOne(it, l); err != nil && l.ctx.Err() == nil {
			e.log.Debug().Err(err).Stringer("work_item", it.Ref).Msg("lane is bound again")
			l.consumer = nil // deleted under us, or the server is away
			pause(l.ctx, 100*time.Millisecond)
		}
	}
}

// pullOne waits for one message and runs it.
func (e *Engine) pullOne(it *Item, l *lane) error {
	ctx, cancel := context.WithTimeout(l.ctx, fetchWait)
	defer cancel()
	batch, err := l.consumer.Fetch(1, jetstream.FetchContext(ctx))
	if err != nil {
		return err
	}
	for m := range batch.Messages() {
		l.busy.Store(true)
		e.runMessage(it, l, m)
		it.lastWork.Store(time.Now().UnixNano())
		l.busy.Store(false)
		if l.hurry.Swap(false) {
			e.background(func() { e.hurry(it) })
		}
	}
	err = batch.Error()
	if errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// runMessage takes one message through guard, control and handler, and does
// with it what the verdict says.
func (e *Engine) runMessage(it *Item, l *lane, msg jetstream.Msg) {
	m, err := decodeMessage(msg, it)
	if err != nil {
		e.log.Error().Err(err).Stringer("work_item", it.Ref).Msg("a message without metadata is put back")
		_ = msg.Nak()
		return
	}
	stopKeeping := e.keepInProgress(msg)
	v := e.judge(l.ctx, it, m)
	stopKeeping()
	e.giveRoom(it)
	if v.kind != verdictAck && !it.Owns() {
		v = Back
	}
	switch v.kind {
	case verdictAck:
		fault.Pass(l.ctx, fault.LaneAck)
		if it.Owns() {
			_ = msg.Ack()
		}
		e.background(func() { e.afterWork(it) })
	case verdictLater:
		_ = msg.NakWithDelay(v.delay)
	case verdictNoRoom:
		_ = msg.Nak()
		l.cancel(ErrNotOwner) // take no further message; release closes the lane
		e.background(func() { e.release(e.runCtx, it, releaseNoRoom) })
	case verdictBack:
		_ = msg.Nak()
		pause(l.ctx, 50*time.Millisecond)
	}
}

// judge decides about one message: already done, or for the handler.
func (e *Engine) judge(ctx context.Context, it *Item, m *Message) Verdict {
	rec, owned := it.Record()
	if !owned || !e.lease.Valid() || ctx.Err() != nil {
		return Back
	}
	if err := e.payOwed(ctx, it); err != nil {
		e.log.Warn().Err(err).Msg("completing an outcome is tried again")
		return Back
	}
	if m.Seq <= rec.Floor {
		for _, o := range rec.Recent {
			if o.Seq == m.Seq {
				if err := e.handler.Complete(ctx, it.Ref, o); err != nil {
					e.log.Warn().Err(err).Msg("completing an outcome is tried again")
					return Back
				}
			}
		}
		return Ack
	}
	if err := e.fold(ctx, it); err != nil {
		e.log.Warn().Err(err).Stringer("work_item", it.Ref).Msg("control could not be read; the event waits")
		return Back
	}
	if rec, _ = it.Record(); rec.Want != record.Run {
		e.giveRoom(it) // it is held or dropped
	}
	return e.guarded(ctx, it, m)
}

// guarded calls the handler; a panic there is a bug, costs this event its turn
// and nothing else.
func (e *Engine) guarded(ctx context.Context, it *Item, m *Message) (v Verdict) {
	defer func() {
		if p := recover(); p != nil {
			e.log.Error().Interface("panic", p).Bytes("stack", debug.Stack()).Stringer("work_item", it.Ref).
				Str("event_id", m.Event.ID).Msg("the handler panicked: please report this")
			v = Later(time.Second)
		}
	}()
	return e.handler.Handle(ctx, it, m)
}

// keepInProgress holds the message while its event is handled, for hours if
// need be.
func (e *Engine) keepInProgress(msg jetstream.Msg) (stop func()) {
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(e.cfg.AckWait / 3)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				_ = msg.InProgress()
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

func decodeMessage(msg jetstream.Msg, it *Item) (*Message, error) {
	md, err := msg.Metadata()
	if err != nil {
		return nil, err
	}
	m := &Message{Seq: md.Sequence.Stream, Published: md.Timestamp, Delivered: md.NumDelivered}
	m.Event, m.Err = event.Decode(msg.Data())
	if m.Err == nil && m.Event.WorkItem != it.Ref {
		m.Err = fmt.Errorf("the message names %s", m.Event.WorkItem)
	}
	if m.Err != nil {
		id := msg.Headers().Get(event.HeaderID)
		if !event.ValidID(id) {
			id = fmt.Sprintf("undecodable-%d", m.Seq)
		}
		m.Event = event.Event{ID: id, WorkItem: it.Ref, At: md.Timestamp}
	}
	return m, nil
}
