package process

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"loopfleet/pkg/fault"
)

// Variables that make a process fail on purpose. They are for tests.
const (
	// EnvLag delays every write after a side effect: a duration such as 500ms.
	EnvLag = "DISPATCH_LAG"
	// EnvKill ends the process as kill -9 does when it passes a fault point for
	// the nth time: <point>:<nth>, counted from 1.
	EnvKill = "FAULT_KILL"
)

// InjectFaults honours DISPATCH_LAG and FAULT_KILL. With both, the process waits
// first and ends then: the side effect has had its time and was not recorded.
func InjectFaults(getenv func(string) string) error {
	var hooks []fault.Hook
	if v := getenv(EnvLag); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			return fmt.Errorf("%s %q: %w", EnvLag, v, err)
		}
		hooks = append(hooks, fault.Lag(d))
	}
	if v := getenv(EnvKill); v != "" {
		at, nth, err := parseKill(v)
		if err != nil {
			return fmt.Errorf("%s %q: %w", EnvKill, v, err)
		}
		hooks = append(hooks, killAt(at, nth, killSelf))
	}
	if len(hooks) > 0 {
		fault.Set(func(ctx context.Context, p fault.Point) {
			for _, h := range hooks {
				h(ctx, p)
			}
		})
	}
	return nil
}

func parseKill(v string) (fault.Point, int64, error) {
	name, count, ok := strings.Cut(v, ":")
	p := fault.Point(name)
	if !ok || !slices.Contains(fault.Points, p) {
		return "", 0, fmt.Errorf("it is <point>:<nth> with one of the points %q", fault.Points)
	}
	nth, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		return "", 0, err
	}
	if nth < 1 {
		return "", 0, fmt.Errorf("passes are counted from 1, not %d", nth)
	}
	return p, nth, nil
}

// killAt returns a hook that calls kill at the nth pass of a point.
func killAt(at fault.Point, nth int64, kill func()) fault.Hook {
	var passes atomic.Int64
	return func(_ context.Context, p fault.Point) {
		if p == at && passes.Add(1) == nth {
			kill()
		}
	}
}

// killSelf ends the process without a last word, as a crash does.
func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal may take a moment; nothing may be written meanwhile
}
