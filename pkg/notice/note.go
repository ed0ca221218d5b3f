package notice

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/deadletter"
	"loopfleet/pkg/event"
	"loopfleet/pkg/workitem"
	"loopfleet/streams"
)

// Prefix begins the subjects of notes.
const Prefix = "loop.notice."

// Kind is what a note is about.
type Kind string

// Paused says that the item got too many prompts and waits for a person.
const Paused Kind = "paused"

// Note is something to tell a ticket that is no dead letter.
type Note struct {
	// ID is an event's id, and makes the note one of its kind: the same is told
	// once.
	ID       string       `json:"id"`
	Kind     Kind         `json:"kind"`
	WorkItem workitem.Ref `json:"work_item"`
	// Prompts is how many the item got within the hour, Limit how many it may.
	Prompts int       `json:"prompts,omitempty"`
	Limit   int       `json:"limit,omitempty"`
	At      time.Time `json:"at"`
}

// Publisher is the part of jetstream.JetStream that Send needs.
type Publisher interface {
	PublishMsg(ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error)
}

// Send puts a note into the outbox. Sending it again does nothing.
func Send(ctx context.Context, js Publisher, n Note) error {
	b, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode notice %s: %w", n.ID, err)
	}
	m := nats.NewMsg(Prefix + n.WorkItem.Key())
	m.Data = b
	id := "notice." + string(n.Kind) + "." + n.ID + "." + n.WorkItem.Key()
	if _, err := js.PublishMsg(ctx, m, jetstream.WithMsgID(id), jetstream.WithExpectStream(streams.Dead)); err != nil {
		return fmt.Errorf("send notice %s for %s: %w", n.ID, n.WorkItem, err)
	}
	return nil
}

// telling is one notice on its way.
type telling struct {
	item    workitem.Ref
	eventID string
	// key tells notices of an item apart.
	key string
	at  time.Time
	// body is without its markers.
	body   string
	fields map[string]any
}

// marker is the hidden line by which the notice is found again.
func (t *telling) marker() string { return "<!-- loopfleet notice " + t.key + " -->" }

// text is what is posted. The markers are lines of their own.
func (t *telling) text() string { return t.body + "\n\n" + event.Marker + "\n" + t.marker() + "\n" }

// decode reads a message of the outbox.
func decode(subject string, data []byte) (telling, error) {
	if len(subject) > len(Prefix) && subject[:len(Prefix)] == Prefix {
		var n Note
		if err := json.Unmarshal(data, &n); err != nil {
			return telling{}, fmt.Errorf("decode notice: %w", err)
		}
		if !event.ValidID(n.ID) || n.WorkItem.Zero() || n.Kind != Paused {
			return telling{}, fmt.Errorf("decode notice: %q of kind %q for %q is none that is known", n.ID, n.Kind, n.WorkItem)
		}
		return telling{
			item: n.WorkItem, eventID: n.ID, key: n.ID + " " + string(n.Kind), at: n.At, body: pausedBody(n),
			fields: map[string]any{"notice": string(n.Kind), "prompts": n.Prompts},
		}, nil
	}
	l, err := deadletter.Decode(data)
	if err != nil {
		return telling{}, err
	}
	if !event.ValidID(l.Event.ID) {
		return telling{}, fmt.Errorf("decode dead letter: %q is no event id", l.Event.ID)
	}
	return telling{
		item: l.Event.WorkItem, eventID: l.Event.ID, key: fmt.Sprintf("%s g%d", l.Event.ID, l.Event.Generation), at: l.At, body: deadBody(&l),
		fields: map[string]any{"notice": "dead", "generation": l.Event.Generation, "outcome": l.Reason},
	}, nil
}
