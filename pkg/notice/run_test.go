package notice_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"loopfleet/pkg/deadletter"
	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/forge"
	"loopfleet/pkg/forge/github"
	"loopfleet/pkg/notice"
	"loopfleet/pkg/testutil/githubtest"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/workitem"
	"loopfleet/streams"
)

const token = "ghp_secret"

// bench is a real server, a forge, and any number of outboxes.
type bench struct {
	t      *testing.T
	s      *natstest.Server
	forge  *githubtest.Forge
	poster forge.Poster
}

func newBench(t *testing.T) *bench {
	t.Helper()
	s := natstest.Start(t, "")
	natstest.Provision(t, s.JS)
	f := githubtest.NewForge(t, token)
	c, err := github.New(f.URL(), func() (string, error) { return token, nil })
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t: t, s: s, forge: f, poster: c}
}

// run starts a worker's outbox with a connection of its own.
func (b *bench) run(poster func(*nats.Conn) forge.Poster) (stop func()) {
	b.t.Helper()
	nc := b.s.Connect(b.t)
	js, err := jetstream.New(nc)
	if err != nil {
		b.t.Fatal(err)
	}
	log, err := eventlog.New(js, eventlog.Options{Worker: "w", Source: "worker", Log: zerolog.Nop()})
	if err != nil {
		b.t.Fatal(err)
	}
	p := b.poster
	if poster != nil {
		p = poster(nc)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		notice.Run(ctx, notice.Deps{
			JS: js, Poster: p, Events: log, Log: zerolog.New(zerolog.NewTestWriter(b.t)), Backoff: []time.Duration{50 * time.Millisecond},
		})
	})
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		cctx, done := context.WithTimeout(context.WithoutCancel(b.t.Context()), time.Second)
		defer done()
		_ = log.Close(cctx) // a killed one has no connection to write to
		nc.Close()
	})
	b.t.Cleanup(stop)
	return stop
}

// ackWait makes redelivery after a crash quick.
func (b *bench) ackWait(d time.Duration) {
	b.t.Helper()
	c, err := b.s.JS.Consumer(b.t.Context(), streams.Dead, streams.Notices)
	if err != nil {
		b.t.Fatal(err)
	}
	cfg := c.CachedInfo().Config
	cfg.AckWait = d
	if _, err := b.s.JS.UpdateConsumer(b.t.Context(), streams.Dead, cfg); err != nil {
		b.t.Fatal(err)
	}
}

func letter(ref workitem.Ref, id string, generation int) deadletter.Letter {
	return deadletter.Letter{
		Event: event.Event{
			ID: id, Generation: generation, Kind: event.Comment, Source: event.Webhook, WorkItem: ref,
			At: time.Now().UTC(), Body: "please do WHAT I SAY", Actor: event.Actor{Login: "mallory"},
		},
		Reason: "attempts-spent", Error: "agent printed: hunter2", Public: "no agent", Attempts: 3, At: time.Now().UTC(),
	}
}

func (b *bench) keep(ls ...deadletter.Letter) {
	b.t.Helper()
	for _, l := range ls {
		if err := deadletter.Keep(b.t.Context(), b.s.JS, l); err != nil {
			b.t.Fatal(err)
		}
	}
}

// told waits until every notice has been dealt with.
func (b *bench) told() {
	b.t.Helper()
	// Not by what is pending: a consumer learns of a new letter a little later
	// than the one who kept it.
	dead, err := b.s.JS.Stream(b.t.Context(), streams.Dead)
	if err != nil {
		b.t.Fatal(err)
	}
	last := dead.CachedInfo().State.LastSeq
	waitfor.Value(b.t, "the outbox to be empty", func() (*jetstream.ConsumerInfo, bool) {
		c, err := b.s.JS.Consumer(b.t.Context(), streams.Dead, streams.Notices)
		if err != nil {
			return nil, false
		}
		i := c.CachedInfo()
		return i, i.AckFloor.Stream >= last && i.NumAckPending == 0
	})
}

func (b *bench) logged(typ event.LogType) []eventlog.Line {
	b.t.Helper()
	var out []eventlog.Line
	err := eventlog.Read(b.t.Context(), b.s.JS, eventlog.Query{TypeGlob: string(typ)}, func(l eventlog.Line) error {
		out = append(out, l)
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *bench) wantLogged(typ event.LogType, n int) []eventlog.Line {
	b.t.Helper()
	ls := b.logged(typ)
	if len(ls) != n {
		b.t.Errorf("%d lines of %s, want %d: %v", len(ls), typ, n, ls)
	}
	return ls
}

// One notice for each event, although two workers look after it, and nothing of
// the commenter's or the agent's in it.
//
// rule: LAG-04 (reported once)
func TestOncePerEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.forge.Ref("octo", "hello", 42)
	b.run(nil)
	b.run(nil)
	const n = 12
	for i := range n {
		l := letter(ref, fmt.Sprintf("comment-%d", i), 0)
		b.keep(l, l)
	}
	b.told()
	cs := b.forge.Comments(ref)
	if len(cs) != n {
		t.Fatalf("%d notices, want %d", len(cs), n)
	}
	for _, c := range cs {
		for _, bad := range []string{"WHAT I SAY", "hunter2", "mallory"} {
			if strings.Contains(c.Body, bad) {
				t.Errorf("a notice quotes %q:\n%s", bad, c.Body)
			}
		}
		if !strings.Contains(c.Body, "\n"+event.Marker+"\n") || !strings.Contains(c.Body, "loopfleet dead-letters replay comment-") {
			t.Errorf("a notice lacks its marker or what to do:\n%s", c.Body)
		}
	}
	b.wantLogged(event.NoticePosted, n)
}

// A replayed event that is given up again is told again.
func TestEachGenerationIsTold(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.forge.Ref("octo", "hello", 42)
	b.run(nil)
	b.keep(letter(ref, "comment-a", 0))
	b.told()
	b.keep(letter(ref, "comment-a", 1))
	b.told()
	if n := len(b.forge.Comments(ref)); n != 2 {
		t.Errorf("%d notices, want 2", n)
	}
}

// dying posts, and takes its worker's connection away before anything can be
// recorded of it: what a kill -9 there leaves.
type dying struct {
	forge.Poster
	nc *nats.Conn
}

func (d *dying) Post(ctx context.Context, item workitem.Ref, body string) (string, error) {
	defer d.nc.Close()
	if _, err := d.Poster.Post(ctx, item, body); err != nil {
		return "", err
	}
	// Nothing that would follow gets out; do not wait for it to fail.
	return "", errors.New("killed")
}

func TestCrashBetweenPostAndAck(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ackWait(500 * time.Millisecond)
	ref := b.forge.Ref("octo", "hello", 42)
	b.keep(letter(ref, "comment-a", 0))
	stop := b.run(func(nc *nats.Conn) forge.Poster { return &dying{b.poster, nc} })
	waitfor.Until(t, "the notice", func() bool { return len(b.forge.Comments(ref)) > 0 })
	stop()
	b.wantLogged(event.NoticePosted, 0)
	b.run(nil)
	b.told()
	if n := len(b.forge.Comments(ref)); n != 1 {
		t.Errorf("%d notices, want 1", n)
	}
	b.wantLogged(event.NoticePosted, 1)
}

// The forge did it and its answer was lost.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.forge.Ref("octo", "hello", 42)
	b.keep(letter(ref, "comment-a", 0))
	b.forge.Next(githubtest.Answer{Status: 502}, githubtest.Answer{Status: 503}) // the look, then the look again
	b.run(nil)
	b.told()
	b.forge.Next(
		githubtest.Answer{Status: 200, Serve: true}, // an answer that is no list of comments
		githubtest.Answer{Status: 504, Serve: true}, // after that: whatever comes next
	)
	b.keep(letter(ref, "comment-b", 0))
	b.told()
	if n := len(b.forge.Comments(ref)); n != 2 {
		t.Errorf("%d notices, want 2", n)
	}
}

// The post itself was done and answered with a failure: it is found.
func TestPostAnsweredWithFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.forge.Ref("octo", "hello", 42)
	once := sync.OnceFunc(func() {
		b.forge.Next(githubtest.Answer{Status: 502, Serve: true})
	})
	b.run(func(*nats.Conn) forge.Poster { return &before{b.poster, once} })
	b.keep(letter(ref, "comment-a", 0))
	b.told()
	if n := len(b.forge.Comments(ref)); n != 1 {
		t.Errorf("%d notices, want 1", n)
	}
	posts := 0
	for _, r := range b.forge.Requests() {
		if strings.HasPrefix(r, "POST") {
			posts++
		}
	}
	if posts != 1 {
		t.Errorf("%d posts, want 1: %q", posts, b.forge.Requests())
	}
}

// before calls fn before each post.
type before struct {
	forge.Poster
	fn func()
}

func (p *before) Post(ctx context.Context, item workitem.Ref, body string) (string, error) {
	p.fn()
	return p.Poster.Post(ctx, item, body)
}

// What cannot be posted is said so, with what to do, and the next one is not
// held up.
func TestPermanentFailure(t *testing.T) {
	t.Parallel()
	for status, reason := range map[int]string{403: "no-permission", 404: "gone", 410: "gone", 422: "refused"} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			bad, good := b.forge.Ref("octo", "hello", 1), b.forge.Ref("octo", "hello", 2)
			b.forge.Refuse(bad, status)
			b.keep(letter(bad, "comment-a", 0), letter(good, "comment-b", 0))
			b.run(nil)
			b.told()
			if n := len(b.forge.Comments(good)); n != 1 {
				t.Errorf("%d notices on the other ticket, want 1", n)
			}
			for _, l := range b.wantLogged(event.NoticeFailed, 1) {
				if l.Reason() != reason || l.Fields["hint"] == nil || l.EventID != "comment-a" {
					t.Errorf("line %s", l.Raw)
				}
			}
		})
	}
}

// A ticket on another forge than the configured one.
func TestForeignTicket(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref, err := workitem.Parse("octo/hello#1")
	if err != nil {
		t.Fatal(err)
	}
	b.keep(letter(ref, "comment-a", 0))
	b.run(nil)
	b.told()
	b.wantLogged(event.NoticeFailed, 1)
}

// A wrong token is no reason to give up: it may be replaced.
func TestTokenReplaced(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.forge.Ref("octo", "hello", 42)
	b.forge.SetToken("another")
	b.keep(letter(ref, "comment-a", 0))
	b.run(nil)
	waitfor.Until(t, "two tries", func() bool { return len(b.forge.Requests()) >= 2 })
	b.forge.SetToken(token)
	b.told()
	if n := len(b.forge.Comments(ref)); n != 1 {
		t.Errorf("%d notices, want 1", n)
	}
	b.wantLogged(event.NoticeFailed, 0)
}

// The server goes away and comes back under a running outbox.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.forge.Ref("octo", "hello", 42)
	b.run(nil)
	b.keep(letter(ref, "comment-a", 0))
	b.told()
	b.s.Restart(t)
	b.keep(letter(ref, "comment-b", 0))
	b.told()
	if n := len(b.forge.Comments(ref)); n != 2 {
		t.Errorf("%d notices, want 2", n)
	}
}

func TestPausedNote(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.forge.Ref("octo", "hello", 42)
	n := notice.Note{ID: "pause-a", Kind: notice.Paused, WorkItem: ref, Prompts: 60, Limit: 60, At: time.Now()}
	for range 2 {
		if err := notice.Send(t.Context(), b.s.JS, n); err != nil {
			t.Fatal(err)
		}
	}
	b.run(nil)
	b.told()
	cs := b.forge.Comments(ref)
	if len(cs) != 1 || !strings.Contains(cs[0].Body, "loopfleet sessions resume github:"+b.forge.Host()+"/octo/hello#42") {
		t.Errorf("notices %+v", cs)
	}
	b.wantLogged(event.NoticePosted, 1)
}

// What somebody else put into the stream is passed over.
func TestGarbage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.forge.Ref("octo", "hello", 42)
	for _, subject := range []string{ref.DeadSubject(), notice.Prefix + ref.Key()} {
		if _, err := b.s.JS.Publish(t.Context(), subject, []byte("{")); err != nil {
			t.Fatal(err)
		}
	}
	b.keep(letter(ref, "comment-a", 0))
	b.run(nil)
	b.told()
	if n := len(b.forge.Comments(ref)); n != 1 {
		t.Errorf("%d notices, want 1", n)
	}
}
