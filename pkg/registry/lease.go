package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
)

// Lease is a worker's claim to be alive. It ends by itself one TTL after the
// last renewal that the server accepted.
//
// Two clocks are kept, both monotonic. The deadline counts from before the last
// renewal was sent, so it is never later than the server's. How long the lease
// has been held counts from after the answer, so a renewal that sat in some
// buffer cannot make it look older than it is.
type Lease struct {
	kv     jetstream.KeyValue
	worker string
	ttl    time.Duration
	lock   string
	value  []byte

	mu       sync.Mutex
	revision uint64
	deadline time.Time
	since    time.Time
}

// leaseValue tells whose lease it is.
type leaseValue struct {
	Worker string `json:"worker"`
	// Instance is this process; Lock is the locked folder that only one
	// process on one host can hold.
	Instance string `json:"instance"`
	Lock     string `json:"lock"`
}

// ErrLeaseHeld says that another process holds the worker's lease.
var ErrLeaseHeld = errors.New("another process holds this worker's lease")

// NewLease prepares the lease of a worker; it is not taken yet. Ttl is the
// bucket's. Lock names the folder whose lock the caller holds (see LockDir): a
// lease that the same folder's last holder left behind may be taken at once.
func (r *Registry) NewLease(worker string, ttl time.Duration, lock string) (*Lease, error) {
	b, err := json.Marshal(leaseValue{Worker: worker, Instance: uuid.NewString(), Lock: lock})
	if err != nil {
		return nil, fmt.Errorf("encode lease of %s: %w", worker, err)
	}
	return &Lease{kv: r.leases, worker: worker, ttl: ttl, lock: lock, value: b}, nil
}

// TTL is how long the lease lives after a renewal.
func (l *Lease) TTL() time.Duration { return l.ttl }

// Left is how long the lease surely still holds; 0 when it does not.
func (l *Lease) Left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, time.Until(l.deadline))
}

// Valid reports whether the lease surely holds.
func (l *Lease) Valid() bool { return l.Left() > 0 }

// HeldFull reports whether the lease has been held without a gap for a full
// TTL: only then does the absence of another's lease prove anything, because
// after a server outage all leases are gone at once.
func (l *Lease) HeldFull() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.deadline) > 0 && time.Since(l.since) >= l.ttl
}

// Take takes the lease if it is free or was left behind by the last holder of
// the same lock. ErrLeaseHeld: somebody else's, try again after a while.
func (l *Lease) Take(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var revision uint64
	e, err := l.kv.Get(ctx, leaseKey(l.worker))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
	case err != nil:
		return fmt.Errorf("read lease of worker %s: %w", l.worker, err)
	default:
		var v leaseValue
		if err := json.Unmarshal(e.Value(), &v); err == nil && v.Lock != l.lock {
			return fmt.Errorf("%w: worker id %q, from %s; give each worker its own worker.id, or wait until that lease ends", ErrLeaseHeld, l.worker, v.Lock)
		}
		revision = e.Revision()
	}
	sent := time.Now()
	rev, err := update(ctx, l.kv, leaseKey(l.worker), l.value, revision)
	if err != nil {
		return fmt.Errorf("take lease of worker %s: %w", l.worker, err)
	}
	l.mu.Lock()
	l.revision, l.deadline, l.since = rev, sent.Add(l.ttl), time.Now()
	l.mu.Unlock()
	return nil
}

// ErrLeaseLost says that the lease is gone: its time ran out, or another
// process took it.
var ErrLeaseLost = errors.New("the worker's lease is lost")

// Renew extends the lease by one TTL. ErrLeaseLost is final; any other error
// may be tried again while the lease still holds.
func (l *Lease) Renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.ttl/3)
	defer cancel()
	err := l.renew(ctx)
	if errors.Is(err, ErrConflict) {
		err = l.renew(ctx) // on the revision that the first try found
	}
	if errors.Is(err, ErrLeaseLost) {
		l.mu.Lock()
		l.deadline = time.Time{} // whatever time it had left
		l.mu.Unlock()
	}
	return err
}

// renew is one try. ErrConflict: an earlier renewal landed and its answer was
// lost. That proves the lease ours, but not since when, so the deadline stays.
func (l *Lease) renew(ctx context.Context) error {
	l.mu.Lock()
	revision, deadline := l.revision, l.deadline
	l.mu.Unlock()
	sent := time.Now()
	if !sent.Before(deadline) {
		return fmt.Errorf("worker %s: %w: it ran out before it could be renewed", l.worker, ErrLeaseLost)
	}
	rev, err := update(ctx, l.kv, leaseKey(l.worker), l.value, revision)
	if errors.Is(err, ErrConflict) {
		switch e, gerr := l.kv.Get(ctx, leaseKey(l.worker)); {
		case gerr == nil && string(e.Value()) == string(l.value):
			l.mu.Lock()
			l.revision = e.Revision()
			l.mu.Unlock()
		case gerr == nil, errors.Is(gerr, jetstream.ErrKeyNotFound):
			return fmt.Errorf("worker %s: %w: it was taken or has expired", l.worker, ErrLeaseLost)
		}
	}
	if err != nil {
		return fmt.Errorf("renew lease of worker %s: %w", l.worker, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !time.Now().Before(l.deadline) {
		return fmt.Errorf("worker %s: %w: the answer to its renewal came too late", l.worker, ErrLeaseLost)
	}
	l.revision, l.deadline = rev, sent.Add(l.ttl)
	return nil
}

// Release gives the lease back, so that peers need not wait for its end.
func (l *Lease) Release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	l.mu.Lock()
	revision := l.revision
	l.deadline = time.Time{}
	l.mu.Unlock()
	if err := l.kv.Delete(ctx, leaseKey(l.worker), jetstream.LastRevision(revision)); err != nil {
		return fmt.Errorf("release lease of worker %s: %w", l.worker, err)
	}
	return nil
}
