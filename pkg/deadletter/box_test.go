package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"loopfleet/pkg/deadletter"
	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/workitem"
	"loopfleet/streams"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a real server with a box on it.
type bench struct {
	t   *testing.T
	s   *natstest.Server
	reg *registry.Registry
	box *deadletter.Box
}

func newBench(t *testing.T) *bench {
	t.Helper()
	s := natstest.Start(t, "")
	natstest.Provision(t, s.JS)
	reg, err := registry.Open(t.Context(), s.JS)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := queue.NewReader(t.Context(), s.JS)
	if err != nil {
		t.Fatal(err)
	}
	log, err := eventlog.New(s.JS, eventlog.Options{Source: "operator", Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close(context.WithoutCancel(t.Context())) })
	return &bench{t: t, s: s, reg: reg, box: deadletter.New(deadletter.Deps{
		JS: s.JS, Registry: reg, Events: reader, Publisher: queue.NewPublisher(s.JS), Log: log,
	})}
}

func ref(t *testing.T, n int) workitem.Ref {
	t.Helper()
	r, err := workitem.New(workitem.GitHub, "github.com", "octo", "hello.world", fmt.Sprint(n))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func letter(item workitem.Ref, id string, generation int) deadletter.Letter {
	return deadletter.Letter{
		Event: event.Event{
			ID: id, Generation: generation, Kind: event.Comment, Source: event.Webhook, WorkItem: item,
			At: time.Now().UTC().Truncate(time.Second), Body: "please \x1b[31mhelp", DeliveryID: "guid-1",
		},
		Reason: "attempts-spent", Error: "no agent", Attempts: 3, Seq: 7, Worker: "w1", At: time.Now().UTC(),
	}
}

func (b *bench) keep(l deadletter.Letter) {
	b.t.Helper()
	if err := deadletter.Keep(b.t.Context(), b.s.JS, l); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) list(item workitem.Ref) []deadletter.Entry {
	b.t.Helper()
	es, err := b.box.List(b.t.Context(), item)
	if err != nil {
		b.t.Fatal(err)
	}
	return es
}

// states are the states of an item's letters, oldest first.
func (b *bench) states(item workitem.Ref) string {
	b.t.Helper()
	var out []string
	for _, e := range b.list(item) {
		out = append(out, fmt.Sprintf("g%d %s", e.Event.Generation, e.State))
	}
	return strings.Join(out, ", ")
}

func (b *bench) wantStates(item workitem.Ref, want string) {
	b.t.Helper()
	if got := b.states(item); got != want {
		b.t.Errorf("letters: %s; want %s", got, want)
	}
}

func (b *bench) replay(l deadletter.Letter) deadletter.Replayed {
	b.t.Helper()
	r, err := b.box.Replay(b.t.Context(), l)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bench) outcome(item workitem.Ref, generation int, kind record.OutcomeKind) {
	b.t.Helper()
	_, err := b.reg.PutOutcome(b.t.Context(), item, record.Outcome{EventID: "comment-a", Generation: generation, Kind: kind, At: time.Now()})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) stored(item workitem.Ref) []event.Event {
	b.t.Helper()
	r, err := queue.NewReader(b.t.Context(), b.s.JS)
	if err != nil {
		b.t.Fatal(err)
	}
	evs, err := r.Events(b.t.Context(), item, 1, 100)
	if err != nil {
		b.t.Fatal(err)
	}
	var out []event.Event
	for _, e := range evs {
		out = append(out, e.Event)
	}
	return out
}

func (b *bench) messages(stream string) uint64 {
	b.t.Helper()
	st, err := b.s.JS.Stream(b.t.Context(), stream)
	if err != nil {
		b.t.Fatal(err)
	}
	return st.CachedInfo().State.Msgs
}

// A worker that died in its last attempt leaves the letter, and the next owner
// keeps it again: also after the stream has forgotten the message id.
func TestKeep_AgainDoesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	st, err := b.s.JS.Stream(t.Context(), streams.Dead)
	if err != nil {
		t.Fatal(err)
	}
	cfg := st.CachedInfo().Config
	cfg.Duplicates = 100 * time.Millisecond
	if _, err := b.s.JS.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	l := letter(ref(t, 1), "comment-a", 0)
	b.keep(l)
	timer := time.NewTimer(2 * cfg.Duplicates)
	<-timer.C // beyond the window, by the server's own clock
	l.Worker = "w2"
	b.keep(l)
	if n := b.messages(streams.Dead); n != 1 {
		t.Fatalf("%d letters kept, want 1", n)
	}
	if w := b.list(l.Event.WorkItem)[0].Worker; w != "w1" {
		t.Errorf("the letter is of %s, want the first, of w1", w)
	}
	b.keep(letter(ref(t, 1), "comment-a", 1))
	b.keep(letter(ref(t, 2), "comment-a", 0))
	if n := b.messages(streams.Dead); n != 3 {
		t.Errorf("%d letters kept, want 3: another generation and another item have their own", n)
	}
}

func TestList_NewestGenerationDecides(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	item := ref(t, 1)
	b.keep(letter(item, "comment-a", 0))
	b.outcome(item, 0, record.Dead)
	b.outcome(ref(t, 2), 1, record.Done) // of another item
	b.wantStates(item, "g0 open")

	b.replay(letter(item, "comment-a", 0))
	b.wantStates(item, "g0 in-flight")

	b.keep(letter(item, "comment-a", 1))
	b.wantStates(item, "g0 superseded, g1 open")

	b.outcome(item, 1, record.Dead)
	b.replay(letter(item, "comment-a", 1))
	b.wantStates(item, "g0 superseded, g1 in-flight")

	b.outcome(item, 2, record.Done)
	b.wantStates(item, "g0 settled, g1 settled")
	if es := b.list(item); es[1].Outcome.Kind != record.Done || es[1].Outcome.Generation != 2 {
		t.Errorf("outcome %+v, want done of generation 2", es[1].Outcome)
	}
}

// What the record knows counts before it has reached the dedup bucket.
func TestList_OutcomeInTheRecordOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	item := ref(t, 1)
	b.keep(letter(item, "comment-a", 0))
	rec := record.New(item)
	rec.Begin("comment-a", 1, 9)
	rev, err := b.reg.Put(t.Context(), rec, 0)
	if err != nil {
		t.Fatal(err)
	}
	b.wantStates(item, "g0 in-flight")
	rec.Finish(record.Outcome{EventID: "comment-a", Generation: 1, Kind: record.Dropped, Reason: "closed", Seq: 9})
	if _, err := b.reg.Put(t.Context(), rec, rev); err != nil {
		t.Fatal(err)
	}
	b.wantStates(item, "g0 settled")
}

func TestList_OldLettersAreForgotten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	item := ref(t, 1)
	l := letter(item, "comment-a", 0)
	l.At = time.Now().Add(-streams.OutcomeTTL - time.Hour)
	b.keep(l)
	b.wantStates(item, "g0 forgotten")
	if r := b.replay(l); !r.Sent || r.State != deadletter.Forgotten {
		t.Errorf("replayed: %+v", r)
	}
	b.wantStates(item, "g0 in-flight")
}

func TestReplay_FreshGenerationOnceFromTheOperator(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	item := ref(t, 1)
	l := letter(item, "comment-a", 0)
	b.keep(l)
	if r := b.replay(l); !r.Sent || r.Generation != 1 {
		t.Fatalf("replayed: %+v", r)
	}
	if r := b.replay(l); r.Sent || r.State != deadletter.InFlight {
		t.Errorf("replayed again while in flight: %+v", r)
	}
	evs := b.stored(item)
	if len(evs) != 1 {
		t.Fatalf("%d events published, want 1", len(evs))
	}
	want := l.Event
	want.Generation, want.Source = 1, event.Operator
	if got := evs[0]; got.MessageID() != want.MessageID() || got.Source != want.Source || got.Body != want.Body || got.DeliveryID != want.DeliveryID {
		t.Errorf("published %+v, want %+v", got, want)
	}
	b.outcome(item, 1, record.Done)
	if r := b.replay(l); r.Sent || r.State != deadletter.Settled || r.Outcome.Kind != record.Done {
		t.Errorf("replayed after it was done: %+v", r)
	}
	if n := len(b.stored(item)); n != 1 {
		t.Errorf("%d events published, want 1", n)
	}
	if n := b.messages(streams.Dead); n != 1 {
		t.Errorf("%d letters kept after the replay, want 1", n)
	}
	if n := b.logged(event.DeadLetterReplayed); n != 1 {
		t.Errorf("%d lines of %s, want 1", n, event.DeadLetterReplayed)
	}
}

// Many replays at once send the event once.
func TestReplay_Together(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	item := ref(t, 1)
	l := letter(item, "comment-a", 0)
	b.keep(l)
	const at = 8
	sent := make(chan bool, at)
	for range at {
		go func() {
			r, err := b.box.Replay(t.Context(), l)
			if err != nil {
				t.Error(err)
			}
			sent <- r.Sent
		}()
	}
	n := 0
	for range at {
		if <-sent {
			n++
		}
	}
	if n != 1 || len(b.stored(item)) != 1 {
		t.Errorf("%d replays say that they sent it and %d events are stored, want 1", n, len(b.stored(item)))
	}
}

func TestReplay_Refused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	item := ref(t, 1)
	bad := deadletter.Letter{Event: event.Event{ID: "undecodable-7", WorkItem: item}, Reason: deadletter.ReasonUndecodable, At: time.Now()}
	b.keep(bad)
	if _, err := b.box.Replay(t.Context(), bad); !errors.Is(err, deadletter.ErrNotReplayable) {
		t.Errorf("an undecodable event: %v", err)
	}
	if _, err := b.box.Replay(t.Context(), letter(item, "comment-b", 0)); !errors.Is(err, deadletter.ErrGone) {
		t.Errorf("a letter that is not kept: %v", err)
	}
	if n := len(b.stored(item)); n != 0 {
		t.Errorf("%d events published, want none", n)
	}
}

func TestDrop_AllGenerationsOfOneItem(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	item := ref(t, 1)
	for g := range 2 {
		b.keep(letter(item, "comment-a", g))
	}
	b.keep(letter(item, "comment-b", 0))
	b.keep(letter(ref(t, 2), "comment-a", 0))
	if n, err := b.box.Drop(t.Context(), letter(item, "comment-a", 1)); n != 2 || err != nil {
		t.Fatalf("dropped %d, %v; want 2", n, err)
	}
	b.wantStates(item, "g0 open")
	if n := len(b.list(workitem.Ref{})); n != 2 {
		t.Errorf("%d letters left, want 2", n)
	}
	if _, err := b.box.Drop(t.Context(), letter(item, "comment-a", 1)); !errors.Is(err, deadletter.ErrGone) {
		t.Errorf("dropped again: %v", err)
	}
	if n := b.logged(event.DeadLetterDropped); n != 1 {
		t.Errorf("%d lines of %s, want 1", n, event.DeadLetterDropped)
	}
}

// What somebody else put into the stream does not hide the letters.
func TestList_PassesOverWhatIsNoLetter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	item := ref(t, 1)
	for _, data := range []string{"", "{", `{"event":{}}`, "\xff"} {
		if _, err := b.s.JS.Publish(t.Context(), item.DeadSubject(), []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	b.keep(letter(item, "comment-a", 0))
	b.wantStates(item, "g0 open")
}

// Letters beyond one message and a server that is away.
func TestList_ManyAndNone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if es := b.list(workitem.Ref{}); len(es) != 0 {
		t.Errorf("%d letters on an empty stream", len(es))
	}
	const n = 40
	for i := range n {
		b.keep(letter(ref(t, 1+i%3), fmt.Sprintf("comment-%d", i), 0))
	}
	if es := b.list(workitem.Ref{}); len(es) != n {
		t.Errorf("%d letters listed, want %d", len(es), n)
	}
	b.s.Down()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := b.box.List(ctx, workitem.Ref{}); err == nil {
		t.Error("no error while the server is away")
	}
}

func (b *bench) logged(typ event.LogType) int {
	b.t.Helper()
	n := 0
	err := eventlog.Read(b.t.Context(), b.s.JS, eventlog.Query{TypeGlob: string(typ)}, func(eventlog.Line) error {
		n++
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

var _ deadletter.Keeper = jetstream.JetStream(nil)
