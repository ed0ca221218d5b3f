package worker

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"loopfleet/pkg/config"
	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/session"
	"loopfleet/pkg/workitem"
)

// Sessions is what the worker needs of the session driver.
type Sessions interface {
	Spawn(ctx context.Context, req session.SpawnRequest) (session.SpawnResult, error)
	Deliver(ctx context.Context, s record.Session, p session.Prompt) (session.Delivery, error)
	Alive(s record.Session) bool
	AwaitReceipt(ctx context.Context, s record.Session, eventID string) (bool, error)
	HasReceipt(s record.Session, eventID string) (bool, error)
	Inspect(ctx context.Context, s record.Session) (session.Status, error)
	Recover(ctx context.Context, s record.Session) (session.Status, error)
	End(ctx context.Context, item workitem.Ref, s record.Session, opt session.EndOptions) (session.EndReport, error)
	Local(ctx context.Context) ([]session.Found, error)
	Forget(ctx context.Context, item workitem.Ref) (dir string, err error)
}

// Config of a Worker.
type Config struct {
	ID       string
	Capacity int
	Routing  config.Routing
	// PollRetries is the budget of polled events; Routing has that of others.
	PollRetries int
	// Harnesses that work here, for the worker's description.
	Harnesses []string
	Version   string
}

// Worker implements queue.Handler.
type Worker struct {
	cfg      Config
	sessions Sessions
	engine   *queue.Engine
	reg      *registry.Registry
	js       jetstream.JetStream
	events   *eventlog.Log
	log      zerolog.Logger

	inForce   atomic.Pointer[config.Routing]
	checkouts Checkouts

	mu sync.Mutex
	// live holds the items with a session here, reserved those about to get
	// one.
	live     map[workitem.Ref]record.Session
	reserved map[workitem.Ref]bool

	stopWatch context.CancelFunc
	watching  sync.WaitGroup
}

var _ queue.Handler = (*Worker)(nil)

// Deps are the open connections and stores a Worker uses.
type Deps struct {
	Conn     *nats.Conn
	JS       jetstream.JetStream
	Registry *registry.Registry
	Events   *eventlog.Log
	Sessions Sessions
	Lease    *registry.Lease
	Queue    queue.Config
	Log      zerolog.Logger
	// Checkouts may be nil: then there are only plain directories, which Sessions
	// makes and removes.
	Checkouts Checkouts
}

// New returns a Worker that has not begun to take work.
func New(ctx context.Context, cfg Config, d Deps) (*Worker, error) {
	d.Queue.Worker = cfg.ID
	w := &Worker{
		cfg: cfg, sessions: d.Sessions, reg: d.Registry, js: d.JS, events: d.Events, log: d.Log,
		live: map[workitem.Ref]record.Session{}, reserved: map[workitem.Ref]bool{}, checkouts: d.Checkouts,
	}
	w.inForce.Store(&cfg.Routing)
	var err error
	w.engine, err = queue.New(ctx, d.Queue, d.Conn, d.JS, d.Registry, d.Lease, d.Events, d.Log)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Start takes the worker's lease and begins to take work; it waits for the lease
// until ctx ends.
func (w *Worker) Start(ctx context.Context) error {
	if err := w.engine.Start(ctx, w); err != nil {
		return fmt.Errorf("start worker %s: %w", w.cfg.ID, err)
	}
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stopWatch = stop
	w.watching.Go(func() { w.watch(watch) })
	w.events.Post(eventlog.Entry{Type: event.WorkerStarted, Fields: map[string]any{
		"capacity": w.cfg.Capacity, "harnesses": w.cfg.Harnesses, "version": w.cfg.Version,
	}})
	return nil
}

// Stop ends the worker: keep leaves the sessions running for the same worker to
// adopt again, otherwise they are ended with their conversation kept and handed
// over.
func (w *Worker) Stop(ctx context.Context, keep bool) {
	w.stopWatch()
	w.watching.Wait()
	w.engine.Stop(ctx, keep)
	mode := "drain"
	if keep {
		mode = "keep"
	}
	w.events.Post(eventlog.Entry{Type: event.WorkerStopped, Fields: map[string]any{"mode": mode}})
}

// Free is how many more sessions may start here.
func (w *Worker) Free() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cfg.Capacity - len(w.live) - len(w.reserved)
}

// reserve sets room aside for a spawn; false when there is none. An item whose
// session is here already needs none.
func (w *Worker) reserve(item workitem.Ref) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, here := w.live[item]; here || w.reserved[item] {
		return true
	}
	if len(w.live)+len(w.reserved) >= w.cfg.Capacity {
		return false
	}
	w.reserved[item] = true
	return true
}

func (w *Worker) unreserve(item workitem.Ref) {
	w.mu.Lock()
	held := w.reserved[item]
	delete(w.reserved, item)
	_, used := w.live[item]
	w.mu.Unlock()
	if held && !used {
		w.engine.Freed()
	}
}

// hosts notes that an item's session runs here.
func (w *Worker) hosts(item workitem.Ref, s record.Session) {
	w.mu.Lock()
	w.live[item] = s
	delete(w.reserved, item)
	w.mu.Unlock()
}

// gone notes that an item has no running session here.
func (w *Worker) gone(item workitem.Ref) {
	w.mu.Lock()
	_, was := w.live[item]
	delete(w.live, item)
	w.mu.Unlock()
	if was {
		w.engine.Freed()
	}
}

func (w *Worker) hosted(item workitem.Ref) (record.Session, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.live[item]
	return s, ok
}

// Describe fills in what this worker says of itself.
func (w *Worker) Describe(r *registry.Worker) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	r.Host, r.PID, r.Version = host, os.Getpid(), w.cfg.Version
	r.Capacity, r.Harnesses = w.cfg.Capacity, w.cfg.Harnesses
	w.mu.Lock()
	r.Sessions = len(w.live)
	w.mu.Unlock()
}

// Hosted lists the items with a session on this machine, from its disk.
func (w *Worker) Hosted(ctx context.Context) ([]workitem.Ref, error) {
	found, err := w.sessions.Local(ctx)
	refs := make([]workitem.Ref, 0, len(found))
	for _, f := range found {
		refs = append(refs, f.Item)
	}
	if err != nil {
		return refs, fmt.Errorf("list the sessions on this machine: %w", err)
	}
	return refs, nil
}

// routing is the part of the configuration that may change while the worker
// runs.
func (w *Worker) routing() config.Routing { return *w.inForce.Load() }

func now() time.Time { return time.Now().UTC() }
