package streams_test

import (
	"testing"

	"loopfleet/pkg/testutil/natstest"
	"loopfleet/streams"
)

// A server that has nothing yet counts no copies, one that was set up keeps
// what it has when nobody asks for another number.
func TestReplicasAreKept(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, "")
	for _, want := range []int{0, 1} {
		n, err := streams.Replicas(t.Context(), s.JS)
		if err != nil || n != want {
			t.Fatalf("Replicas: %d, %v; want %d", n, err, want)
		}
		if _, err := streams.Apply(t.Context(), s.JS, streams.Options{}); err != nil {
			t.Fatal(err)
		}
	}
}
