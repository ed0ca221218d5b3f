package natstest

import (
	"testing"

	"loopfleet/streams"
)

// Provision makes the product's streams, buckets and shared consumers: as
// opts say or, without opts, on disk outside a bubble and in memory inside one.
func Provision(t *testing.T, js streams.Server, opts ...streams.Options) {
	t.Helper()
	_, bubble := bubbles.Load(t)
	o := streams.Options{Memory: bubble}
	if len(opts) > 0 {
		o = opts[0]
	}
	if _, err := streams.Apply(t.Context(), js, o); err != nil {
		t.Fatalf("natstest: provision: %v", err)
	}
}
