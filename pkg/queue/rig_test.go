package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/testutil/faulttest"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/workitem"
	"loopfleet/streams"
)

func TestMain(m *testing.M) {
	faulttest.Lag()
	goleak.VerifyTestMain(m)
}

const ttl = streams.LeaseTTL

// rig is a server with everything on it, and what all workers did.
type rig struct {
	t      *testing.T
	srv    *natstest.Server
	reg    *registry.Registry
	pub    *queue.Publisher
	reader *queue.Reader
	events *eventlog.Log
	ledger ledger
	memory bool
	// config changes every node's.
	config func(*queue.Config)
	// dial gives a node's connection options of its own.
	dial func(id string) []nats.Option

	nodes []*node
}

// run gives a test a rig on the real clock.
func run(t *testing.T, fn func(r *rig)) {
	t.Helper()
	r := newRig(t, true)
	defer r.close()
	fn(r)
}

func newRig(t *testing.T, memory bool) *rig {
	t.Helper()
	s := natstest.Start(t, "")
	natstest.Provision(t, s.JS, streams.Options{Memory: memory})
	r := &rig{t: t, srv: s, memory: memory, pub: queue.NewPublisher(s.JS)}
	var err error
	if r.reg, err = registry.Open(t.Context(), s.JS); err != nil {
		t.Fatal(err)
	}
	if r.reader, err = queue.NewReader(t.Context(), s.JS); err != nil {
		t.Fatal(err)
	}
	if r.events, err = eventlog.New(s.JS, eventlog.Options{Source: "test"}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) close() {
	for _, n := range r.nodes {
		n.stop(true)
	}
	if err := r.events.Close(context.WithoutCancel(r.t.Context())); err != nil {
		r.t.Error(err)
	}
	for _, p := range r.ledger.problems() {
		r.t.Error(p)
	}
}

// node is one worker process.
type node struct {
	*recorder
	rig    *rig
	conn   *nats.Conn
	engine *queue.Engine
	gone   bool
}

// start runs a worker with room for so many sessions and waits until it takes
// work. Prepare, when given, sees it before it starts.
func (r *rig) start(id string, room int, prepare ...func(*recorder)) *node {
	r.t.Helper()
	t := r.t
	var opts []nats.Option
	if r.dial != nil {
		opts = r.dial(id)
	}
	conn := r.srv.Connect(t, opts...)
	js, err := conn2js(conn)
	if err != nil {
		t.Fatal(err)
	}
	reg, err := registry.Open(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := reg.NewLease(id, ttl, "lock of "+id)
	if err != nil {
		t.Fatal(err)
	}
	cfg := queue.Config{Worker: id, Memory: r.memory}
	if r.config != nil {
		r.config(&cfg)
	}
	n := &node{rig: r, conn: conn}
	n.recorder = &recorder{id: id, room: room, reg: reg, ledger: &r.ledger, live: map[workitem.Ref]bool{}, reserved: map[workitem.Ref]bool{}}
	for _, fn := range prepare {
		fn(n.recorder)
	}
	n.engine, err = queue.New(t.Context(), cfg, conn, js, reg, lease, r.events, zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.ErrorLevel))
	if err != nil {
		t.Fatal(err)
	}
	n.recorder.engine = n.engine
	if err := n.engine.Start(t.Context(), n.recorder); err != nil {
		t.Fatal(err)
	}
	r.nodes = append(r.nodes, n)
	return n
}

func (n *node) stop(keep bool) {
	if n.gone {
		return
	}
	n.gone = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.rig.t.Context()), 30*time.Second)
	defer cancel()
	n.engine.Stop(ctx, keep)
	n.conn.Close()
}

// crash ends the process without a word; sessions of it live on when its host
// does.
func (n *node) crash() {
	n.gone = true
	n.conn.Close()
	n.engine.Crash()
}

func ref(t *testing.T, n int) workitem.Ref {
	t.Helper()
	r, err := workitem.Parse(fmt.Sprintf("octo/hello#%d", n))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// publish puts an event of this kind, now, on the item's stream.
func (r *rig) publish(item workitem.Ref, kind event.Kind, id string) uint64 {
	r.t.Helper()
	seq, err := r.tryPublish(item, kind, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return seq
}

func (r *rig) tryPublish(item workitem.Ref, kind event.Kind, id string) (uint64, error) {
	e := event.Event{ID: id, Kind: kind, WorkItem: item, At: time.Now().UTC().Truncate(time.Second), DeliveryID: "guid-" + id}
	if kind == event.Close {
		e.Reason = event.IssueClosed
	}
	rec, err := r.pub.Publish(r.t.Context(), e)
	return rec.Seq, err
}

func (r *rig) record(item workitem.Ref) record.Record {
	r.t.Helper()
	e, err := r.reg.Get(r.t.Context(), item)
	if err != nil {
		r.t.Fatal(err)
	}
	return e.Record
}

// until waits for the item's record to satisfy ok.
func (r *rig) until(item workitem.Ref, what string, ok func(record.Record) bool) record.Record {
	r.t.Helper()
	return waitfor.Value(r.t, item.String()+": "+what, func() (record.Record, bool) {
		e, err := r.reg.Get(r.t.Context(), item)
		return e.Record, err == nil && ok(e.Record)
	})
}

// outcome waits for an event's outcome in the dedup bucket.
func (r *rig) outcome(item workitem.Ref, id string) record.Outcome {
	r.t.Helper()
	return waitfor.Value(r.t, "the outcome of "+id, func() (record.Outcome, bool) {
		o, ok, err := r.reg.Outcome(r.t.Context(), item, id, 0)
		return o, ok && err == nil
	})
}

func (r *rig) wantOutcome(item workitem.Ref, id string, kind record.OutcomeKind, reason string) {
	r.t.Helper()
	if o := r.outcome(item, id); o.Kind != kind || o.Reason != reason {
		r.t.Errorf("%s: %s(%s), want %s(%s)", id, o.Kind, o.Reason, kind, reason)
	}
}

// ledger is what agents were told, over all workers.
type ledger struct {
	mu      sync.Mutex
	told    []telling
	running map[workitem.Ref]string
	wrong   []string
}

type telling struct {
	worker string
	item   workitem.Ref
	id     string
	seq    uint64
	at     time.Time
}

// enter notes that a worker touches the item's session.
func (l *ledger) enter(worker string, item workitem.Ref) (leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running == nil {
		l.running = map[workitem.Ref]string{}
	}
	if other, busy := l.running[item]; busy {
		l.wrong = append(l.wrong, fmt.Sprintf("%s: %s and %s at once", item, other, worker))
	}
	l.running[item] = worker
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.running, item)
	}
}

func (l *ledger) tell(t telling) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, old := range l.told {
		switch {
		case old.item != t.item:
		case old.id == t.id:
			l.wrong = append(l.wrong, fmt.Sprintf("%s: %s told twice, by %s and %s", t.item, t.id, old.worker, t.worker))
		case old.seq > t.seq:
			l.wrong = append(l.wrong, fmt.Sprintf("%s: %s (%d) told after %s (%d)", t.item, t.id, t.seq, old.id, old.seq))
		}
	}
	l.told = append(l.told, t)
}

func (l *ledger) problems() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.wrong)
}

// of lists the ids that the item's agent was told, in order.
func (l *ledger) of(item workitem.Ref) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for _, t := range l.told {
		if t.item == item {
			ids = append(ids, t.id)
		}
	}
	return ids
}

func (l *ledger) find(id string) (telling, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.told, func(t telling) bool { return t.id == id })
	if i < 0 {
		return telling{}, false
	}
	return l.told[i], true
}

var errWork = errors.New("the try failed")

var nop = zerolog.Nop()

func (r *rig) lastSeq(item workitem.Ref) uint64 {
	r.t.Helper()
	seq, err := r.reader.LastSeq(r.t.Context(), item)
	if err != nil {
		r.t.Fatal(err)
	}
	return seq
}
