package streams_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/registry"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/streams"
)

func TestLeases_ExpireAfterTheirTTL(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		s := natstest.Start(t, "")
		natstest.Provision(t, s.JS)
		kv, err := s.JS.KeyValue(t.Context(), registry.LeasesBucket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.PutString(t.Context(), "w", "alive"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(streams.LeaseTTL - time.Second)
		if _, err := kv.Get(t.Context(), "w"); err != nil {
			t.Errorf("a second before the end: %v", err)
		}
		time.Sleep(2 * time.Second)
		if _, err := kv.Get(t.Context(), "w"); !errors.Is(err, jetstream.ErrKeyNotFound) {
			t.Errorf("a second after the end: %v", err)
		}
	})
}
