package ingress

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// largeBytes bounds the bodies over smallBody that are under way, smallBytes
	// the others. Most deliveries are a few KiB; whoever holds a large one open,
	// or only claims to send one, does not keep them out.
	largeBytes = 64 << 20
	smallBytes = 32 << 20
	smallBody  = 1 << 20
)

// gate admits bodies by their size.
type gate struct {
	large, small       *semaphore.Weighted
	maxLarge, maxSmall int64
}

func newGate(large, small int64) *gate {
	return &gate{large: semaphore.NewWeighted(large), small: semaphore.NewWeighted(small), maxLarge: large, maxSmall: small}
}

// enter waits for room for n bytes, or until ctx ends, but no longer than wait.
// What is larger than the gate passes alone.
func (g *gate) enter(ctx context.Context, n int64, wait time.Duration) (leave func(), err error) {
	sem, n := g.pool(n)
	if !sem.TryAcquire(n) {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		if err := sem.Acquire(ctx, n); err != nil {
			return nil, err
		}
	}
	return func() { sem.Release(n) }, nil
}

func (g *gate) pool(n int64) (*semaphore.Weighted, int64) {
	if n <= smallBody {
		return g.small, min(n, g.maxSmall)
	}
	return g.large, min(n, g.maxLarge)
}
