package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/workitem"
)

// Causes with which contexts end.
var (
	// ErrStopping is the cause when this worker stops.
	ErrStopping = errors.New("the worker is stopping")
	// ErrNotOwner is the cause, and the error, when the item is another's.
	ErrNotOwner = errors.New("the item is not owned by this worker")
	// ErrControl is the cause when a close or stop was folded.
	ErrControl = errors.New("the item was closed or stopped")
)

// Config of an Engine. Zero durations mean the design's values.
type Config struct {
	// Worker is this worker's id.
	Worker string
	// AckWait is the lanes' and must agree with their definition; InProgress is
	// sent at a third of it.
	AckWait time.Duration
	// IdleAfter is how long a lane may have nothing to do before it is closed.
	IdleAfter time.Duration
	// RestartGrace is how long peers leave a restarting worker's items alone.
	RestartGrace time.Duration
	// PurgeAfter is how long finished events stay in the stream.
	PurgeAfter time.Duration
	// Replicas of lanes; 0 means those of the stream. Lanes with fewer stall
	// when a node goes.
	Replicas int
	// Memory keeps lanes in memory; for tests and benchmarks.
	Memory bool
}

func (c *Config) setDefaults() {
	for _, d := range []struct {
		at    *time.Duration
		value time.Duration
	}{
		{&c.AckWait, time.Minute},
		{&c.IdleAfter, time.Minute},
		{&c.RestartGrace, 2 * time.Minute},
		{&c.PurgeAfter, 24 * time.Hour},
	} {
		if *d.at == 0 {
			*d.at = d.value
		}
	}
}

// Handler is the worker behind the queue. Its methods are called for different
// items at the same time.
type Handler interface {
	// Handle runs the event at the head of an item's lane. Ctx ends, with a
	// cause, when the lane is closed.
	Handle(ctx context.Context, it *Item, m *Message) Verdict
	// Settle makes what runs on this machine agree with the record. It is
	// called when ownership begins and after control changed the record.
	Settle(ctx context.Context, it *Item)
	// Complete writes what a crash may have left out after an outcome was
	// recorded: dedup bucket and log. It is idempotent.
	Complete(ctx context.Context, item workitem.Ref, o record.Outcome) error
	// Evict ends the session of an item that is handed over, keeping its
	// conversation and directory for the next owner.
	Evict(ctx context.Context, it *Item)
	// Leftover ends what runs here of an item that belongs to another.
	Leftover(ctx context.Context, rec record.Record)
	// Hosted lists the items with a session on this machine.
	Hosted(ctx context.Context) ([]workitem.Ref, error)
	// Free is how many more sessions may start here; it may be negative. A
	// handler takes room before it records the start of a spawn. It must not
	// wait or call the engine.
	Free() int
	// Describe fills in what the worker says of itself beside its state.
	Describe(w *registry.Worker)
}

// Verdict is what becomes of a message.
type Verdict struct {
	kind  verdict
	delay time.Duration
}

type verdict int

const (
	verdictBack verdict = iota
	verdictAck
	verdictLater
	verdictNoRoom
)

// Verdicts.
var (
	// Ack: the outcome is recorded.
	Ack = Verdict{kind: verdictAck}
	// Back: nothing was tried or may be tried here; hand it out again.
	Back = Verdict{kind: verdictBack}
	// NoRoom: a spawn is due and this worker is full; let another have the item.
	NoRoom = Verdict{kind: verdictNoRoom}
)

// Later says that a try failed: hand it out again after d.
func Later(d time.Duration) Verdict { return Verdict{kind: verdictLater, delay: d} }

// Engine runs one worker's part of the queue.
type Engine struct {
	cfg     Config
	nc      *nats.Conn
	js      jetstream.JetStream
	reg     *registry.Registry
	reader  *Reader
	lease   *registry.Lease
	events  *eventlog.Log
	log     zerolog.Logger
	handler Handler

	mu     sync.Mutex
	items  map[string]*Item
	claims map[*Item]bool // claimed for a spawn that has not been decided yet
	ended  bool           // nothing more is begun in the background

	ready    atomic.Bool
	stopping atomic.Bool
	wg       sync.WaitGroup // everything but lanes
	pulling  sync.WaitGroup // bell loops
	scanning gate
	claimNow chan struct{}
	sweepNow chan struct{}

	runCtx  context.Context //nolint:containedctx // the life of the engine, given by Run
	pullCtx context.Context //nolint:containedctx // ends before runCtx when stopping
	endRun  context.CancelCauseFunc
	endPull context.CancelCauseFunc
}

// New returns an Engine. The lease must not be taken yet.
func New(ctx context.Context, cfg Config, nc *nats.Conn, js jetstream.JetStream, reg *registry.Registry, lease *registry.Lease, events *eventlog.Log, log zerolog.Logger) (*Engine, error) {
	cfg.setDefaults()
	reader, err := NewReader(ctx, js)
	if err != nil {
		return nil, err
	}
	if cfg.Replicas == 0 {
		cfg.Replicas = reader.stream.CachedInfo().Config.Replicas
	}
	return &Engine{
		cfg: cfg, nc: nc, js: js, reg: reg, reader: reader, lease: lease, events: events, log: log,
		items: map[string]*Item{}, claims: map[*Item]bool{}, scanning: newGate(),
		claimNow: make(chan struct{}, 1), sweepNow: make(chan struct{}, 1),
	}, nil
}

// Reader gives read access to the stream.
func (e *Engine) Reader() *Reader { return e.reader }

// Lease is the worker's lease.
func (e *Engine) Lease() *registry.Lease { return e.lease }

// Start takes the lease, adopts what names this worker and begins to take work.
// It waits for the lease until ctx ends. Call Stop to end what it began; after an
// error nothing is left to end. An engine is started once.
func (e *Engine) Start(ctx context.Context, h Handler) (err error) {
	e.handler = h
	e.runCtx, e.endRun = context.WithCancelCause(context.WithoutCancel(ctx))
	e.pullCtx, e.endPull = context.WithCancelCause(e.runCtx)
	defer func() {
		if err != nil {
			e.giveUp(ctx)
		}
	}()
	if err := e.takeLease(ctx); err != nil {
		return err
	}
	sub, err := e.nc.Subscribe(pokeSubject(e.cfg.Worker), func(m *nats.Msg) {
		e.background(func() { e.onPoke(m) })
	})
	if err != nil {
		return fmt.Errorf("listen for pokes: %w", err)
	}
	hints, err := e.nc.Subscribe(waitingSubject, func(*nats.Msg) { kick(e.claimNow) })
	if err != nil {
		return fmt.Errorf("listen for waiting items: %w", err)
	}
	e.background(func() {
		<-e.runCtx.Done()
		_, _ = sub.Unsubscribe(), hints.Unsubscribe()
	})
	if err := e.putState(ctx, registry.WorkerRunning, time.Time{}); err != nil {
		return err
	}
	e.background(e.leaseLoop)
	e.returnScan(e.runCtx) //nolint:contextcheck // what Start begins outlives its context
	e.ready.Store(true)
	kick(e.claimNow) // some may wait for a worker with room to come
	for _, b := range []struct {
		consumer string
		ring     func(context.Context, jetstream.Msg)
	}{{Doorbell, e.ring}, {ControlBell, e.ringControl}} {
		e.pulling.Go(func() { e.bellLoop(b.consumer, b.ring) }) //nolint:contextcheck // ends with pullCtx
	}
	for _, loop := range []func(){e.claimLoop, e.sweepLoop, e.watchLeases, e.idleLoop, e.purgeLoop} {
		e.background(loop)
	}
	return nil
}

// giveUp ends what an unsuccessful Start began.
func (e *Engine) giveUp(ctx context.Context) {
	e.stopping.Store(true)
	e.endAll()
	if e.lease.Valid() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		if err := e.lease.Release(ctx); err != nil {
			e.log.Warn().Err(err).Msg("the lease ends by itself")
		}
	}
}

// endAll ends everything in the background and waits for it.
func (e *Engine) endAll() {
	e.endRun(ErrStopping)
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
	e.wg.Wait()
}

// background runs fn beside the caller; Stop waits for it. The caller must not
// hold e.mu.
func (e *Engine) background(fn func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended {
		e.wg.Go(fn)
	}
}

// Stop ends the engine. Keep leaves the sessions running for the same worker to
// adopt again; otherwise they are ended and the items handed over. What lies
// between a paste and its submit is finished first. It does nothing to an engine
// that has not started.
func (e *Engine) Stop(ctx context.Context, keep bool) {
	if !e.ready.Load() {
		return
	}
	e.stopping.Store(true)
	state, until := registry.WorkerDraining, time.Time{}
	if keep {
		state, until = registry.WorkerRestarting, time.Now().Add(e.cfg.RestartGrace)
	}
	if err := e.putState(ctx, state, until); err != nil {
		e.log.Warn().Err(err).Msg("peers could not be told that this worker stops")
	}
	e.endPull(ErrStopping)
	e.pulling.Wait()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for _, it := range e.all() {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if keep {
				it.op.Lock()
				e.stopLane(it, ErrStopping)
				it.op.Unlock()
				return
			}
			e.release(ctx, it, releaseDrain)
		})
	}
	wg.Wait()
	if !keep {
		if err := e.putState(ctx, registry.WorkerStopped, time.Time{}); err != nil {
			e.log.Warn().Err(err).Msg("peers could not be told that this worker has stopped")
		}
	}
	e.endAll()
	if !keep && e.lease.Valid() {
		if err := e.lease.Release(ctx); err != nil {
			e.log.Warn().Err(err).Msg("the lease ends by itself")
		}
	}
}

// putState tells peers what this worker is up to.
func (e *Engine) putState(ctx context.Context, s registry.WorkerState, until time.Time) error {
	w := registry.Worker{ID: e.cfg.Worker, State: s, Until: until, UpdatedAt: time.Now().UTC()}
	e.handler.Describe(&w)
	return e.reg.PutWorker(ctx, w)
}

// Item returns the one Item of a reference in this process, owned or not.
func (e *Engine) Item(ref workitem.Ref) *Item { return e.item(ref) }

// item returns the one Item of a reference in this process.
func (e *Engine) item(ref workitem.Ref) *Item {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := ref.Key()
	it := e.items[key]
	if it == nil {
		it = newItem(ref, e)
		e.items[key] = it
	}
	return it
}

func (e *Engine) all() []*Item {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.items))
}

// room reports whether an item that needs a spawn may be claimed: what was
// claimed for one already, and has not been decided, counts.
func (e *Engine) room() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.handler.Free() > len(e.claims)
}

// takeRoom sets room aside for an item that is about to be claimed.
func (e *Engine) takeRoom(it *Item) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	// Free is asked under the lock: a claim is given back only after the handler
	// has taken room for it, so none is counted in neither.
	if !e.claims[it] && e.handler.Free() <= len(e.claims) {
		return false
	}
	e.claims[it] = true
	return true
}

// giveRoom gives back what takeRoom set aside, if it did.
func (e *Engine) giveRoom(it *Item) {
	e.mu.Lock()
	held := e.claims[it]
	delete(e.claims, it)
	e.mu.Unlock()
	if held {
		kick(e.claimNow)
	}
}

// Freed tells the engine that a session ended, so that a waiting item may be
// claimed.
func (e *Engine) Freed() { kick(e.claimNow) }

func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pause waits d, or less when ctx ends; it reports whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// post writes a log event about an item.
func (e *Engine) post(entry eventlog.Entry) { e.events.Post(entry) }
