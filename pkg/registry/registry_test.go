package registry_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/workitem"
	"loopfleet/streams"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ref(tb testing.TB, s string) workitem.Ref {
	tb.Helper()
	r, err := workitem.Parse(s)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func open(t *testing.T, s *natstest.Server) *registry.Registry {
	t.Helper()
	r, err := registry.Open(t.Context(), s.JS)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func setup(t *testing.T) (*natstest.Server, *registry.Registry) {
	t.Helper()
	s := natstest.Start(t, "")
	natstest.Provision(t, s.JS, streams.Options{Memory: true})
	return s, open(t, s)
}

func bucket(t *testing.T, s *natstest.Server, name string) jetstream.KeyValue {
	t.Helper()
	kv, err := s.JS.KeyValue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

func TestOpen_SaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, "")
	if _, err := registry.Open(t.Context(), s.JS); !errors.Is(err, jetstream.ErrBucketNotFound) {
		t.Errorf("without buckets: %v", err)
	}
}

func TestPut_IsCompareAndSet(t *testing.T) {
	t.Parallel()
	_, r := setup(t)
	item := ref(t, "octo/hello#1")
	e, err := r.Get(t.Context(), item)
	if err != nil || e.Revision != 0 || e.Record.Want != record.Run || e.Record.WorkItem != item {
		t.Fatalf("an item without a record: %+v, %v", e, err)
	}
	e.Record.Owner = "w1"
	rev, err := r.Put(t.Context(), e.Record, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Put(t.Context(), e.Record, 0); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("creating it again: %v", err)
	}
	mine, theirs := e.Record, e.Record
	theirs.Owner = "w2"
	if _, err := r.Put(t.Context(), theirs, rev); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Put(t.Context(), mine, rev); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("a stale owner's write: %v", err)
	}
	if e, err = r.Get(t.Context(), item); err != nil || e.Record.Owner != "w2" {
		t.Errorf("the record is %+v, %v", e, err)
	}
}

func TestPut_OneOfManyWins(t *testing.T) {
	t.Parallel()
	_, r := setup(t)
	item := ref(t, "octo/hello#1")
	for round := range uint64(5) {
		cur, err := r.Get(t.Context(), item)
		if err != nil {
			t.Fatal(err)
		}
		var won atomic.Int32
		g, ctx := errgroup.WithContext(t.Context())
		for i := range 8 {
			g.Go(func() error {
				rec := cur.Record.Clone()
				rec.Owner, rec.Floor = fmt.Sprintf("w%d", i), round
				switch _, err := r.Put(ctx, rec, cur.Revision); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, registry.ErrConflict):
					return err
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if won.Load() != 1 {
			t.Fatalf("round %d: %d writers won", round, won.Load())
		}
	}
}

func TestGet_RoundTripsEverything(t *testing.T) {
	t.Parallel()
	_, r := setup(t)
	now := time.Now().UTC().Truncate(time.Millisecond)
	rec := record.New(ref(t, "gitlab:gitlab.example.com/group/sub/my.repo#i7"))
	rec.Owner, rec.Harness, rec.Title = "w1", "demo", "Ünïcode \x1b[31m title"
	rec.Arm(now)
	rec.Set(record.StateActive, "", now)
	rec.Session = &record.Session{Token: "t", Host: "w1", PanePID: 3, ServerStart: 1 << 60, StartedAt: now}
	rec.Finish(record.Outcome{EventID: "label-a", Kind: record.Done, Seq: 3, At: now})
	rec.Begin("comment-a", 1, 4)
	rec.Fail("no tmux", now)
	rec.Fold([]record.Control{{EventID: "pause-a", Kind: "pause", Seq: 5, At: now}})
	rev, err := r.Put(t.Context(), rec, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Get(t.Context(), rec.WorkItem)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(registry.Entry{Record: rec, Revision: rev}, got); diff != "" {
		t.Error(diff)
	}
	list, err := r.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]registry.Entry{got}, list); diff != "" {
		t.Error(diff)
	}
}

// A key that was deleted, or has expired, leaves a marker with a revision.
func TestPut_AfterTheRecordWasDeleted(t *testing.T) {
	t.Parallel()
	s, r := setup(t)
	item := ref(t, "octo/hello#1")
	if _, err := r.Put(t.Context(), record.New(item), 0); err != nil {
		t.Fatal(err)
	}
	if err := bucket(t, s, registry.RecordsBucket).Delete(t.Context(), item.Key()); err != nil {
		t.Fatal(err)
	}
	e, err := r.Get(t.Context(), item)
	if err != nil || e.Revision != 0 {
		t.Fatalf("%+v, %v", e, err)
	}
	if _, err := r.Put(t.Context(), e.Record, e.Revision); err != nil {
		t.Errorf("a deleted record cannot be made anew: %v", err)
	}
}

func TestList_OneUnreadableRecordHidesNoOther(t *testing.T) {
	t.Parallel()
	s, r := setup(t)
	kv := bucket(t, s, registry.RecordsBucket)
	good := ref(t, "octo/hello#1")
	if _, err := r.Put(t.Context(), record.New(good), 0); err != nil {
		t.Fatal(err)
	}
	for n, value := range map[string]string{
		"2": "{", "3": `{"version":99,"work_item":"github:octo/hello#3"}`, "4": `{"version":1,"work_item":"github:octo/other#4"}`,
	} {
		item := ref(t, "octo/hello#"+n)
		if _, err := kv.PutString(t.Context(), item.Key(), value); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Get(t.Context(), item); !errors.Is(err, registry.ErrUnreadable) {
			t.Errorf("get of %s: %v", value, err)
		}
	}
	list, err := r.List(t.Context())
	if !errors.Is(err, registry.ErrUnreadable) {
		t.Errorf("list: %v, want ErrUnreadable", err)
	}
	if len(list) != 1 || list[0].Record.WorkItem != good {
		t.Errorf("list: %+v", list)
	}
}

// rule: RR-09 rule: RR-10
func TestOutcome_IsWrittenOnceByItemAndGeneration(t *testing.T) {
	t.Parallel()
	_, r := setup(t)
	ctx := t.Context()
	item, other := ref(t, "octo/hello#1"), ref(t, "octo/hello#2")
	if _, ok, err := r.Outcome(ctx, item, "comment-a", 0); ok || err != nil {
		t.Fatalf("nothing happened yet: %t, %v", ok, err)
	}
	put := func(item workitem.Ref, gen int, kind record.OutcomeKind) bool {
		t.Helper()
		created, err := r.PutOutcome(ctx, item, record.Outcome{EventID: "comment-a", Generation: gen, Kind: kind, Seq: 7})
		if err != nil {
			t.Fatal(err)
		}
		return created
	}
	if !put(item, 0, record.Dead) || put(item, 0, record.Done) {
		t.Error("the first outcome does not stay")
	}
	if o, ok, err := r.Outcome(ctx, item, "comment-a", 0); err != nil || !ok || o.Kind != record.Dead || o.Seq != 7 {
		t.Errorf("outcome %+v, %t, %v", o, ok, err)
	}
	if !put(item, 1, record.Done) || !put(other, 0, record.Dropped) {
		t.Error("generation and item have outcomes of their own")
	}
	all, err := r.Outcomes(ctx, "comment-a")
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, o := range all {
		if o.WorkItem == other != (o.Kind == record.Dropped) {
			t.Errorf("%+v", o)
		}
	}
	for _, id := range []string{"comment-b", "*", "comment-a.g0", ">", ""} {
		if got, err := r.Outcomes(ctx, id); err != nil || len(got) != 0 {
			t.Errorf("outcomes of %q: %+v, %v", id, got, err)
		}
	}
}

func TestOutcomes_ItemThatReadsLikeAnEvent(t *testing.T) {
	t.Parallel()
	_, r := setup(t)
	item := ref(t, "comment-a/g0#1")
	if _, err := r.PutOutcome(t.Context(), item, record.Outcome{EventID: "comment-a", Kind: record.Done}); err != nil {
		t.Fatal(err)
	}
	all, err := r.Outcomes(t.Context(), "comment-a")
	if err != nil || len(all) != 1 || all[0].WorkItem != item {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestOutcome_OneOfManyWins(t *testing.T) {
	t.Parallel()
	_, r := setup(t)
	item := ref(t, "octo/hello#1")
	var created atomic.Int32
	g, ctx := errgroup.WithContext(t.Context())
	for i := range 16 {
		g.Go(func() error {
			ok, err := r.PutOutcome(ctx, item, record.Outcome{EventID: "e", Kind: record.Done, Seq: uint64(i)})
			if ok {
				created.Add(1)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if created.Load() != 1 {
		t.Errorf("%d outcomes were the first", created.Load())
	}
}

func TestWorkers(t *testing.T) {
	t.Parallel()
	_, r := setup(t)
	ctx := t.Context()
	if _, ok, err := r.Worker(ctx, "Host.A/1"); ok || err != nil {
		t.Fatalf("%t, %v", ok, err)
	}
	for _, id := range []string{"Host.A/1", "b"} {
		if err := r.PutWorker(ctx, registry.Worker{ID: id, State: registry.WorkerRunning, Capacity: 3}); err != nil {
			t.Fatal(err)
		}
	}
	l, err := r.NewLease("b", streams.LeaseTTL, "lock-b")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Take(ctx); err != nil {
		t.Fatal(err)
	}
	if w, ok, err := r.Worker(ctx, "Host.A/1"); err != nil || !ok || w.Capacity != 3 {
		t.Errorf("%+v, %t, %v", w, ok, err)
	}
	all, alive, err := r.Workers(ctx)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	if diff := cmp.Diff(map[string]bool{"Host.A/1": false, "b": true}, alive); diff != "" {
		t.Error(diff)
	}
	if ttl, err := r.LeaseTTL(ctx); err != nil || ttl != streams.LeaseTTL {
		t.Errorf("ttl of leases %s, %v", ttl, err)
	}
}

func TestWatchLeases_TellsOfAnEnd(t *testing.T) {
	t.Parallel()
	_, r := setup(t)
	l, err := r.NewLease("w1", streams.LeaseTTL, "lock")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{}, 8)
	ctx, cancel := context.WithCancel(t.Context())
	watch := make(chan error, 1)
	go func() { watch <- r.WatchLeases(ctx, func() { ended <- struct{}{} }) }()
	// The watch tells of updates only and may begin late: take and release until
	// it has seen one.
	for seen := false; !seen; {
		if err := l.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
			seen = true
		case <-time.After(20 * time.Millisecond):
		}
	}
	cancel()
	if err := <-watch; !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v", err)
	}
}
