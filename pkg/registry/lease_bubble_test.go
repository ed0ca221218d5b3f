package registry_test

import (
	"errors"
	"testing"
	"time"

	"loopfleet/pkg/registry"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/streams"
)

const (
	ttl    = streams.LeaseTTL
	worker = "w1"
)

// bubble runs fn under a fake clock with the buckets in place.
func bubble(t *testing.T, fn func(*testing.T, *natstest.Server, *registry.Registry)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T) {
		s := natstest.Start(t, "")
		natstest.Provision(t, s.JS)
		fn(t, s, open(t, s))
	})
}

func newLease(t *testing.T, r *registry.Registry, lock string) *registry.Lease {
	t.Helper()
	l, err := r.NewLease(worker, ttl, lock)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func take(t *testing.T, l *registry.Lease) {
	t.Helper()
	if err := l.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func alive(t *testing.T, r *registry.Registry) bool {
	t.Helper()
	ok, err := r.LeaseAlive(t.Context(), worker)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func TestLease_LivesWhileItIsRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, _ *natstest.Server, r *registry.Registry) {
		l := newLease(t, r, "lock")
		if l.Valid() || l.HeldFull() || l.TTL() != ttl {
			t.Error("valid before it was taken")
		}
		take(t, l)
		for range 10 {
			if l.Left() > ttl || !l.Valid() || !alive(t, r) {
				t.Fatalf("left %s", l.Left())
			}
			time.Sleep(ttl / 4)
			if err := l.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(ttl - time.Second)
		if !l.Valid() || !alive(t, r) {
			t.Error("ended a second too soon")
		}
		time.Sleep(2 * time.Second)
		if l.Valid() || l.Left() != 0 || l.HeldFull() || alive(t, r) {
			t.Error("lives a second too long")
		}
		if err := l.Renew(t.Context()); !errors.Is(err, registry.ErrLeaseLost) {
			t.Errorf("renewing what ended: %v", err)
		}
	})
}

// The holder must believe itself dead before anybody else can.
func TestLease_DeadlineIsNeverLaterThanTheServers(t *testing.T) {
	bubble(t, func(t *testing.T, _ *natstest.Server, r *registry.Registry) {
		l := newLease(t, r, "lock")
		take(t, l)
		for alive(t, r) {
			time.Sleep(10 * time.Millisecond)
		}
		if l.Valid() {
			t.Errorf("the server let it go %s before the holder", l.Left())
		}
	})
}

func TestLease_HeldFullCountsFromTheTaking(t *testing.T) {
	bubble(t, func(t *testing.T, _ *natstest.Server, r *registry.Registry) {
		l := newLease(t, r, "lock")
		take(t, l)
		start := time.Now()
		for time.Since(start) < ttl {
			if l.HeldFull() {
				t.Fatalf("held full after %s", time.Since(start))
			}
			time.Sleep(ttl / 8)
			if err := l.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if !l.HeldFull() {
			t.Error("not held full after a full TTL")
		}
		time.Sleep(ttl + time.Second) // lost, and taken again
		take(t, l)
		if l.HeldFull() {
			t.Error("held full right after it was taken again")
		}
	})
}

// A stopped process's lease: the same folder's next process has it at once,
// another one only after its end. The end leaves a marker behind, which must not
// keep anybody out.
func TestLease_WhoMayTakeIt(t *testing.T) {
	bubble(t, func(t *testing.T, _ *natstest.Server, r *registry.Registry) {
		first, second, stranger := newLease(t, r, "lock"), newLease(t, r, "lock"), newLease(t, r, "elsewhere")
		take(t, first)
		if err := stranger.Take(t.Context()); !errors.Is(err, registry.ErrLeaseHeld) {
			t.Fatalf("another host takes a living lease: %v", err)
		}
		take(t, second)
		if err := first.Renew(t.Context()); !errors.Is(err, registry.ErrLeaseLost) {
			t.Errorf("the former holder renews: %v", err)
		}
		if first.Valid() {
			t.Errorf("the former holder thinks it holds it for another %s", first.Left())
		}
		start := time.Now()
		for errors.Is(stranger.Take(t.Context()), registry.ErrLeaseHeld) {
			time.Sleep(100 * time.Millisecond)
		}
		if d := time.Since(start); !stranger.Valid() || d < ttl-time.Second || d > ttl+time.Second {
			t.Errorf("another host has it after %s: valid %t", d, stranger.Valid())
		}
	})
}

func TestLease_ReleasedIsFreeAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, _ *natstest.Server, r *registry.Registry) {
		l, stranger := newLease(t, r, "lock"), newLease(t, r, "elsewhere")
		take(t, l)
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l.Valid() || alive(t, r) {
			t.Error("alive after its release")
		}
		take(t, stranger)
		if err := l.Release(t.Context()); err == nil || !alive(t, r) {
			t.Errorf("a former holder released another's lease: %v", err)
		}
	})
}

// A renewal that landed with its answer lost must not cost the lease.
func TestLease_LostAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, s *natstest.Server, r *registry.Registry) {
		l := newLease(t, r, "lock")
		take(t, l)
		kv := bucket(t, s, registry.LeasesBucket)
		e, err := kv.Get(t.Context(), "w.w1")
		if err != nil {
			t.Fatal(err)
		}
		// What the server did with the renewal that nobody heard of.
		if _, err := kv.Put(t.Context(), "w.w1", e.Value()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl / 2)
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l.Left() != ttl {
			t.Errorf("left %s, want a full %s", l.Left(), ttl)
		}
	})
}

func TestLease_OutageLongerThanTheTTL(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		s := natstest.Start(t, "")
		natstest.Provision(t, s.JS, streams.Options{})
		r := open(t, s)
		l := newLease(t, r, "lock")
		take(t, l)
		s.Down()
		for l.Valid() {
			if err := l.Renew(t.Context()); err == nil {
				t.Fatal("renewed without a server")
			}
			time.Sleep(ttl / 4)
		}
		time.Sleep(2 * ttl)
		s.Up(t)
		if err := l.Renew(t.Context()); !errors.Is(err, registry.ErrLeaseLost) {
			t.Errorf("renewed after the outage: %v", err)
		}
		waitfor.Until(t, "the lease to be taken again", func() bool { return l.Take(t.Context()) == nil })
		if l.HeldFull() {
			t.Error("held full right after the outage")
		}
	})
}
