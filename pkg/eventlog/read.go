package eventlog

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/event"
	"loopfleet/pkg/workitem"
)

const (
	// idleCheck is how long a read that should end waits before it asks the
	// server whether anything is left.
	idleCheck = time.Second
	// readerGone is when the server forgets a reader that went away.
	readerGone = time.Minute
	heartbeat  = 2 * time.Second
	retryRead  = 500 * time.Millisecond
	// maxFailures is how often in a row, without any progress, a read that
	// should end tries again.
	maxFailures = 20
)

// ErrNoSuchType means that a glob matches no type of the catalogue.
var ErrNoSuchType = errors.New("no log type matches")

// Query selects lines. The zero Query selects all.
type Query struct {
	// TypeGlob selects types, as in session.*, *.failed or dispatch.dead; empty
	// for all.
	TypeGlob string
	WorkItem workitem.Ref
	EventID  string
	Delivery string
	// Since leaves out older lines.
	Since time.Time
	// Limit keeps the newest lines of those that are there; 0 keeps all. Lines
	// that come while following are not counted.
	Limit int
	// Follow goes on with new lines until ctx ends.
	Follow bool
}

// Reader is what Read needs of a JetStream context.
type Reader interface {
	Stream(ctx context.Context, stream string) (jetstream.Stream, error)
	CreateConsumer(ctx context.Context, stream string, cfg jetstream.ConsumerConfig) (jetstream.Consumer, error)
	DeleteConsumer(ctx context.Context, stream string, consumer string) error
}

// Read calls fn for each line of q, oldest first, from one goroutine. It ends
// with nil after the last line that was there when it began, or, with Follow,
// when ctx ends; it survives restarts of the server in between. An error of fn
// ends it too and is returned as it is. What somebody else published there and
// is no line comes as a warning line that shows it.
func Read(ctx context.Context, js Reader, q Query, fn func(Line) error) error {
	filter, err := subjectFilter(q.TypeGlob)
	if err != nil {
		return err
	}
	s, err := js.Stream(ctx, Stream)
	if err != nil {
		return fmt.Errorf("read event log: stream %s: %w", Stream, err)
	}
	r := &reader{js: js, q: q, filter: filter, fn: fn, last: s.CachedInfo().State.LastSeq}
	return r.run(ctx)
}

type reader struct {
	js     Reader
	q      Query
	filter string
	fn     func(Line) error

	// last is the stream's last sequence at the start.
	last uint64
	// seen is the sequence of the last message received.
	seen uint64
	// past says that everything up to last was handled.
	past bool
	// reading says that a consumer could be made at least once.
	reading bool
	// newest holds the lines of Limit until then.
	newest []Line
}

// errGap means that messages were lost on the way: begin again after the last
// one seen.
var errGap = errors.New("gap in the messages")

// stopError carries an error of the caller's function.
type stopError struct{ error }

func (r *reader) run(ctx context.Context) error {
	for failures, seen := 0, r.seen; ; {
		ended, err := r.session(ctx)
		if failures++; r.seen != seen {
			failures, seen = 0, r.seen
		}
		var stop stopError
		switch {
		case errors.As(err, &stop):
			return stop.error
		case ctx.Err() != nil:
			if r.q.Follow {
				return nil
			}
			return fmt.Errorf("read event log: %w", context.Cause(ctx))
		case ended:
			return nil
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return fmt.Errorf("read event log: stream %s: %w", Stream, err)
		case failures >= maxFailures && (!r.q.Follow || !r.reading):
			return fmt.Errorf("read event log: gave up after %d tries: %w", failures, err)
		}
		// The server went away with our consumer, or is on its way back.
		wait := time.NewTimer(retryRead)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
		}
	}
}

// session reads through one consumer. It reports whether the read is over;
// otherwise another session goes on where it ended.
func (r *reader) session(ctx context.Context) (ended bool, err error) {
	cons, err := r.js.CreateConsumer(ctx, Stream, r.config())
	if err != nil {
		return false, fmt.Errorf("create a consumer: %w", err)
	}
	r.reading = true
	defer r.forget(ctx, cons.CachedInfo().Name)
	if !r.past && cons.CachedInfo().NumPending == 0 {
		if over, err := r.reachedEnd(); over || err != nil {
			return over, err
		}
	}
	it, err := cons.Messages(jetstream.PullHeartbeat(heartbeat))
	if err != nil {
		return false, fmt.Errorf("read messages: %w", err)
	}
	defer it.Stop()
	var delivered uint64
	for {
		msg, err := r.next(ctx, it)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && !r.past {
			// What we wait for may have expired in the meantime.
			info, err := cons.Info(ctx)
			if err != nil {
				return false, fmt.Errorf("consumer info: %w", err)
			}
			if info.NumPending == 0 && info.Delivered.Consumer == delivered {
				if over, err := r.reachedEnd(); over || err != nil {
					return over, err
				}
			}
			continue
		}
		if err != nil {
			return false, fmt.Errorf("next message: %w", err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return false, fmt.Errorf("next message: %w", err)
		}
		delivered++
		if meta.Sequence.Consumer != delivered {
			return false, errGap
		}
		if over, err := r.take(msg, meta); over || err != nil {
			return over, err
		}
	}
}

// forget removes our consumer, so that a list of them shows only live readers.
// When that does not work, the server does it after readerGone.
func (r *reader) forget(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = r.js.DeleteConsumer(ctx, Stream, name)
}

// next waits for a message; before the end is reached, not for longer than
// idleCheck.
func (r *reader) next(ctx context.Context, it jetstream.MessagesContext) (jetstream.Msg, error) {
	if !r.past {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, idleCheck)
		defer cancel()
	}
	return it.Next(jetstream.NextContext(ctx))
}

func (r *reader) config() jetstream.ConsumerConfig {
	cfg := jetstream.ConsumerConfig{
		Description:       "reader of the event log",
		AckPolicy:         jetstream.AckNonePolicy,
		FilterSubject:     r.filter,
		InactiveThreshold: readerGone,
		MemoryStorage:     true,
		Replicas:          1,
	}
	switch {
	case r.past || r.seen > 0:
		cfg.DeliverPolicy = jetstream.DeliverByStartSequencePolicy
		cfg.OptStartSeq = r.seen + 1
		if r.past {
			cfg.OptStartSeq = max(r.seen, r.last) + 1
		}
	case !r.q.Since.IsZero():
		cfg.DeliverPolicy = jetstream.DeliverByStartTimePolicy
		cfg.OptStartTime = &r.q.Since
	default:
		cfg.DeliverPolicy = jetstream.DeliverAllPolicy
	}
	return cfg
}

// take handles one message and reports whether the read is over.
func (r *reader) take(msg jetstream.Msg, meta *jetstream.MsgMetadata) (over bool, err error) {
	seq := meta.Sequence.Stream
	if !r.past && seq > r.last {
		if over, err := r.reachedEnd(); over || err != nil {
			return over, err
		}
	}
	r.seen = seq
	l, err := Parse(msg.Data())
	if err != nil {
		l = unreadable(msg, meta, err)
	}
	l.Seq = seq
	if r.match(&l) {
		if !r.past && r.q.Limit > 0 {
			r.newest = append(r.newest, l)
			if len(r.newest) > r.q.Limit {
				r.newest = r.newest[1:]
			}
		} else if err := r.fn(l); err != nil {
			return false, stopError{err}
		}
	}
	if !r.past && (seq == r.last || meta.NumPending == 0) {
		return r.reachedEnd()
	}
	return false, nil
}

// reachedEnd hands out what Limit kept back. The read is over unless it follows.
func (r *reader) reachedEnd() (over bool, err error) {
	r.past = true
	for _, l := range r.newest {
		if err := r.fn(l); err != nil {
			return false, stopError{err}
		}
	}
	r.newest = nil
	return !r.q.Follow, nil
}

func (r *reader) match(l *Line) bool {
	q := r.q
	if q.TypeGlob != "" {
		if ok, err := path.Match(q.TypeGlob, string(l.Type)); err != nil || !ok {
			return false
		}
	}
	return (q.WorkItem.Zero() || l.WorkItem == q.WorkItem) &&
		(q.EventID == "" || l.EventID == q.EventID) &&
		(q.Delivery == "" || l.Delivery == q.Delivery) &&
		(q.Since.IsZero() || !l.TS.Before(q.Since.Truncate(time.Millisecond)))
}

// unreadable is the line for a message that is none: anybody with the right
// to can publish there, and hiding it would hide a mistake.
func unreadable(msg jetstream.Msg, meta *jetstream.MsgMetadata, err error) Line {
	l := Line{
		TS: meta.Timestamp, Level: event.Warn,
		Type:   event.LogType(strings.TrimPrefix(msg.Subject(), Prefix)),
		Fields: map[string]any{"unreadable": clean(string(msg.Data())), "error": clean(err.Error())},
	}
	fields := []field{
		{keyTS, encodeValue(l.TS)}, {keyType, encodeValue(string(l.Type))}, {keyLevel, encodeValue(string(l.Level))},
	}
	for k, v := range l.Fields {
		if b := encodeValue(v); b != nil {
			fields = append(fields, field{k, b})
		}
	}
	l.Raw = join(fields)
	return l
}

// subjectFilter is the narrowest subject that holds every type of the glob. The
// part of the glob before its first special character is checked, so nothing
// else gets into the subject.
func subjectFilter(glob string) (string, error) {
	if glob == "" {
		return Prefix + ">", nil
	}
	known := false
	for t := range event.Catalogue {
		ok, err := path.Match(glob, string(t))
		if err != nil {
			return "", fmt.Errorf("log type %q: %w: write a type, or * for any part of it, as in session.*", glob, err)
		}
		known = known || ok
	}
	if !known {
		return "", fmt.Errorf("%w %q: write a type such as dispatch.failed, or * for any part of it, as in session.*", ErrNoSuchType, glob)
	}
	special := strings.IndexAny(glob, `*?[\`)
	if special < 0 {
		return Prefix + glob, nil // equal to a type of the catalogue
	}
	dot := strings.LastIndexByte(glob[:special], '.')
	return Prefix + glob[:dot+1] + ">", nil
}
