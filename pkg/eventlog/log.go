package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"loopfleet/pkg/event"
	"loopfleet/pkg/logkey"
	"loopfleet/streams"
)

const (
	// Stream is the stream that holds the log.
	Stream = streams.Log
	// Prefix begins every subject of it.
	Prefix = "loop.log."
)

const (
	// queueSize is about a minute of a busy worker, and a few MB.
	queueSize = 4096
	batchSize = 256
	// postWait is how long Post waits for room in a full queue.
	postWait = 100 * time.Millisecond
	ackWait  = 5 * time.Second

	minBackoff = 100 * time.Millisecond
	maxBackoff = 2 * time.Second
	// warnEvery bounds how often the same trouble is warned of.
	warnEvery = time.Second
)

var (
	// ErrClosed means that the log was closed before the entry came.
	ErrClosed = errors.New("event log is closed")
	// errGivenUp settles what Close had no time for.
	errGivenUp = errors.New("the time to close was over")
)

// Publisher is what a Log needs of a JetStream context.
type Publisher interface {
	PublishMsgAsync(msg *nats.Msg, opts ...jetstream.PublishOpt) (jetstream.PubAckFuture, error)
}

// Options configure a Log.
type Options struct {
	// Worker is written into every line; empty outside workers.
	Worker string
	// Source names the part that writes: ingress, worker, operator.
	Source string
	// File, when set, gets every line too, as it is handed over.
	File string
	// Log shows every line: info at debug, warnings and errors at their level.
	Log zerolog.Logger
	// Now is the clock of ts; time.Now when nil.
	Now func() time.Time
}

// Log writes the event log. Close it.
type Log struct {
	js   Publisher
	opts Options
	file *file

	queue  chan item
	cancel context.CancelFunc
	// done is closed when the sender has settled everything.
	done chan struct{}

	// mu guards closed, and orders inflight.Add before Close's inflight.Wait.
	mu       sync.RWMutex
	closed   bool
	closing  chan struct{}
	inflight sync.WaitGroup

	lost     atomic.Uint64
	gaveUp   atomic.Uint64 // those of lost that Close had no time for
	unwarned atomic.Uint64
	lastWarn atomic.Int64

	queueWait time.Duration // postWait, but for tests
}

// item is a line on its way, or, without a message, a mark that Flush waits for.
type item struct {
	msg *nats.Msg
	// done gets the line's fate; nil when nobody waits.
	done chan error
}

// New starts a log that publishes through js. The stream need not be there yet.
func New(js Publisher, o Options) (*Log, error) { return newLog(js, o, queueSize, postWait) }

func newLog(js Publisher, o Options, size int, wait time.Duration) (*Log, error) {
	f, err := openFile(o.File)
	if err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Log{
		js: js, opts: o, file: f,
		queue: make(chan item, size), cancel: cancel, done: make(chan struct{}),
		closing: make(chan struct{}), queueWait: wait,
	}
	go l.run(ctx)
	return l, nil
}

// Emit writes e and returns when the stream has it. When ctx ends first, the
// error says so and the line still goes out as soon as that is possible: set
// Entry.Key if you mean to emit it again. ErrUnknownType and ErrClosed are the
// other errors.
func (l *Log) Emit(ctx context.Context, e Entry) error {
	it, err := l.prepare(&e)
	if err != nil {
		return err
	}
	it.done = make(chan error, 1)
	switch err := l.enqueue(ctx, it); {
	case err == nil:
	case errors.Is(err, ErrClosed):
		return fmt.Errorf("log %s: %w", e.Type, err)
	default:
		return fmt.Errorf("log %s: the queue is full, as stream %s does not take lines: %w", e.Type, Stream, err)
	}
	select {
	case err := <-it.done:
		if err != nil {
			return fmt.Errorf("log %s: %w", e.Type, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("log %s: stream %s has not confirmed it yet: %w", e.Type, Stream, context.Cause(ctx))
	}
}

// Post writes e without waiting for the stream. It waits up to 100 ms while the
// queue is full; then the line is counted as lost and warned of. An unknown type
// or a closed log is an error in the process's log.
func (l *Log) Post(e Entry) {
	it, err := l.prepare(&e)
	if err != nil {
		l.opts.Log.Error().Err(err).Msg("event log line refused")
		l.lost.Add(1)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.queueWait)
	defer cancel()
	switch err := l.enqueue(ctx, it); {
	case err == nil:
	case errors.Is(err, ErrClosed):
		l.count(1, "the log is closed")
	default:
		l.count(1, "the queue is full, as the stream does not take lines")
	}
}

// Lost counts the lines that never reached the stream.
func (l *Log) Lost() uint64 { return l.lost.Load() }

// Flush returns when the stream has every line handed over before, or when ctx
// ends.
func (l *Log) Flush(ctx context.Context) error {
	it := item{done: make(chan error, 1)}
	if err := l.enqueue(ctx, it); err != nil {
		if errors.Is(err, ErrClosed) {
			return nil // Close has flushed
		}
		return fmt.Errorf("flush event log: %w", err)
	}
	select {
	case err := <-it.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("flush event log: stream %s has not confirmed all lines: %w", Stream, context.Cause(ctx))
	}
}

// Close writes what is left and ends the log. When ctx ends first, the rest is
// counted as lost, and the error says how many lines that were. A second call
// only waits.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	if !first {
		<-l.done
		return nil
	}
	close(l.closing)
	l.inflight.Wait() // short: closing wakes whoever waits for room
	close(l.queue)
	stop := context.AfterFunc(ctx, l.cancel)
	<-l.done
	stop()
	l.cancel()
	l.warnLost("the log is closed")
	err := l.file.close()
	if n := l.gaveUp.Load(); n > 0 {
		return errors.Join(fmt.Errorf("close event log: %d lines were not confirmed by stream %s: %w", n, Stream, errGivenUp), err)
	}
	return err
}

// prepare encodes e, shows it and appends it to the file.
func (l *Log) prepare(e *Entry) (item, error) {
	line, err := e.encode(l.opts.Now(), l.opts.Worker, l.opts.Source)
	if err != nil {
		return item{}, err
	}
	l.show(e)
	if err := l.file.append(line); err != nil {
		l.opts.Log.Warn().Err(err).Msg("the stream still gets the line")
	}
	msg := nats.NewMsg(Prefix + string(e.Type))
	msg.Data = line
	msg.Header.Set(jetstream.MsgIDHeader, e.messageID(uuid.NewString()))
	return item{msg: msg}, nil
}

// show writes the console's line. Its texts are escaped, so that also a pretty
// printer cannot be tricked.
func (l *Log) show(e *Entry) {
	at := zerolog.DebugLevel
	switch e.level() {
	case event.Warn:
		at = zerolog.WarnLevel
	case event.Error:
		at = zerolog.ErrorLevel
	case event.Info:
	}
	if l.opts.Log.GetLevel() > at {
		return
	}
	shown := make(map[string]any, len(e.Fields)+3)
	add := func(k string, v any) {
		if s := asText(v); s != "" {
			shown[Escape(k)] = Escape(s)
		}
	}
	for k, v := range e.Fields {
		add(k, v)
	}
	add(logkey.WorkItem, e.WorkItem)
	add(logkey.EventID, e.EventID)
	add(logkey.Delivery, e.Delivery)
	l.opts.Log.WithLevel(at).Fields(shown).Msg(string(e.Type))
}

// asText is v as a line's value would read, without JSON's quotes.
func asText(v any) string {
	b := encodeValue(v)
	var s string
	if len(b) > 0 && b[0] == '"' && json.Unmarshal(b, &s) == nil {
		return s
	}
	return string(b)
}

// enqueue hands it to the sender, waiting for room until ctx ends.
func (l *Log) enqueue(ctx context.Context, it item) error {
	l.mu.RLock()
	if l.closed {
		l.mu.RUnlock()
		return ErrClosed
	}
	l.inflight.Add(1)
	l.mu.RUnlock()
	defer l.inflight.Done()
	select {
	case l.queue <- it:
		return nil
	default:
	}
	select {
	case l.queue <- it:
		return nil
	case <-l.closing:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// count adds n lost lines and warns, at most once per warnEvery; what was not
// warned of is in the next warning.
func (l *Log) count(n uint64, why string) {
	l.lost.Add(n)
	l.unwarned.Add(n)
	l.warnDue(why)
}

func (l *Log) warnDue(why string) {
	now := time.Now().UnixNano()
	last := l.lastWarn.Load()
	if now-last >= int64(warnEvery) && l.lastWarn.CompareAndSwap(last, now) {
		l.warnLost(why)
	}
}

func (l *Log) warnLost(why string) {
	if n := l.unwarned.Swap(0); n > 0 {
		l.opts.Log.Warn().Uint64("lines", n).Uint64("lost_total", l.lost.Load()).Str(logkey.Reason, why).
			Msg("lines of the event log are lost")
	}
}
