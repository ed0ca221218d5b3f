package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/event"
	"loopfleet/streams"
)

// ReasonUndecodable is the reason of a letter whose message could not be read:
// its event holds only what headers and subject told, and cannot be replayed.
const ReasonUndecodable = "undecodable"

// Letter is what LOOP_DEAD keeps of an event that was given up.
type Letter struct {
	// Event is the whole event, of the generation that was given up.
	Event event.Event `json:"event"`
	// Reason is the outcome's: attempts-spent, crash-loop, no-receipt, ...
	Reason string `json:"reason"`
	// Error is the last one. It may quote what an agent printed.
	Error string `json:"last_error"`
	// Public is Error without what an agent printed: what a ticket may show.
	Public string `json:"public_error,omitempty"`
	// Attempts counts the tries that were made and failed.
	Attempts int `json:"attempts"`
	// Seq is the event's sequence in LOOP_EVENTS.
	Seq uint64 `json:"seq"`
	// Worker gave it up.
	Worker string    `json:"worker"`
	At     time.Time `json:"at"`
}

// Keeper is the part of jetstream.JetStream that Keep needs.
type Keeper interface {
	PublishMsg(ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error)
	Stream(ctx context.Context, name string) (jetstream.Stream, error)
}

// Keep stores a letter. Storing the same generation of the event for the same
// item again does nothing: within the stream's duplicate window by the message
// id, later because the letter is found. After an error it is open whether the
// letter was stored; call it again.
func Keep(ctx context.Context, js Keeper, l Letter) error {
	ev := &l.Event
	found, err := kept(ctx, js, ev)
	if err != nil {
		return fmt.Errorf("keep dead letter of %s for %s: %w", ev.ID, ev.WorkItem, err)
	}
	if found {
		return nil
	}
	b, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encode dead letter of %s: %w", ev.ID, err)
	}
	m := nats.NewMsg(ev.WorkItem.DeadSubject())
	m.Data = b
	for k, v := range ev.Headers() {
		m.Header.Set(k, v)
	}
	if _, err := js.PublishMsg(ctx, m, jetstream.WithMsgID(ev.MessageID()), jetstream.WithExpectStream(streams.Dead)); err != nil {
		return fmt.Errorf("keep dead letter of %s for %s: %w", ev.ID, ev.WorkItem, err)
	}
	return nil
}

// kept looks for the letter among those of its item.
func kept(ctx context.Context, js Keeper, ev *event.Event) (bool, error) {
	st, err := js.Stream(ctx, streams.Dead)
	if err != nil {
		return false, err
	}
	generation := strconv.Itoa(ev.Generation)
	for seq := uint64(1); ; {
		m, err := st.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(ev.WorkItem.DeadSubject()))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return false, nil
		case err != nil:
			return false, err
		case m.Header.Get(event.HeaderID) == ev.ID && m.Header.Get(event.HeaderGeneration) == generation:
			return true, nil
		}
		seq = m.Sequence + 1
	}
}

// Decode reads a letter as Keep stored it. It does not judge the event: that of
// an undecodable message is incomplete.
func Decode(data []byte) (Letter, error) {
	var l Letter
	if err := json.Unmarshal(data, &l); err != nil {
		return Letter{}, fmt.Errorf("decode dead letter: %w", err)
	}
	if l.Event.ID == "" || l.Event.WorkItem.Zero() {
		return Letter{}, fmt.Errorf("decode dead letter: event %q of work item %q: neither may be empty", l.Event.ID, l.Event.WorkItem)
	}
	return l, nil
}
