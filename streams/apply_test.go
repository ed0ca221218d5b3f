package streams_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"loopfleet/pkg/registry"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/streams"
)

// objects is how many definitions Apply makes: all but the lane's template.
var objects = len(streams.Definitions()) - 1

func apply(t *testing.T, s *natstest.Server, opts streams.Options) streams.Diff {
	t.Helper()
	d, err := streams.Apply(t.Context(), s.JS, opts)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func plan(t *testing.T, s *natstest.Server, opts streams.Options) streams.Diff {
	t.Helper()
	d, err := streams.Plan(t.Context(), s.JS, opts)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// change updates a stream by hand, as an operator would.
func change(t *testing.T, s *natstest.Server, name string, fn func(*jetstream.StreamConfig)) {
	t.Helper()
	cfg := serverConfig(t, s, name)
	fn(&cfg)
	if _, err := s.JS.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

func TestApply_IsIdempotent(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]streams.Options{
		"disk":   {},
		"memory": {Memory: true},
		"site":   {LeaseTTL: 2 * time.Second, MaxBytes: map[string]int64{streams.Events: 64 << 20}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natstest.Start(t, "")
			if d := apply(t, s, opts); d.Count(streams.Create) != objects {
				t.Fatalf("on an empty server:\n%s", d)
			}
			if d := apply(t, s, opts); !d.Clean() {
				t.Errorf("the second time:\n%s", d)
			}
			s.Restart(t)
			if d := plan(t, s, opts); !opts.Memory && !d.Clean() {
				t.Errorf("after a restart:\n%s", d)
			}
		})
	}
}

func TestApply_LogIsAsyncBesideSyncAlways(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, "", func(o *server.Options) { o.SyncAlways = true })
	apply(t, s, streams.Options{})
	if m := serverConfig(t, s, streams.Log).PersistMode; m != jetstream.AsyncPersistMode {
		t.Errorf("LOOP_LOG persist_mode %v, want async", m)
	}
	if m := serverConfig(t, s, streams.Events).PersistMode; m != jetstream.DefaultPersistMode {
		t.Errorf("LOOP_EVENTS persist_mode %v, want the default: a 202 is a promise", m)
	}
	if _, err := s.JS.Publish(t.Context(), "loop.log.x", []byte("{}")); err != nil {
		t.Error(err)
	}
}

func TestApply_RepairsDriftAndKeepsWhatItDoesNotDefine(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, "")
	apply(t, s, streams.Options{})
	change(t, s, streams.Events, func(c *jetstream.StreamConfig) {
		c.MaxAge, c.Metadata["team"] = 24*time.Hour, "ours"
	})
	cons := consumerConfig(t, s, streams.Doorbell)
	cons.AckWait = time.Minute
	if _, err := s.JS.UpdateConsumer(t.Context(), streams.Events, cons); err != nil {
		t.Fatal(err)
	}
	if _, err := s.JS.CreateConsumer(t.Context(), streams.Events, jetstream.ConsumerConfig{Durable: "theirs"}); err != nil {
		t.Fatal(err)
	}

	text := plan(t, s, streams.Options{}).String()
	for _, want := range []string{
		"~ stream LOOP_EVENTS: update\n    max_age: 1d -> 14d\n",
		"~ consumer doorbell: update\n    ack_wait: 1m -> 10s\n",
		"0 to create, 2 to update, 0 refused,",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("plan lacks %q:\n%s", want, text)
		}
	}
	if got := serverConfig(t, s, streams.Events).MaxAge; got != 24*time.Hour {
		t.Fatalf("plan changed max_age to %s", got)
	}

	apply(t, s, streams.Options{})
	got := serverConfig(t, s, streams.Events)
	if got.MaxAge != streams.EventsMaxAge || got.Metadata["team"] != "ours" {
		t.Errorf("max_age %s, metadata %v", got.MaxAge, got.Metadata)
	}
	if w := consumerConfig(t, s, streams.Doorbell).AckWait; w != 10*time.Second {
		t.Errorf("doorbell ack_wait %s", w)
	}
	consumerConfig(t, s, "theirs")
}

func consumerConfig(t *testing.T, s *natstest.Server, name string) jetstream.ConsumerConfig {
	t.Helper()
	c, err := s.JS.Consumer(t.Context(), streams.Events, name)
	if err != nil {
		t.Fatal(err)
	}
	return c.CachedInfo().Config
}

func TestApply_Refuses(t *testing.T) {
	t.Parallel()
	// made creates LOOP_EVENTS in another form before we come.
	made := func(fn func(*jetstream.StreamConfig)) func(*testing.T, *natstest.Server) {
		return func(t *testing.T, s *natstest.Server) {
			t.Helper()
			cfg := streamConfig(t, "stream/LOOP_EVENTS.json")
			fn(&cfg)
			if _, err := s.JS.CreateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := map[string]struct {
		setup  func(*testing.T, *natstest.Server)
		opts   streams.Options
		object string
		reason string
	}{
		"another retention": {
			setup:  made(func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }),
			object: streams.Events, reason: "retention can only be set when the stream is made: save what you need with `nats stream backup LOOP_EVENTS DIR`",
		},
		"another storage": {
			setup:  made(func(*jetstream.StreamConfig) {}),
			opts:   streams.Options{Memory: true},
			object: streams.Events, reason: "storage can only be set when the stream is made",
		},
		"a subject of somebody's": {
			setup:  made(func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "loop.mine.>") }),
			object: streams.Events, reason: "messages of loop.mine.> would no longer be stored",
		},
		"purge denied": {
			setup:  made(func(c *jetstream.StreamConfig) { c.DenyPurge = true }),
			object: streams.Events, reason: "deny_purge can only be set when the stream is made",
		},
		"the log not async": {
			setup: func(t *testing.T, s *natstest.Server) {
				t.Helper()
				cfg := streamConfig(t, "stream/LOOP_LOG.json")
				cfg.PersistMode = jetstream.DefaultPersistMode
				if _, err := s.JS.CreateStream(t.Context(), cfg); err != nil {
					t.Fatal(err)
				}
			},
			object: streams.Log, reason: "persist_mode can only be set when the stream is made",
		},
		"stored messages beyond the new size": {
			setup: func(t *testing.T, s *natstest.Server) {
				t.Helper()
				made(func(*jetstream.StreamConfig) {})(t, s)
				if _, err := s.JS.Publish(t.Context(), "loop.events.a", make([]byte, 4096)); err != nil {
					t.Fatal(err)
				}
			},
			opts:   streams.Options{MaxBytes: map[string]int64{streams.Events: 1024}},
			object: streams.Events, reason: "run `nats stream edit LOOP_EVENTS --max-bytes=1024`",
		},
		"a bucket's history": {
			setup: func(t *testing.T, s *natstest.Server) {
				t.Helper()
				kv, err := s.JS.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "loop_links", History: 5})
				if err != nil {
					t.Fatal(err)
				}
				for _, v := range []string{"old", "new"} {
					if _, err := kv.PutString(t.Context(), "k", v); err != nil {
						t.Fatal(err)
					}
				}
			},
			object: "loop_links", reason: "run `nats stream edit KV_loop_links --max-msgs-per-subject=1`",
		},
		"a consumer's ack policy": {
			setup: func(t *testing.T, s *natstest.Server) {
				t.Helper()
				made(func(*jetstream.StreamConfig) {})(t, s)
				if _, err := s.JS.CreateConsumer(t.Context(), streams.Events, jetstream.ConsumerConfig{
					Durable: streams.Doorbell, FilterSubject: "loop.events.>", AckPolicy: jetstream.AckNonePolicy,
				}); err != nil {
					t.Fatal(err)
				}
			},
			object: streams.Doorbell, reason: "remove it with `nats consumer rm LOOP_EVENTS doorbell`",
		},
		"a push consumer": {
			setup: func(t *testing.T, s *natstest.Server) {
				t.Helper()
				made(func(*jetstream.StreamConfig) {})(t, s)
				if _, err := s.JS.CreatePushConsumer(t.Context(), streams.Events, jetstream.ConsumerConfig{
					Durable: streams.Control, DeliverSubject: "elsewhere",
				}); err != nil {
					t.Fatal(err)
				}
			},
			object: streams.Control, reason: "it is a push consumer",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natstest.Start(t, "")
			tt.setup(t, s)
			before := names(t, s)
			d, err := streams.Apply(t.Context(), s.JS, tt.opts)
			if !errors.Is(err, streams.ErrRefused) {
				t.Fatalf("error %v, want ErrRefused\n%s", err, d)
			}
			if !strings.Contains(err.Error(), tt.object+": ") || !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("error lacks %q of %s:\n%v", tt.reason, tt.object, err)
			}
			if d.Count(streams.Refuse) != 1 {
				t.Errorf("want one refusal:\n%s", d)
			}
			if diff := cmp.Diff(before, names(t, s)); diff != "" {
				t.Errorf("something was made all the same:\n%s", diff)
			}
		})
	}
}

func names(t *testing.T, s *natstest.Server) []string {
	t.Helper()
	var got []string
	l := s.JS.StreamNames(t.Context())
	for n := range l.Name() {
		got = append(got, n)
	}
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestApply_LowersALimitThatRemovesNothing(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, "")
	apply(t, s, streams.Options{})
	change(t, s, streams.Events, func(c *jetstream.StreamConfig) { c.MaxAge = 30 * 24 * time.Hour })
	if _, err := s.JS.Publish(t.Context(), "loop.events.a", []byte("young")); err != nil {
		t.Fatal(err)
	}
	apply(t, s, streams.Options{})
	if got := serverConfig(t, s, streams.Events).MaxAge; got != streams.EventsMaxAge {
		t.Errorf("max_age %s", got)
	}
}

func TestApply_ManyProcessesAtOnce(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, "")
	var g errgroup.Group
	for range 6 {
		js, err := jetstream.New(s.Connect(t))
		if err != nil {
			t.Fatal(err)
		}
		g.Go(func() error {
			_, err := streams.Apply(t.Context(), js, streams.Options{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if d := plan(t, s, streams.Options{}); !d.Clean() {
		t.Error(d)
	}
}

func TestApply_SubjectsOfAnotherStreamAreNamed(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, "")
	if _, err := s.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"loop.>"}}); err != nil {
		t.Fatal(err)
	}
	_, err := streams.Apply(t.Context(), s.JS, streams.Options{})
	if err == nil || !strings.Contains(err.Error(), "create stream LOOP_") {
		t.Errorf("error %v, want one that names the stream", err)
	}
}

func TestDiff_JSONIsStable(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, "")
	apply(t, s, streams.Options{})
	change(t, s, streams.Dead, func(c *jetstream.StreamConfig) { c.Description = "\x1b[31mred" })
	d := plan(t, s, streams.Options{})
	b, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"kind":"stream","name":"LOOP_DEAD","action":"update","fields":[{"name":"description","have":"\"\\x1b[31mred\"","want":"Events given up, with payload and reason, and other notices"}]}`
	if !strings.Contains(string(b), want) {
		t.Errorf("lacks %s:\n%s", want, b)
	}
	if strings.Contains(d.String(), "\x1b") {
		t.Error("an escape sequence reaches the terminal")
	}
}

func TestBuckets_LeaderReadsAndKeyTTLWork(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, "")
	apply(t, s, streams.Options{})
	for _, b := range []string{registry.RecordsBucket, registry.LeasesBucket} {
		kv, err := s.JS.KeyValue(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		rev, err := kv.Create(t.Context(), "k", []byte("v"), jetstream.KeyTTL(time.Minute))
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		e, err := kv.Get(t.Context(), "k")
		if err != nil || e.Revision() != rev {
			t.Errorf("%s: get: %v, %v", b, e, err)
		}
	}
}
