package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/event"
	"loopfleet/pkg/record"
	"loopfleet/pkg/workitem"
)

// Names of the stream and of its shared consumers.
const (
	EventsStream = "LOOP_EVENTS"
	DeadStream   = "LOOP_DEAD"
	Doorbell     = "doorbell"
	ControlBell  = "control"
)

// callTimeout bounds one request to the server.
const callTimeout = 3 * time.Second

// Reader reads LOOP_EVENTS by item, from the stream's leader. It is safe for
// concurrent use.
type Reader struct {
	stream jetstream.Stream
}

// NewReader binds the stream.
func NewReader(ctx context.Context, js jetstream.JetStream) (*Reader, error) {
	s, err := js.Stream(ctx, EventsStream)
	if err != nil {
		return nil, fmt.Errorf("open stream %s: %w (run `loopfleet streams apply`)", EventsStream, err)
	}
	return &Reader{stream: s}, nil
}

// Stored is one message of the stream.
type Stored struct {
	Event event.Event
	Seq   uint64
	At    time.Time
}

// LastSeq is the sequence of the item's newest event, 0 when it has none.
func (r *Reader) LastSeq(ctx context.Context, item workitem.Ref) (uint64, error) {
	return r.last(ctx, item.EventsSubject())
}

// LastControlSeq is the sequence of the item's newest control message.
func (r *Reader) LastControlSeq(ctx context.Context, item workitem.Ref) (uint64, error) {
	return r.last(ctx, item.ControlSubject())
}

func (r *Reader) last(ctx context.Context, subject string) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	m, err := r.stream.GetLastMsgForSubject(ctx, subject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("read the last message of %s: %w", subject, err)
	}
	return m.Sequence, nil
}

// next reads the first message of a subject at or after seq; nil when there is
// none.
func (r *Reader) next(ctx context.Context, subject string, seq uint64) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	m, err := r.stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(subject))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s from %d: %w", subject, seq, err)
	}
	return m, nil
}

// Controls reads the item's control messages after a sequence, in order. What
// cannot be decoded is returned with an empty kind, so that it is passed over
// once and for all.
func (r *Reader) Controls(ctx context.Context, item workitem.Ref, after uint64) ([]record.Control, error) {
	var out []record.Control
	for {
		m, err := r.next(ctx, item.ControlSubject(), after+1)
		if err != nil || m == nil {
			return out, err
		}
		c := record.Control{EventID: m.Header.Get(event.HeaderID), Seq: m.Sequence, At: m.Time}
		if e, err := event.Decode(m.Data); err == nil {
			c.EventID, c.Kind, c.At, c.Reason, c.Delivery = e.ID, e.Kind, e.At, e.Reason, e.DeliveryID
			c.Actor, c.KillTmux = e.Actor.Login, e.KillTmux
		}
		out = append(out, c)
		after = m.Sequence
	}
}

// ArmingAhead finds the item's first arming event after a sequence; ok is false
// when none waits.
func (r *Reader) ArmingAhead(ctx context.Context, item workitem.Ref, after uint64) (s Stored, ok bool, err error) {
	for {
		m, err := r.next(ctx, item.EventsSubject(), after+1)
		if err != nil || m == nil {
			return Stored{}, false, err
		}
		after = m.Sequence
		if !event.Kind(m.Header.Get(event.HeaderKind)).Arming() {
			continue
		}
		if e, err := event.Decode(m.Data); err == nil {
			return Stored{Event: e, Seq: m.Sequence, At: m.Time}, true, nil
		}
	}
}

// Events lists an item's events that the stream still holds, from a sequence
// on, up to limit.
func (r *Reader) Events(ctx context.Context, item workitem.Ref, from uint64, limit int) ([]Stored, error) {
	var out []Stored
	for len(out) < limit {
		m, err := r.next(ctx, item.EventsSubject(), from)
		if err != nil || m == nil {
			return out, err
		}
		from = m.Sequence + 1
		if e, err := event.Decode(m.Data); err == nil {
			out = append(out, Stored{Event: e, Seq: m.Sequence, At: m.Time})
		}
	}
	return out, nil
}

// purge removes what has an outcome.
func (r *Reader) purge(ctx context.Context, subject string, below uint64) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := r.stream.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(below)); err != nil {
		return fmt.Errorf("purge %s below %d: %w", subject, below, err)
	}
	return nil
}
