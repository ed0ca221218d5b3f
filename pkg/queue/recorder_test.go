package queue_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/config"
	"loopfleet/pkg/decide"
	"loopfleet/pkg/event"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/workitem"
)

func conn2js(nc *nats.Conn) (jetstream.JetStream, error) { return jetstream.New(nc) }

// recorder is a worker without sessions: it decides and records as the real one
// does, and writes into the ledger instead of a terminal.
type recorder struct {
	id     string
	engine *queue.Engine
	reg    *registry.Registry
	ledger *ledger

	// work is the side effect, when it is not just telling.
	work func(ctx context.Context, it *queue.Item, m *queue.Message) error
	// handle, when set, may take an event out of the recorder's hands.
	handle func(ctx context.Context, it *queue.Item, m *queue.Message) (queue.Verdict, bool)
	// complete, when set, comes before the recorder's own.
	complete func(o record.Outcome) error
	retryIn  time.Duration

	mu        sync.Mutex
	room      int
	live      map[workitem.Ref]bool
	reserved  map[workitem.Ref]bool
	handled   []string // ids given to Handle
	held      []string // ids that were held, with the reason
	evicted   []workitem.Ref
	leftovers []workitem.Ref
	completed []string
}

var _ queue.Handler = (*recorder)(nil)

func (h *recorder) note(list *[]string, s string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*list = append(*list, s)
}

func (h *recorder) count(list *[]string, s string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, v := range *list {
		if v == s {
			n++
		}
	}
	return n
}

func (h *recorder) hasRef(list *[]workitem.Ref, item workitem.Ref) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(*list, item)
}

func (h *recorder) hosts(item workitem.Ref) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live[item]
}

// Free is how many more sessions may start.
func (h *recorder) Free() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.room - len(h.live) - len(h.reserved)
}

func (h *recorder) grow(n int) {
	h.mu.Lock()
	h.room += n
	h.mu.Unlock()
	h.engine.Freed()
}

func (h *recorder) reserve(item workitem.Ref) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.live[item] || h.reserved[item] {
		return true
	}
	if h.room <= len(h.live)+len(h.reserved) {
		return false
	}
	h.reserved[item] = true
	return true
}

// end forgets the item's session.
func (h *recorder) end(item workitem.Ref) {
	h.mu.Lock()
	delete(h.live, item)
	delete(h.reserved, item)
	h.mu.Unlock()
	h.engine.Freed()
}

// Handle runs one event.
func (h *recorder) Handle(ctx context.Context, it *queue.Item, m *queue.Message) queue.Verdict {
	h.note(&h.handled, m.Event.ID)
	if h.handle != nil {
		if v, done := h.handle(ctx, it, m); done {
			return v
		}
	}
	if m.Err != nil {
		return h.finish(ctx, it, m, record.Outcome{Kind: record.Dead, Reason: "undecodable"})
	}
	for {
		rec, owned := it.Record()
		if !owned || ctx.Err() != nil {
			return queue.Back
		}
		if _, known := rec.Outcome(m.Event.ID, m.Event.Generation); known {
			return h.finish(ctx, it, m, record.Outcome{Kind: record.Dropped, Reason: "duplicate"})
		}
		a := decide.Event(decide.Input{
			Event: m.Event, Seq: m.Seq, Published: m.Published, Record: rec, Now: time.Now(), Routing: config.Routing{},
		})
		switch a.Do {
		case decide.Drop:
			return h.finish(ctx, it, m, record.Outcome{Kind: record.Dropped, Reason: a.Reason})
		case decide.Hold:
			h.hold(ctx, it, m, a)
		case decide.Spawn, decide.Deliver:
			if a.Do == decide.Spawn && !h.reserve(it.Ref) {
				return queue.NoRoom
			}
			if v, done := h.try(ctx, it, m); done {
				return v
			}
		}
	}
}

func (h *recorder) hold(ctx context.Context, it *queue.Item, m *queue.Message, a decide.Action) {
	h.note(&h.held, m.Event.ID+": "+a.Reason)
	wait := time.Hour
	if !a.Until.IsZero() {
		wait = time.Until(a.Until)
	}
	t := time.NewTimer(max(wait, time.Millisecond))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-it.Woken():
	case <-t.C:
	}
}

// try is one start; done is false when the event is to be decided anew.
func (h *recorder) try(ctx context.Context, it *queue.Item, m *queue.Message) (v queue.Verdict, done bool) {
	_, err := it.Update(ctx, func(r *record.Record) bool {
		r.Begin(m.Event.ID, m.Event.Generation, m.Seq)
		if m.Event.Kind.Arming() {
			r.Arm(m.Event.At)
		}
		return true
	})
	if err != nil {
		return queue.Back, true
	}
	err = it.Act(ctx, func(actx context.Context) error {
		if rec, _ := it.Record(); !it.Owns() || rec.Want != record.Run {
			return queue.ErrControl
		}
		defer h.ledger.enter(h.id, it.Ref)()
		if h.work != nil {
			if err := h.work(actx, it, m); err != nil {
				return err
			}
		}
		h.ledger.tell(telling{worker: h.id, item: it.Ref, id: m.Event.ID, seq: m.Seq, at: time.Now()})
		h.mu.Lock()
		h.live[it.Ref] = true
		delete(h.reserved, it.Ref)
		h.mu.Unlock()
		return nil
	})
	switch {
	case err == nil:
		return h.finish(ctx, it, m, record.Outcome{Kind: record.Done}), true
	case errors.Is(err, queue.ErrControl), ctx.Err() != nil:
		_, _ = it.Update(context.WithoutCancel(ctx), func(r *record.Record) bool { r.TakeBack(); return true })
		return queue.Back, ctx.Err() != nil
	default:
		due := time.Now().Add(h.retryIn).UTC()
		if _, err := it.Update(ctx, func(r *record.Record) bool { r.Fail("failed", due); return true }); err != nil {
			return queue.Back, true
		}
		return queue.Later(h.retryIn), true
	}
}

func (h *recorder) finish(ctx context.Context, it *queue.Item, m *queue.Message, o record.Outcome) queue.Verdict {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	o.EventID, o.Generation, o.Seq, o.At = m.Event.ID, m.Event.Generation, m.Seq, time.Now().UTC()
	_, err := it.Update(ctx, func(r *record.Record) bool {
		r.Finish(o)
		if o.Kind == record.Done && !r.Want.Ended() {
			r.Incarnation++
			r.Session = &record.Session{Token: "t", Host: h.id}
			r.Set(record.StateActive, "", o.At)
		}
		if o.Kind == record.Dropped && o.Reason == decide.Already {
			r.Confirm(m.Event.At)
		}
		return true
	})
	if err != nil {
		return queue.Back
	}
	if err := h.Complete(ctx, it.Ref, o); err != nil {
		return queue.Back
	}
	return queue.Ack
}

// Settle ends the session of a closed item.
func (h *recorder) Settle(ctx context.Context, it *queue.Item) {
	_ = it.Act(ctx, func(context.Context) error {
		rec, owned := it.Record()
		if !owned || !rec.Want.Ended() || rec.State == record.StateClosed {
			return nil
		}
		h.end(it.Ref)
		_, err := it.Update(ctx, func(r *record.Record) bool {
			r.Set(record.StateClosed, r.Reason, time.Now().UTC())
			return r.Want.Ended()
		})
		return err
	})
}

// Complete puts the outcome into the dedup bucket.
func (h *recorder) Complete(ctx context.Context, item workitem.Ref, o record.Outcome) error {
	h.note(&h.completed, o.EventID)
	if h.complete != nil {
		if err := h.complete(o); err != nil {
			return err
		}
	}
	_, err := h.reg.PutOutcome(ctx, item, o)
	return err
}

// Evict ends the session of an item that is handed over.
func (h *recorder) Evict(ctx context.Context, it *queue.Item) {
	h.mu.Lock()
	h.evicted = append(h.evicted, it.Ref)
	h.mu.Unlock()
	h.end(it.Ref)
	_, _ = it.Update(ctx, func(r *record.Record) bool {
		if r.Session == nil {
			return false
		}
		r.Set(record.StateSleeping, "drained", time.Now().UTC())
		return true
	})
}

// Leftover ends what is another's.
func (h *recorder) Leftover(_ context.Context, rec record.Record) {
	h.mu.Lock()
	h.leftovers = append(h.leftovers, rec.WorkItem)
	h.mu.Unlock()
	h.end(rec.WorkItem)
}

// Hosted lists the sessions here.
func (h *recorder) Hosted(context.Context) ([]workitem.Ref, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []workitem.Ref
	for item := range h.live {
		out = append(out, item)
	}
	return out, nil
}

// Describe says how much room there is.
func (h *recorder) Describe(w *registry.Worker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.Capacity = h.room
}

// The kinds that most tests need.
const (
	label   = event.Label
	comment = event.Comment
)
