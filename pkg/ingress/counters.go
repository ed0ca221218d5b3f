package ingress

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"loopfleet/pkg/router"
)

// Stats counts what happened since the start.
type Stats struct {
	// Accepted counts the deliveries answered with 202.
	Accepted uint64
	// Published counts the events stored, Duplicates those that were there.
	Published  uint64
	Duplicates uint64
	// Rejected counts refused requests, Dropped unpublished deliveries, by
	// reason.
	Rejected map[string]uint64
	Dropped  map[string]uint64
}

// counters has maps of fixed words only: no request can make one grow.
type counters struct {
	accepted, published, duplicates atomic.Uint64

	mu       sync.Mutex
	rejected map[string]uint64
	dropped  map[string]uint64
}

func (c *counters) reject(r rejection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rejected == nil {
		c.rejected = map[string]uint64{}
	}
	c.rejected[string(r)]++
}

func (c *counters) drop(r router.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped == nil {
		c.dropped = map[string]uint64{}
	}
	c.dropped[string(r)]++
}

// Stats returns the counters as of now.
func (s *Server) Stats() Stats {
	c := &s.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{
		Accepted: c.accepted.Load(), Published: c.published.Load(), Duplicates: c.duplicates.Load(),
		Rejected: maps.Clone(c.rejected), Dropped: maps.Clone(c.dropped),
	}
}

const (
	// refusalBurst and refusalsPerSecond bound the log lines about refused
	// requests: anybody can cause them, and the log discards its oldest lines.
	refusalBurst      = 200
	refusalsPerSecond = 20
)

// limiter is a bucket of log lines. The zero value is full.
type limiter struct {
	mu     sync.Mutex
	spent  float64
	last   time.Time
	hidden uint64
}

// allow reports whether a line may be written at now, and how many were not
// since the last one.
func (l *limiter) allow(now time.Time) (ok bool, hidden uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.last.IsZero() {
		l.spent = max(0, l.spent-now.Sub(l.last).Seconds()*refusalsPerSecond)
	}
	l.last = now
	if l.spent+1 > refusalBurst {
		l.hidden++
		return false, 0
	}
	l.spent++
	hidden, l.hidden = l.hidden, 0
	return true, hidden
}
