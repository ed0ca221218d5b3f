package streams_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"loopfleet/pkg/registry"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/workitem"
	"loopfleet/streams"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func strict(t *testing.T, b []byte, into any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		t.Fatalf("decode: %v\n%s", err, b)
	}
}

func definition(t *testing.T, path string) streams.Definition {
	t.Helper()
	for _, d := range streams.Definitions() {
		if d.Path() == path {
			return d
		}
	}
	t.Fatalf("no definition %s", path)
	return streams.Definition{}
}

func streamConfig(t *testing.T, path string) jetstream.StreamConfig {
	t.Helper()
	var cfg jetstream.StreamConfig
	strict(t, definition(t, path).JSON, &cfg)
	return cfg
}

func TestDefinitions_EveryFileIsRead(t *testing.T) {
	t.Parallel()
	var want []string
	for _, dir := range []string{"stream", "bucket", "consumer"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			want = append(want, dir+"/"+e.Name())
		}
	}
	var got []string
	for _, d := range streams.Definitions() {
		got = append(got, d.Path())
		if d.Kind == streams.Consumer || d.Kind == streams.Lanes {
			strict(t, d.JSON, &jetstream.ConsumerConfig{})
		} else {
			strict(t, d.JSON, &jetstream.StreamConfig{})
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestDefinitions_AgreeWithTheWordsOfTheOtherPackages(t *testing.T) {
	t.Parallel()
	events := streamConfig(t, "stream/LOOP_EVENTS.json")
	wantSubjects := []string{workitem.EventsPrefix + ">", workitem.ControlPrefix + ">"}
	if d := cmp.Diff(wantSubjects, events.Subjects); d != "" {
		t.Error(d)
	}
	if events.MaxAge != streams.EventsMaxAge {
		t.Errorf("LOOP_EVENTS max_age %s, want %s", events.MaxAge, streams.EventsMaxAge)
	}
	if events.MaxConsumers != 10000 {
		t.Errorf("max_consumers %d: the server's default stops at 1,000 lanes", events.MaxConsumers)
	}
	if events.AllowDirect {
		t.Error("LOOP_EVENTS allows direct get: control folds must read the leader")
	}
	dead := streamConfig(t, "stream/LOOP_DEAD.json")
	if d := cmp.Diff([]string{workitem.DeadPrefix + ">", "loop.notice.>"}, dead.Subjects); d != "" {
		t.Error(d)
	}
	if ttl := streamConfig(t, "bucket/loop_dedup.json").MaxAge; ttl != streams.OutcomeTTL {
		t.Errorf("loop_dedup max_age %s, want %s", ttl, streams.OutcomeTTL)
	}
	if ttl := streamConfig(t, "bucket/loop_leases.json").MaxAge; ttl != streams.LeaseTTL {
		t.Errorf("loop_leases max_age %s, want %s", ttl, streams.LeaseTTL)
	}
	for _, b := range []string{
		registry.RecordsBucket, registry.DedupBucket, registry.LinksBucket,
		registry.ReposBucket, registry.WorkersBucket, registry.LeasesBucket,
	} {
		definition(t, "bucket/"+b+".json")
	}
}

func TestLane_IsTheTemplateWithoutItsPlaceholders(t *testing.T) {
	t.Parallel()
	want := jetstream.ConsumerConfig{
		Description: "One work item in order", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, ReplayPolicy: jetstream.ReplayInstantPolicy,
		MaxDeliver: -1, MaxAckPending: 1, MaxWaiting: 8, Replicas: 3,
	}
	if d := cmp.Diff(want, streams.Lane(3)); d != "" {
		t.Error(d)
	}
}

func TestLane_ServerKeepsIt(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, "")
	natstest.Provision(t, s.JS)
	cfg := streams.Lane(1)
	cfg.Durable, cfg.FilterSubject, cfg.OptStartSeq = "lane-x", "loop.events.h.o.r.1", 7
	c, err := s.JS.CreateConsumer(t.Context(), streams.Events, cfg)
	if err != nil {
		t.Fatal(err)
	}
	got := c.CachedInfo().Config
	if got.MaxAckPending != 1 || got.AckWait != time.Minute || got.MaxWaiting != 8 || got.InactiveThreshold != 0 ||
		got.MaxDeliver != -1 || got.OptStartSeq != 7 || len(got.BackOff) != 0 {
		t.Errorf("lane on the server: %+v", got)
	}
}

// TestBuckets_AreWhatTheClientMakes compares each bucket with the one that
// nats.go makes from the same wishes, but for direct get, which it cannot turn
// off.
func TestBuckets_AreWhatTheClientMakes(t *testing.T) {
	t.Parallel()
	ours, theirs := natstest.Start(t, ""), natstest.Start(t, "")
	natstest.Provision(t, ours.JS)
	for _, d := range streams.Definitions() {
		if d.Kind != streams.Bucket {
			continue
		}
		kv, err := ours.JS.KeyValue(t.Context(), d.Name)
		if err != nil {
			t.Fatalf("bind %s: %v", d.Name, err)
		}
		st, err := kv.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = theirs.JS.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{
			Bucket: d.Name, Description: streamConfig(t, d.Path()).Description, TTL: st.TTL(), LimitMarkerTTL: st.LimitMarkerTTL(),
		})
		if err != nil {
			t.Fatal(err)
		}
		leader := d.Name == registry.RecordsBucket || d.Name == registry.LeasesBucket
		got, want := serverConfig(t, ours, "KV_"+d.Name), serverConfig(t, theirs, "KV_"+d.Name)
		if got.AllowDirect == leader {
			t.Errorf("%s: allow_direct %t: registry and leases are read from the leader", d.Name, got.AllowDirect)
		}
		got.AllowDirect, got.Metadata, want.Metadata = true, nil, nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", d.Name, diff)
		}
	}
}

func serverConfig(t *testing.T, s *natstest.Server, name string) jetstream.StreamConfig {
	t.Helper()
	st, err := s.JS.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return st.CachedInfo().Config
}

func TestDefinitions_SayWhatTheyAre(t *testing.T) {
	t.Parallel()
	for _, d := range streams.Definitions() {
		var head struct {
			Description string `json:"description"`
		}
		if err := json.Unmarshal(d.JSON, &head); err != nil || strings.TrimSpace(head.Description) == "" {
			t.Errorf("%s has no description (%v)", d.Path(), err)
		}
	}
}
