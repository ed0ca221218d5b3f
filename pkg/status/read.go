package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/workitem"
)

// idle is how long a read waits before it asks whether anything is left: what
// it waits for may have been purged meanwhile.
const idle = time.Second

// fromStream finds the messages by their headers: those of the id, and those of
// what its GUID brought.
func (f *finder) fromStream(ctx context.Context) error {
	ids := f.eventIDs()
	cons, err := f.deps.JS.OrderedConsumer(ctx, queue.EventsStream, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		return fmt.Errorf("read stream %s: %w", queue.EventsStream, err)
	}
	info, err := cons.Info(ctx)
	if err != nil {
		return fmt.Errorf("read stream %s: %w", queue.EventsStream, err)
	}
	if info.NumPending == 0 && info.Delivered.Stream == 0 {
		return nil
	}
	it, err := cons.Messages()
	if err != nil {
		return fmt.Errorf("read stream %s: %w", queue.EventsStream, err)
	}
	defer it.Stop()
	for {
		msg, err := next(ctx, it)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			info, err := cons.Info(ctx)
			if err != nil {
				return fmt.Errorf("read stream %s: %w", queue.EventsStream, err)
			}
			if info.NumPending == 0 {
				return nil
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("read stream %s: %w", queue.EventsStream, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("read stream %s: %w", queue.EventsStream, err)
		}
		f.message(ids, msg, meta.Sequence.Stream)
		if meta.NumPending == 0 {
			return nil
		}
	}
}

func next(ctx context.Context, it jetstream.MessagesContext) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, idle)
	defer cancel()
	return it.Next(jetstream.NextContext(ctx))
}

// message adds a message if it is asked for. What anybody else published there
// has no item or no event id, and is passed over.
func (f *finder) message(ids []string, msg jetstream.Msg, seq uint64) {
	h := msg.Headers()
	id, guid := h.Get(event.HeaderID), h.Get(event.HeaderDelivery)
	if id == "" || guid != f.id && !slices.Contains(ids, id) {
		return
	}
	item, err := workitem.ParseSubject(msg.Subject())
	if err != nil || guid != f.id && !f.concerns(ids, id, item) {
		return
	}
	r := f.row(id, item)
	r.guid(guid)
	g, err := strconv.Atoi(h.Get(event.HeaderGeneration))
	if err != nil {
		g = 0
	}
	if g >= r.latest {
		r.latest, r.stored, r.seq = g, true, seq
	}
	r.control = r.control || event.Kind(h.Get(event.HeaderKind)).Control()
}

// fromLog finds the GUIDs of an event, and what a GUID brought, from the lines
// that the ingress writes.
func (f *finder) fromLog(ctx context.Context) error {
	read := func(q eventlog.Query) error {
		return eventlog.Read(ctx, f.deps.JS, q, func(l eventlog.Line) error {
			f.line(l)
			return nil
		})
	}
	if event.ValidID(f.id) { // as a GUID is, too
		if err := read(eventlog.Query{TypeGlob: "routing.*", EventID: f.id}); err != nil {
			return err
		}
		for k := range f.rows {
			if k.eventID == f.id {
				return nil
			}
		}
	}
	if err := read(eventlog.Query{TypeGlob: "routing.*", Delivery: f.id}); err != nil {
		return err
	}
	if len(f.rows) > 0 || f.drop != nil {
		return nil
	}
	return read(eventlog.Query{TypeGlob: string(event.WebhookRejected), Delivery: f.id})
}

func (f *finder) line(l eventlog.Line) {
	switch {
	case l.Type == event.WebhookRejected:
		f.rejected = l.Reason()
	case l.EventID != "" && !l.WorkItem.Zero() && (l.Type == event.RoutingRouted || l.Reason() == duplicate):
		r := f.row(l.EventID, l.WorkItem)
		r.guid(l.Delivery)
	case l.Type == event.RoutingDropped && l.Delivery == f.id:
		f.drop = &Delivery{
			EventID: l.EventID, WorkItem: l.WorkItem, Status: Dropped, Reason: l.Reason(),
			LastError: text(l, logkey.Error), DeliveryIDs: []string{l.Delivery},
		}
	}
}

func text(l eventlog.Line, field string) string {
	s, ok := l.Fields[field].(string)
	if !ok {
		return ""
	}
	return s
}

// duplicate is the reason on the ingress's line about a delivery that brought an
// event which was there already.
const duplicate = "duplicate"
