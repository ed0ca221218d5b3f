package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// run sends what is queued until the queue is closed and empty. One batch is
// under way at a time, which keeps the order; within a batch all lines are sent
// before the first answer is awaited. When ctx ends, the rest is given up.
func (l *Log) run(ctx context.Context) {
	defer close(l.done)
	batch := make([]item, 0, batchSize)
	for it := range l.queue {
		batch = l.gather(append(batch[:0], it))
		l.deliver(ctx, batch)
	}
}

// gather adds to batch what waits already.
func (l *Log) gather(batch []item) []item {
	for len(batch) < batchSize {
		select {
		case it, ok := <-l.queue:
			if !ok {
				return batch
			}
			batch = append(batch, it)
		default:
			return batch
		}
	}
	return batch
}

// deliver settles every item of batch.
func (l *Log) deliver(ctx context.Context, batch []item) {
	var marks, rest []item
	for _, it := range batch {
		if it.msg == nil {
			marks = append(marks, it)
		} else {
			rest = append(rest, it)
		}
	}
	backoff := minBackoff
	var lastWarn time.Time
	for len(rest) > 0 {
		var err error
		if rest, err = l.publish(ctx, rest); len(rest) == 0 {
			break
		}
		if ctx.Err() != nil {
			for _, it := range rest {
				it.settle(errGivenUp)
			}
			l.gaveUp.Add(uint64(len(rest)))
			l.lost.Add(uint64(len(rest)))
			l.unwarned.Add(uint64(len(rest)))
			for _, it := range marks {
				it.settle(errGivenUp)
			}
			return
		}
		if time.Since(lastWarn) >= 10*warnEvery {
			lastWarn = time.Now()
			l.opts.Log.Warn().Err(err).Int("lines", len(rest)+len(l.queue)).
				Msg("the event log does not reach its stream; lines wait and are tried again")
		}
		wait := time.NewTimer(backoff)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
		}
		backoff = min(2*backoff, maxBackoff)
	}
	for _, it := range marks {
		it.settle(nil)
	}
	l.warnDue("the queue was full")
}

func (it item) settle(err error) {
	if it.done != nil {
		it.done <- err // has room for one, and only one ever comes
	}
}

// publish tries every item once and returns those to try again, with the last
// reason.
func (l *Log) publish(ctx context.Context, items []item) (again []item, last error) {
	if ctx.Err() != nil {
		return items, ctx.Err()
	}
	type try struct {
		item   item
		future jetstream.PubAckFuture
	}
	tries := make([]try, 0, len(items))
	for _, it := range items {
		f, err := l.js.PublishMsgAsync(it.msg)
		switch {
		case err == nil:
			tries = append(tries, try{it, f})
		case hopeless(err):
			l.refuse(it, err)
		default:
			again, last = append(again, it), err
		}
	}
	timeout := time.NewTimer(ackWait)
	defer timeout.Stop()
	expired := false
	for _, t := range tries {
		var err error
		switch {
		case expired: // no more waiting, but take what has come
			select {
			case <-t.future.Ok():
			case err = <-t.future.Err():
			default:
				err = nats.ErrTimeout
			}
		default:
			select {
			case <-t.future.Ok():
			case err = <-t.future.Err():
			case <-timeout.C:
				err, expired = nats.ErrTimeout, true
			case <-ctx.Done():
				err, expired = ctx.Err(), true
			}
		}
		switch {
		case err == nil:
			t.item.settle(nil)
		case hopeless(err):
			l.refuse(t.item, err)
		default:
			again, last = append(again, t.item), err
		}
	}
	return again, last
}

// refuse gives up a line that the server will never take.
func (l *Log) refuse(it item, err error) {
	it.settle(fmt.Errorf("the server refuses the line: %w", err))
	l.count(1, "the server refuses them: "+err.Error())
}

// hopeless reports refusals that no retry cures: the line is too long for the
// server or for the stream.
func hopeless(err error) bool {
	const streamMessageExceedsMaximum = 10054
	if errors.Is(err, nats.ErrMaxPayload) {
		return true
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == streamMessageExceedsMaximum
}
