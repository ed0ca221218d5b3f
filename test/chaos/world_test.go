package chaos_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"loopfleet/pkg/config"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/testutil/fleettest"
)

// member is one process that is killed and started again. Whoever holds mu does
// something to it.
type member struct {
	id    string
	start func(ctx context.Context) (*fleettest.Proc, error)

	mu   sync.Mutex
	proc *fleettest.Proc
}

// world is the fleet with everything that is done to it.
type world struct {
	*fleettest.Fleet
	tb        testing.TB
	reader    *queue.Reader
	workers   []*member
	ingresses []*member
	server    *member

	urls    []atomic.Pointer[string]
	turn    atomic.Uint64
	deeds   map[deed]*atomic.Int64
	skipped atomic.Int64
	wg      sync.WaitGroup
}

const (
	readyTime = 2 * time.Minute
	termTime  = 60 * time.Second
	healEvery = 300 * time.Millisecond
)

// newWorld starts everything. Every second worker drains when it is terminated,
// the others keep their sessions.
func newWorld(tb testing.TB, workers, ingresses, capacity int) *world {
	tb.Helper()
	f := fleettest.New(tb, func(c *config.Config) { c.Worker.Capacity = capacity })
	w := &world{Fleet: f, tb: tb, urls: make([]atomic.Pointer[string], ingresses), deeds: map[deed]*atomic.Int64{}}
	for _, d := range weights {
		w.deeds[d.deed] = new(atomic.Int64)
	}
	var err error
	if w.reader, err = queue.NewReader(tb.Context(), f.JS); err != nil {
		tb.Fatal(err)
	}
	for i := range workers {
		id := fmt.Sprintf("w%d", i+1)
		if i%2 == 1 {
			f.Configure(id, func(c *config.Config) { c.Worker.OnStop = "drain" })
		}
		w.workers = append(w.workers, &member{id: id, start: func(ctx context.Context) (*fleettest.Proc, error) {
			return f.TryWorker(ctx, id)
		}})
	}
	for i := range ingresses {
		id := fmt.Sprintf("in%d", i+1)
		w.ingresses = append(w.ingresses, &member{id: id, start: func(ctx context.Context) (*fleettest.Proc, error) {
			in, err := f.TryIngress(ctx, id)
			if err == nil {
				w.urls[i].Store(&in.URL)
			}
			return in.Proc, err
		}})
	}
	w.server = &member{id: "nats-server", proc: f.Server.Proc, start: func(ctx context.Context) (*fleettest.Proc, error) {
		err := f.Server.Start(ctx)
		return f.Server.Proc, err
	}}
	w.heal(tb.Context())
	return w
}

func (w *world) members() []*member {
	return append(append([]*member{w.server}, w.ingresses...), w.workers...)
}

// url names the ingresses in turn.
func (w *world) url() string {
	return *w.urls[w.turn.Add(1)%uint64(len(w.urls))].Load()
}

// up starts the member unless it runs. The caller holds mu.
func (m *member) up(ctx context.Context) error {
	if m.proc != nil && m.proc.Alive() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	p, err := m.start(ctx)
	if err != nil {
		if p != nil {
			p.Kill() // it holds what the next one needs
		}
		return err
	}
	m.proc = p
	return nil
}

// heal starts what does not run until everything does.
func (w *world) heal(ctx context.Context) {
	for _, m := range w.members() {
		for {
			m.mu.Lock()
			err := m.up(ctx)
			m.mu.Unlock()
			if err == nil {
				break
			}
			w.tb.Logf("%s is started again: %.300v", m.id, err)
			if !wait(ctx, healEvery) {
				return
			}
		}
	}
}

// keepUp is what a supervisor does: it starts what has ended by itself, for
// example a worker that found no server.
func (w *world) keepUp(ctx context.Context) {
	for wait(ctx, healEvery) {
		for _, m := range w.members() {
			if !m.mu.TryLock() {
				continue // something is being done to it
			}
			if m.proc == nil || !m.proc.Alive() {
				w.wg.Go(func() {
					defer m.mu.Unlock()
					_ = m.up(ctx) // tried again
				})
				continue
			}
			m.mu.Unlock()
		}
	}
}

// run does the deeds of the schedule at their time.
func (w *world) run(ctx context.Context, plan []ordeal) {
	begin := time.Now()
	for _, o := range plan {
		if !wait(ctx, o.at-time.Since(begin)) {
			return
		}
		m := w.target(o)
		if m == nil {
			w.skipped.Add(1)
			continue
		}
		w.deeds[o.deed].Add(1)
		w.wg.Go(func() {
			defer m.mu.Unlock()
			w.do(ctx, m, o)
		})
	}
}

// target locks the process that the deed is for, or the next of its kind when
// something is being done to it already. Nil: all are busy.
func (w *world) target(o ordeal) *member {
	group := w.workers
	switch o.deed {
	case killIngress:
		group = w.ingresses
	case killServer:
		group = []*member{w.server}
	case killWorker, stopWorker, termWorker:
	}
	for i := range group {
		m := group[(o.target+i)%len(group)]
		if m.mu.TryLock() {
			if m.proc != nil && m.proc.Alive() {
				return m
			}
			m.mu.Unlock()
		}
	}
	return nil
}

// do is one deed. The member is locked; it runs again afterwards, or keepUp
// sees to it.
func (w *world) do(ctx context.Context, m *member, o ordeal) {
	switch o.deed {
	case stopWorker:
		m.proc.Signal(syscall.SIGSTOP)
		wait(ctx, o.away)
		m.proc.Signal(syscall.SIGCONT)
		return
	case termWorker:
		if err := m.proc.Terminate(termTime); err != nil {
			w.tb.Errorf("%v\n%s", err, m.proc.Tail())
		}
	case killWorker, killIngress, killServer:
		m.proc.Kill()
	}
	wait(ctx, o.away)
	_ = m.up(ctx) // keepUp tries again
}
