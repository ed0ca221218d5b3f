package eventlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"loopfleet/pkg/event"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/natsconn"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/workitem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setup starts a server with the log's stream and connects as a process does.
func setup(t *testing.T) (*natstest.Server, jetstream.JetStream) {
	t.Helper()
	srv := natstest.Start(t, "")
	natstest.Provision(t, srv.JS)
	nc, js, err := natsconn.Connect(t.Context(), natsconn.Options{InProcess: srv, Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return srv, js
}

func newTest(t *testing.T, js Publisher, o Options) *Log {
	t.Helper()
	l, err := New(js, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLog(t, l) })
	return l
}

func closeLog(t *testing.T, l *Log) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
	defer cancel()
	if err := l.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

func readAll(t *testing.T, js Reader, q Query) []Line {
	t.Helper()
	var got []Line
	if err := Read(t.Context(), js, q, func(l Line) error { got = append(got, l); return nil }); err != nil {
		t.Fatalf("read %+v: %v", q, err)
	}
	return got
}

func item42(t *testing.T) workitem.Ref {
	t.Helper()
	r, err := workitem.Parse("octo/hello#42")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// buffer is a log that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestEmit_WritesOneFlatObject(t *testing.T) {
	t.Parallel()
	_, js := setup(t)
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.FixedZone("", 3600))
	var console buffer
	l := newTest(t, js, Options{
		Worker: "w1", Source: "worker", Log: zerolog.New(&console), Now: func() time.Time { return at },
	})
	err := l.Emit(t.Context(), Entry{
		Type: event.DispatchFailed, Level: event.Warn, WorkItem: item42(t), EventID: "comment-abc", Delivery: "guid-1",
		Fields: map[string]any{
			"b": 7, "a": "<x> & y", logkey.Reason: "harness-missing", logkey.Error: errors.New("no claude on PATH"),
			"retry_in": 5 * time.Second, "empty": "", "nothing": nil, "kind": event.Comment, "list": []string{"x", "y"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	msg, err := stream(t, js).GetLastMsgForSubject(t.Context(), "loop.log.dispatch.failed")
	if err != nil {
		t.Fatal(err)
	}
	want := `{"ts":"2026-03-01T11:00:00.123Z","type":"dispatch.failed","level":"warn","work_item":"github:octo/hello#42",` +
		`"event_id":"comment-abc","delivery_id":"guid-1","worker":"w1","source":"worker","reason":"harness-missing",` +
		`"error":"no claude on PATH","a":"<x> & y","b":7,"kind":"comment","list":["x","y"],"retry_in":"5s"}`
	if diff := cmp.Diff(want, string(msg.Data)); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
	if got := console.String(); !strings.Contains(got, `"level":"warn"`) || !strings.Contains(got, "harness-missing") {
		t.Errorf("console: %s", got)
	}
}

func stream(t *testing.T, js jetstream.JetStream) jetstream.Stream {
	t.Helper()
	s, err := js.Stream(t.Context(), Stream)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEmit_ProgrammingErrors(t *testing.T) {
	t.Parallel()
	_, js := setup(t)
	var console buffer
	l := newTest(t, js, Options{Log: zerolog.New(&console)})
	if err := l.Emit(t.Context(), Entry{Type: "dispatch.exploded"}); !errors.Is(err, ErrUnknownType) {
		t.Errorf("unknown type: %v", err)
	}
	l.Post(Entry{Type: "dispatch.exploded"})
	if l.Lost() != 1 || !strings.Contains(console.String(), `"level":"error"`) {
		t.Errorf("a posted entry of an unknown type: lost %d, console %s", l.Lost(), console.String())
	}
	closeLog(t, l)
	if err := l.Emit(t.Context(), Entry{Type: event.LeaseLost}); !errors.Is(err, ErrClosed) {
		t.Errorf("emit after close: %v", err)
	}
	l.Post(Entry{Type: event.LeaseLost})
	if l.Lost() != 2 {
		t.Errorf("a post after close is not counted: lost %d", l.Lost())
	}
	if err := l.Flush(t.Context()); err != nil {
		t.Errorf("flush after close: %v", err)
	}
}

func TestEmit_KeyMakesOneLine(t *testing.T) {
	t.Parallel()
	_, js := setup(t)
	l := newTest(t, js, Options{})
	for _, e := range []Entry{
		{Type: event.DispatchSucceeded, WorkItem: item42(t), Key: "comment-abc.g0"},
		{Type: event.DispatchSucceeded, WorkItem: item42(t), Key: "comment-abc.g0"},
		{Type: event.DispatchSucceeded, WorkItem: item42(t), Key: "comment-abc.g1"},
		{Type: event.DispatchDropped, WorkItem: item42(t), Key: "comment-abc.g0"},
		{Type: event.DispatchSucceeded, Key: "comment-abc.g0"},
		{Type: event.DispatchSucceeded},
		{Type: event.DispatchSucceeded},
	} {
		if err := l.Emit(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(readAll(t, js, Query{})); got != 6 {
		t.Errorf("%d lines, want 6: only the second is a repetition", got)
	}
}

func TestEmit_ServerAway(t *testing.T) {
	t.Parallel()
	srv, js := setup(t)
	var console buffer
	l := newTest(t, js, Options{Log: zerolog.New(&console)})
	srv.Down()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := l.Emit(ctx, Entry{Type: event.RoutingDropped}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("emit while the server is away: %v, want the context's error", err)
	}
	srv.Up(t)
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(readAll(t, js, Query{})); got != 1 {
		t.Errorf("%d lines after the server is back, want the late one", got)
	}
	if !strings.Contains(console.String(), "tried again") {
		t.Errorf("the outage is not in the console: %s", console.String())
	}
}

// rule: RR-01 (the audit record survives the broker's restarts)
func TestPost_ServerRestartsLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	srv, js := setup(t)
	l := newTest(t, js, Options{})
	const n = 3000
	third := make(chan struct{}, 2)
	posted := make(chan struct{})
	go func() {
		defer close(posted)
		for i := range n {
			if i == n/3 || i == 2*n/3 {
				third <- struct{}{}
			}
			l.Post(Entry{Type: event.DispatchStarted, Fields: map[string]any{"i": i}})
		}
	}()
	<-third
	srv.Restart(t)
	<-third
	srv.Restart(t)
	<-posted
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l.Lost() != 0 {
		t.Errorf("lost %d", l.Lost())
	}
	seen := make([]int, n)
	for _, line := range readAll(t, js, Query{}) {
		i, err := strconv.Atoi(line.text("i"))
		if err != nil {
			t.Fatal(err)
		}
		seen[i]++
	}
	for i, times := range seen {
		if times != 1 {
			t.Errorf("line %d is there %d times", i, times)
		}
	}
}

func TestPost_KeepsOrder(t *testing.T) {
	t.Parallel()
	_, js := setup(t)
	l := newTest(t, js, Options{})
	const n = 1000
	for i := range n {
		l.Post(Entry{Type: event.DispatchStarted, Fields: map[string]any{"i": i}})
	}
	if err := l.Emit(t.Context(), Entry{Type: event.DispatchSucceeded}); err != nil {
		t.Fatal(err)
	}
	got := readAll(t, js, Query{})
	if len(got) != n+1 || got[n].Type != event.DispatchSucceeded {
		t.Fatalf("%d lines, the last is %q: an Emit overtook a Post", len(got), got[len(got)-1].Type)
	}
	for i, l := range got[:n] {
		if l.Fields["i"] != json.Number(fmt.Sprint(i)) {
			t.Fatalf("line %d says %v", i, l.Fields["i"])
		}
	}
}

func TestPost_FullQueueCountsAndWarns(t *testing.T) {
	t.Parallel()
	srv, js := setup(t)
	var console buffer
	file := filepath.Join(t.TempDir(), "events.jsonl")
	l, err := newLog(js, Options{Log: zerolog.New(&console), File: file}, 4, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	srv.Down()
	const n = 4 + batchSize + 20
	for range n {
		l.Post(Entry{Type: event.DispatchStarted})
	}
	lost := l.Lost()
	if lost == 0 {
		t.Fatal("nothing is counted as lost")
	}
	if !strings.Contains(console.String(), "are lost") {
		t.Errorf("no warning: %s", console.String())
	}
	srv.Up(t)
	closeLog(t, l)
	if got := len(readAll(t, srv.JS, Query{})); uint64(got)+lost != n {
		t.Errorf("%d lines and %d lost, want %d together", got, lost, n)
	}
	var warned uint64
	for line := range strings.Lines(console.String()) {
		var w struct {
			Lines   uint64
			Message string
		}
		if err := json.Unmarshal([]byte(line), &w); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(w.Message, "are lost") {
			warned += w.Lines
		}
	}
	if warned != lost {
		t.Errorf("warned of %d lines, lost %d", warned, lost)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(b, []byte("\n")); got != n {
		t.Errorf("the file has %d lines, want all %d", got, n)
	}
}

func TestClose_OutOfTimeSaysHowMany(t *testing.T) {
	t.Parallel()
	srv, js := setup(t)
	l, err := New(js, Options{})
	if err != nil {
		t.Fatal(err)
	}
	srv.Down()
	for range 5 {
		l.Post(Entry{Type: event.DispatchStarted})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := l.Close(ctx); err == nil || !strings.Contains(err.Error(), "5 lines") || l.Lost() != 5 {
		t.Errorf("close = %v with %d lost, want an error that names 5 lines", err, l.Lost())
	}
}

func TestLog_RefusedByTheServer(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t, "")
	if _, err := srv.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: Stream, Subjects: []string{Prefix + ">"}, MaxMsgSize: 300}); err != nil {
		t.Fatal(err)
	}
	l := newTest(t, srv.JS, Options{})
	if err := l.Emit(t.Context(), Entry{Type: event.DispatchStarted, Fields: map[string]any{"x": strings.Repeat("x", 1000)}}); err == nil {
		t.Error("a line that the stream refuses is no error")
	}
	l.Post(Entry{Type: event.DispatchStarted, Fields: map[string]any{"x": strings.Repeat("x", 1000)}})
	if err := l.Emit(t.Context(), Entry{Type: event.DispatchStarted}); err != nil {
		t.Errorf("the line after a refused one: %v", err)
	}
	if l.Lost() != 2 {
		t.Errorf("lost %d, want 2", l.Lost())
	}
}

func TestLog_StreamComesLater(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t, "")
	l := newTest(t, srv.JS, Options{})
	l.Post(Entry{Type: event.WorkerStarted})
	natstest.Provision(t, srv.JS)
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(readAll(t, srv.JS, Query{})); got != 1 {
		t.Errorf("%d lines, want 1", got)
	}
}

func TestLog_ConcurrentUseWithClose(t *testing.T) {
	t.Parallel()
	_, js := setup(t)
	l, err := New(js, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	emitted, posts := 0, 0
	for range 8 {
		wg.Go(func() {
			for range 50 {
				l.Post(Entry{Type: event.DispatchStarted})
				err := l.Emit(t.Context(), Entry{Type: event.DispatchSucceeded})
				mu.Lock()
				posts++
				if err == nil {
					emitted++
				} else if !errors.Is(err, ErrClosed) {
					t.Errorf("emit: %v", err)
				}
				mu.Unlock()
			}
		})
	}
	waitfor.Until(t, "some lines", func() bool { mu.Lock(); defer mu.Unlock(); return emitted > 20 })
	closeLog(t, l)
	wg.Wait()
	got := len(readAll(t, js, Query{}))
	if want := posts - int(l.Lost()) + emitted; got != want {
		t.Errorf("%d lines in the stream, want %d (%d posts, %d lost, %d emitted)", got, want, posts, l.Lost(), emitted)
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	_, js := setup(t)
	path := filepath.Join(t.TempDir(), "new", "events.jsonl")
	a := newTest(t, js, Options{File: path, Source: "ingress"})
	b := newTest(t, js, Options{File: path, Source: "worker"})
	var wg sync.WaitGroup
	for _, l := range []*Log{a, b} {
		wg.Go(func() {
			for range 100 {
				l.Post(Entry{Type: event.DispatchStarted, Fields: map[string]any{"text": "two\nlines" + strings.Repeat("x", 1500)}})
			}
		})
	}
	wg.Wait()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", st.Mode())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for line := range strings.Lines(string(data)) {
		l, err := Parse([]byte(line))
		if err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		n[l.Source]++
	}
	if diff := cmp.Diff(map[string]int{"ingress": 100, "worker": 100}, n); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestFile_Troubles(t *testing.T) {
	t.Parallel()
	_, js := setup(t)
	if _, err := New(js, Options{File: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "eventLog.file") {
		t.Errorf("a directory as file: %v, want an error that names the setting", err)
	}
	var console buffer
	l := newTest(t, js, Options{File: "/dev/full", Log: zerolog.New(&console)})
	if err := l.Emit(t.Context(), Entry{Type: event.DispatchStarted}); err != nil {
		t.Errorf("a full disk fails the line in the stream: %v", err)
	}
	if !strings.Contains(console.String(), "event log file") {
		t.Errorf("a full disk is not warned of: %s", console.String())
	}
}

func TestConsole_Levels(t *testing.T) {
	t.Parallel()
	_, js := setup(t)
	var console buffer
	l := newTest(t, js, Options{Log: zerolog.New(&console).Level(zerolog.InfoLevel)})
	l.Post(Entry{Type: event.DispatchStarted})
	l.Post(Entry{Type: event.DispatchFailed, Level: event.Warn, Fields: map[string]any{logkey.Error: "a\x1b[31m\u202eb"}})
	l.Post(Entry{Type: event.DispatchDead, Level: event.Error})
	var got []string
	for line := range strings.Lines(console.String()) {
		var v struct{ Level, Message, Error string }
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		got = append(got, v.Level+" "+v.Message+" "+v.Error)
	}
	want := []string{`warn dispatch.failed a\x1b[31m\u202eb`, "error dispatch.dead "}
	if !slices.Equal(got, want) {
		t.Errorf("console = %q, want %q", got, want)
	}
}

// A future that is never resolved must not stop the log for ever.
func TestPublish_LostAcknowledgement(t *testing.T) {
	t.Parallel()
	_, js := setup(t)
	l := newTest(t, &deaf{Publisher: js}, Options{})
	if err := l.Emit(t.Context(), Entry{Type: event.DispatchStarted}); err != nil {
		t.Fatal(err)
	}
	if got := len(readAll(t, js, Query{})); got != 1 {
		t.Errorf("%d lines, want 1: the retry is a second line", got)
	}
}

// deaf publishes for real, and never hears the first acknowledgement.
type deaf struct {
	Publisher
	mu    sync.Mutex
	calls int
}

func (d *deaf) PublishMsgAsync(msg *nats.Msg, opts ...jetstream.PublishOpt) (jetstream.PubAckFuture, error) {
	f, err := d.Publisher.PublishMsgAsync(msg, opts...)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calls++; d.calls == 1 {
		return silent{f}, err
	}
	return f, err
}

type silent struct{ jetstream.PubAckFuture }

func (silent) Ok() <-chan *jetstream.PubAck { return nil }
func (silent) Err() <-chan error            { return nil }
