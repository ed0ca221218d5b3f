package ingress

import (
	"context"
	"errors"
	"testing"
	"time"

	"loopfleet/pkg/testutil/natstest"
	"loopfleet/streams"
)

func TestGate_LargeBodiesLeaveRoomForSmallOnes(t *testing.T) {
	t.Parallel()
	g := newGate(largeBytes, smallBytes)
	enter := func(n int64) (func(), error) { return g.enter(t.Context(), n, time.Millisecond) }
	form, err := enter(80 << 20) // larger than the gate: alone
	if err != nil {
		t.Fatal(err)
	}
	if _, err := enter(smallBody + 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second large body: %v", err)
	}
	small, err := enter(smallBody)
	if err != nil {
		t.Errorf("a small body: %v", err)
	}
	small()
	form()
	for range largeBytes / (25 << 20) {
		leave, err := enter(25 << 20)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
	}
	if _, err := enter(25 << 20); err == nil {
		t.Error("more than the gate holds")
	}
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	var l limiter
	now := time.Unix(1000, 0)
	for i := range refusalBurst {
		if ok, _ := l.allow(now); !ok {
			t.Fatalf("line %d of the burst is refused", i)
		}
	}
	for range 3 {
		if ok, _ := l.allow(now); ok {
			t.Fatal("the burst does not end")
		}
	}
	now = now.Add(time.Second)
	if ok, hidden := l.allow(now); !ok || hidden != 3 {
		t.Errorf("a second later: %t, %d hidden", ok, hidden)
	}
	for i := range refusalsPerSecond - 1 {
		if ok, hidden := l.allow(now); !ok || hidden != 0 {
			t.Errorf("line %d: %t, %d hidden", i, ok, hidden)
		}
	}
	if ok, _ := l.allow(now); ok {
		t.Error("more than the rate")
	}
}

// What is younger than sureOf is looked up in the stream alone.
func TestSureOf_IsWellWithinTheStreamsMemory(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t, "")
	natstest.Provision(t, n.JS)
	s, err := n.JS.Stream(t.Context(), streams.Events)
	if err != nil {
		t.Fatal(err)
	}
	if window := s.CachedInfo().Config.Duplicates; window < 2*sureOf {
		t.Errorf("the stream remembers ids for %s, and sureOf is %s", window, sureOf)
	}
}
