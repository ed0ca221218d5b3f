package waitfor_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"loopfleet/pkg/testutil/waitfor"
)

func TestUntil_MovesTheFakeClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var done atomic.Bool
		time.AfterFunc(2*time.Minute, func() { done.Store(true) })
		waitfor.Until(t, "the timer", done.Load)
		if d := time.Since(start); d < 2*time.Minute || d > 2*time.Minute+time.Second {
			t.Errorf("waited %s of the fake clock, want 2m", d)
		}
	})
}
