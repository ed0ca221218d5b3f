package waitfor_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"loopfleet/pkg/testutil/waitfor"
)

func TestUntil_ReturnsWhenTheConditionHolds(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	waitfor.Until(t, "three looks", func() bool { return n.Add(1) == 3 })
	if n.Load() != 3 {
		t.Errorf("looked %d times, want 3", n.Load())
	}
}

func TestValue_ReturnsTheValueThatCameWithTrue(t *testing.T) {
	t.Parallel()
	n := 0
	got := waitfor.Value(t, "four", func() (int, bool) { n++; return n, n == 4 })
	if got != 4 {
		t.Errorf("got %d, want 4", got)
	}
}

// recorder is a test that ends as a failed one does, and keeps its message.
type recorder struct {
	*testing.T
	left    time.Duration
	message string
}

func (r *recorder) Helper() {}

func (r *recorder) Deadline() (time.Time, bool) { return time.Now().Add(r.left), true }

func (r *recorder) Fatalf(format string, args ...any) {
	r.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failure runs fn with a test that has the given time left and returns the
// message it failed with.
func failure(t *testing.T, left time.Duration, fn func(testing.TB)) string {
	t.Helper()
	r := &recorder{T: t, left: left}
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn(r)
	}()
	<-done
	return r.message
}

func TestUntil_FailsBeforeTheTestBinaryIsKilled(t *testing.T) {
	t.Parallel()
	msg := failure(t, time.Second, func(tb testing.TB) {
		tb.Helper()
		waitfor.Until(tb, "a miracle", func() bool { return false })
	})
	if !strings.Contains(msg, "for a miracle") {
		t.Errorf("failed with %q", msg)
	}
}

func TestValue_FailsWithTheLastValueSeen(t *testing.T) {
	t.Parallel()
	type state struct{ Name string }
	msg := failure(t, 5*time.Second+30*time.Millisecond, func(tb testing.TB) {
		tb.Helper()
		waitfor.Value(tb, "active", func() (state, bool) { return state{"starting"}, false })
	})
	if !strings.Contains(msg, "for active; last seen: {Name:starting}") {
		t.Errorf("failed with %q", msg)
	}
}
