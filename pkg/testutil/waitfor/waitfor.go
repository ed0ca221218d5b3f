package waitfor

import (
	"testing"
	"time"
)

const (
	// Limit is the longest wait on the real clock.
	Limit = 60 * time.Second
	// BubbleLimit is the longest wait on a bubble's fake clock.
	BubbleLimit = 10 * time.Minute

	// poll is short because most conditions hold within a few milliseconds.
	poll = 5 * time.Millisecond
	// margin leaves the time to print what was seen and to clean up before the
	// test binary is killed with nothing but a stack dump.
	margin = 5 * time.Second
)

// Until waits until cond holds. What says what is waited for, as in
// "the session to be active"; it is the failure's text.
func Until(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	start := time.Now()
	if !wait(limit(tb, start), cond) {
		tb.Fatalf("waited %s for %s", time.Since(start).Round(time.Millisecond), what)
	}
}

// Value waits until look answers true and returns the value that came with it.
// When that never happens, the failure shows the last value seen.
func Value[T any](tb testing.TB, what string, look func() (T, bool)) T {
	tb.Helper()
	var last T
	start := time.Now()
	ok := wait(limit(tb, start), func() bool {
		v, ok := look()
		last = v
		return ok
	})
	if !ok {
		tb.Fatalf("waited %s for %s; last seen: %+v", time.Since(start).Round(time.Millisecond), what, last)
	}
	return last
}

// wait looks at least once, and a last time when the time is up: the machine
// may have given us no turn in between.
func wait(d time.Duration, cond func() bool) bool {
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for !cond() {
		select {
		case <-timeout.C:
			return cond()
		case <-tick.C:
		}
	}
	return true
}

// limit is how long a wait that begins now may take.
func limit(tb testing.TB, now time.Time) time.Duration {
	tb.Helper()
	dt, ok := tb.(interface{ Deadline() (time.Time, bool) })
	if !ok { // a benchmark or a fuzz target
		return Limit
	}
	deadline, ok, bubble := realDeadline(dt.Deadline)
	switch {
	case bubble:
		return BubbleLimit
	case !ok:
		return Limit
	default:
		return min(Limit, max(0, deadline.Sub(now)-margin))
	}
}

// realDeadline asks for the deadline; Deadline panics inside a bubble, where it
// would be a time of the wrong clock, and there is no other way to find out.
func realDeadline(ask func() (time.Time, bool)) (deadline time.Time, ok, bubble bool) {
	defer func() {
		if recover() != nil {
			bubble = true
		}
	}()
	deadline, ok = ask()
	return deadline, ok, false
}
