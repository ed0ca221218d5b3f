package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/event"
)

// publishTimeout bounds one publish; a forge gives up on its request after 10 s.
const publishTimeout = 5 * time.Second

// ErrRefused says that the stream did not take an event: it is full, or its
// limits forbid the message. The publisher must tell its own caller.
var ErrRefused = errors.New("the stream refused the event")

// Receipt is the stream's answer to a publish.
type Receipt struct {
	Seq uint64
	// Duplicate says that this id and generation is in the stream already.
	Duplicate bool
}

// Publisher puts events into LOOP_EVENTS. It is safe for concurrent use.
type Publisher struct {
	js jetstream.JetStream
}

// NewPublisher returns a Publisher on js.
func NewPublisher(js jetstream.JetStream) *Publisher { return &Publisher{js: js} }

// Publish stores the event and returns once the stream has it. An error that
// wraps ErrRefused is the stream's own word; any other leaves it open whether
// the event was stored, and publishing it again does no harm.
func (p *Publisher) Publish(ctx context.Context, e event.Event) (Receipt, error) {
	data, err := e.Encode()
	if err != nil {
		return Receipt{}, err
	}
	m := nats.NewMsg(e.Subject())
	m.Data = data
	for k, v := range e.Headers() {
		m.Header.Set(k, v)
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	ack, err := p.js.PublishMsg(ctx, m, jetstream.WithMsgID(e.MessageID()), jetstream.WithExpectStream(EventsStream))
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api):
		return Receipt{}, fmt.Errorf("publish %s for %s: %w: %w", e.ID, e.WorkItem, ErrRefused, err)
	case err != nil:
		return Receipt{}, fmt.Errorf("publish %s for %s: %w", e.ID, e.WorkItem, err)
	}
	return Receipt{Seq: ack.Sequence, Duplicate: ack.Duplicate}, nil
}
