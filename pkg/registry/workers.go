package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/workitem"
)

// WorkerState is what a worker says of itself.
type WorkerState string

// Worker states.
const (
	WorkerRunning    WorkerState = "running"
	WorkerDraining   WorkerState = "draining"
	WorkerRestarting WorkerState = "restarting"
	WorkerStopped    WorkerState = "stopped"
)

// Worker describes a worker; it outlives the lease.
type Worker struct {
	ID    string      `json:"id"`
	State WorkerState `json:"state"`
	// Until is how long peers leave the items of a restarting worker alone.
	Until     time.Time `json:"until,omitzero"`
	Host      string    `json:"host"`
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	Capacity  int       `json:"capacity"`
	Harnesses []string  `json:"harnesses"`
	Sessions  int       `json:"sessions"`
	UpdatedAt time.Time `json:"updated_at"`
}

// workerKey is one token: ids come from host names and configuration.
func workerKey(id string) string { return workitem.Escape(id) }

func leaseKey(id string) string { return "w." + workitem.Escape(id) }

// PutWorker writes a worker's description; only the worker itself does.
func (r *Registry) PutWorker(ctx context.Context, w Worker) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	b, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("encode worker %s: %w", w.ID, err)
	}
	if _, err := r.workers.Put(ctx, workerKey(w.ID), b); err != nil {
		return fmt.Errorf("write worker %s: %w", w.ID, err)
	}
	return nil
}

// Worker reads a worker's description; ok is false when there is none.
func (r *Registry) Worker(ctx context.Context, id string) (w Worker, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	e, err := r.workers.Get(ctx, workerKey(id))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return w, false, nil
	case err != nil:
		return w, false, fmt.Errorf("read worker %s: %w", id, err)
	}
	if err := json.Unmarshal(e.Value(), &w); err != nil {
		return w, false, fmt.Errorf("worker %s: %w", id, err)
	}
	return w, true, nil
}

// Workers lists every worker that ever said anything of itself, and whether its
// lease is alive.
func (r *Registry) Workers(ctx context.Context) ([]Worker, map[string]bool, error) {
	var out []Worker
	err := each(ctx, r.workers, ">", func(e jetstream.KeyValueEntry) error {
		var w Worker
		if err := json.Unmarshal(e.Value(), &w); err != nil {
			return fmt.Errorf("worker %s: %w", e.Key(), err)
		}
		out = append(out, w)
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list workers: %w", err)
	}
	alive := map[string]bool{}
	for _, w := range out {
		if alive[w.ID], err = r.LeaseAlive(ctx, w.ID); err != nil {
			return nil, nil, err
		}
	}
	return out, alive, nil
}

// LeaseTTL is how long a lease lives after its last renewal, as the bucket is
// set up.
func (r *Registry) LeaseTTL(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	st, err := r.leases.Status(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the set-up of bucket %s: %w", LeasesBucket, err)
	}
	if st.TTL() <= 0 {
		return 0, fmt.Errorf("bucket %s has no TTL, so a dead worker would seem alive for ever: run `loopfleet streams plan`", LeasesBucket)
	}
	return st.TTL(), nil
}

// LeaseAlive reads from the leader whether a worker holds its lease.
func (r *Registry) LeaseAlive(ctx context.Context, id string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := r.leases.Get(ctx, leaseKey(id))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read lease of worker %s: %w", id, err)
	}
	return true, nil
}

// WatchLeases calls fn whenever a lease ends, until ctx does. It is a hint:
// callers list again on a timer.
func (r *Registry) WatchLeases(ctx context.Context, fn func()) error {
	w, err := r.leases.WatchAll(ctx, jetstream.UpdatesOnly())
	if err != nil {
		return fmt.Errorf("watch leases: %w", err)
	}
	defer func() { _ = w.Stop() }()
	for {
		select {
		case e, ok := <-w.Updates():
			if !ok {
				return errors.New("watch leases: cut off")
			}
			if e != nil && e.Operation() != jetstream.KeyValuePut {
				fn()
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
