package notice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/fault"
	"loopfleet/pkg/forge"
	"loopfleet/pkg/logkey"
	"loopfleet/streams"
)

const (
	fetchWait = 30 * time.Second
	// bindWait is how long a lost consumer is left alone.
	bindWait = time.Second
	// tellTimeout bounds everything about one message. It is less than the
	// consumer's ack_wait, so that no two workers tell a ticket at once.
	tellTimeout = 50 * time.Second
	// skew is how much earlier than ours the forge's clock may be.
	skew = 24 * time.Hour
	// maxAge is how old something may be to still be told: later it is no news,
	// and a token that is configured late must not flood old tickets.
	maxAge = 72 * time.Hour
	// maxWait bounds what a forge can ask for.
	maxWait = 6 * time.Hour
)

// backoff are the waits after the first, second, ... failure; the last serves
// all later ones.
var backoff = []time.Duration{
	10 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 4 * time.Hour,
}

// Consumers is the part of jetstream.JetStream that Run needs.
type Consumers interface {
	Consumer(ctx context.Context, stream, consumer string) (jetstream.Consumer, error)
}

// Log writes the event log.
type Log interface {
	Emit(ctx context.Context, e eventlog.Entry) error
}

// Deps are what Run works on.
type Deps struct {
	JS     Consumers
	Poster forge.Poster
	Events Log
	Log    zerolog.Logger
	// Backoff replaces the waits after failures; nil means the usual ones, from
	// ten seconds to four hours.
	Backoff []time.Duration
}

// Run tells tickets what there is to tell, one after the other, until ctx ends.
// The notice that is being posted then is finished first, within a minute. Run
// may run in several processes.
func Run(ctx context.Context, d Deps) {
	if d.Backoff == nil {
		d.Backoff = backoff
	}
	r := runner{Deps: d}
	for ctx.Err() == nil {
		c, err := d.JS.Consumer(ctx, streams.Dead, streams.Notices)
		for err == nil && ctx.Err() == nil {
			err = r.pull(ctx, c)
		}
		if ctx.Err() != nil {
			return
		}
		d.Log.Debug().Err(err).Msg("the consumer of notices is bound again")
		pause(ctx, bindWait)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

type runner struct{ Deps }

// pull takes the next message, if one comes. One at a time: forges ask for it,
// and what this process holds no other can tell.
func (r *runner) pull(ctx context.Context, c jetstream.Consumer) error {
	fctx, cancel := context.WithTimeout(ctx, fetchWait)
	defer cancel()
	batch, err := c.Fetch(1, jetstream.FetchContext(fctx))
	if err != nil {
		return err
	}
	for m := range batch.Messages() {
		r.handle(context.WithoutCancel(ctx), m)
	}
	err = batch.Error()
	if errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// handle tells one ticket and does with the message what came of it.
func (r *runner) handle(ctx context.Context, m jetstream.Msg) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	md, err := m.Metadata()
	if err != nil {
		r.Log.Error().Err(err).Msg("a notice without metadata is put back")
		_ = m.Nak()
		return
	}
	t, err := decode(m.Subject(), m.Data())
	if err != nil {
		// Nothing that we put there; nobody can be told of it.
		r.Log.Error().Err(err).Uint64(logkey.Seq, md.Sequence.Stream).Msg("a notice that cannot be read is passed over")
		_ = m.Term()
		return
	}
	if err = r.tell(ctx, &t); err == nil {
		_ = m.Ack()
		return
	}
	delay := r.delay(md.NumDelivered, err)
	line := r.Log.Warn().Err(err).Stringer(logkey.WorkItem, t.item).Str(logkey.EventID, t.eventID).Stringer("retry_in", delay)
	if e, ok := errors.AsType[*forge.CredentialsError](err); ok {
		line = line.Str(logkey.Hint, e.Hint())
	}
	line.Msg("the ticket could not be told yet")
	_ = m.NakWithDelay(delay)
}

// delay is when to try again.
func (r *runner) delay(failures uint64, err error) time.Duration {
	at := min(max(failures, 1)-1, uint64(len(r.Backoff))-1)
	d := r.Backoff[at]
	if limit, ok := errors.AsType[*forge.RateLimitError](err); ok {
		d = max(d, limit.RetryAfter)
	}
	return min(d, maxWait)
}

// tell posts the notice unless it is there, and logs what came of it. An error
// is worth another try.
func (r *runner) tell(ctx context.Context, t *telling) error {
	if age := time.Since(t.at); age > maxAge {
		return r.failed(ctx, t, "expired", fmt.Errorf("it is %s old, and nobody is told of what is older than %s", age.Round(time.Minute), maxAge),
			"the event is in `loopfleet dead-letters list`; is the forge reachable, and the token valid?")
	}
	there, err := r.Poster.Posted(ctx, t.item, t.marker(), t.at.Add(-skew))
	var url string
	if err == nil && !there {
		url, err = r.Poster.Post(ctx, t.item, t.text())
	}
	if e, ok := errors.AsType[*forge.PermanentError](err); ok {
		return r.failed(ctx, t, string(e.Cause), err, e.Hint())
	}
	if err != nil {
		return err
	}
	fault.Pass(ctx, fault.NoticeAck)
	t.fields["url"], t.fields["found"] = url, there
	return r.emit(ctx, t, event.NoticePosted, event.Info)
}

// failed logs that the ticket will never be told.
func (r *runner) failed(ctx context.Context, t *telling, reason string, cause error, hint string) error {
	t.fields[logkey.Reason], t.fields[logkey.Error], t.fields[logkey.Hint] = reason, cause, hint
	return r.emit(ctx, t, event.NoticeFailed, event.Warn)
}

func (r *runner) emit(ctx context.Context, t *telling, typ event.LogType, level event.Level) error {
	return r.Events.Emit(ctx, eventlog.Entry{Type: typ, Level: level, WorkItem: t.item, EventID: t.eventID, Key: t.key, Fields: t.fields})
}
