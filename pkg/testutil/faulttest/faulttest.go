package faulttest

import (
	"fmt"
	"os"
	"time"

	"loopfleet/pkg/fault"
)

// Lag honours DISPATCH_LAG for this test process. Call it from TestMain, before
// the tests run; it panics when the variable is no duration.
func Lag() {
	v := os.Getenv("DISPATCH_LAG")
	if v == "" {
		return
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		panic(fmt.Sprintf("faulttest: DISPATCH_LAG: %v", err))
	}
	fault.Set(fault.Lag(d))
}
