package natstest_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/testutil/waitfor"
)

func TestBubble_ServerFollowsTheFakeClock(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		s := natstest.Start(t, "")
		kv, err := s.JS.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{
			Bucket: "b", TTL: time.Minute, Storage: jetstream.MemoryStorage,
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.PutString(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		waitfor.Until(t, "the key to expire", func() bool {
			_, err := kv.Get(t.Context(), "k")
			return err != nil
		})
		if d := time.Since(start); d < time.Minute || d > 2*time.Minute {
			t.Errorf("the key lived %s of the fake clock, want about 1m", d)
		}
	})
}

func TestBubble_RestartKeepsFiles(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		s := natstest.Start(t, "")
		publish(t, s)
		s.Restart(t)
		wantKept(t, s)
	})
}
