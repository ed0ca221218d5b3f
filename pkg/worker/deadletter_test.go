package worker_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"loopfleet/pkg/config"
	"loopfleet/pkg/deadletter"
	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/forge/github"
	"loopfleet/pkg/notice"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
	"loopfleet/pkg/testutil/githubtest"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/workitem"
)

// box opens the dead letters as the operator's program does.
func (f *fleet) box() *deadletter.Box {
	f.t.Helper()
	reader, err := queue.NewReader(f.t.Context(), f.nats.JS)
	if err != nil {
		f.t.Fatal(err)
	}
	log, err := eventlog.New(f.nats.JS, eventlog.Options{Source: "operator", Log: zerolog.Nop()})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = log.Close(context.WithoutCancel(f.t.Context())) })
	return deadletter.New(deadletter.Deps{JS: f.nats.JS, Registry: f.reg, Events: reader, Publisher: f.pub, Log: log})
}

func (f *fleet) letters(ref workitem.Ref) []deadletter.Entry {
	f.t.Helper()
	es, err := f.box().List(f.t.Context(), ref)
	if err != nil {
		f.t.Fatal(err)
	}
	return es
}

// An agent that cannot be started costs the label's budget; the ticket is told
// once, without the commenter's words; once the agent is there, a replay starts
// it with the same event, and the letter needs nobody any more. Scenario 5.
//
// rule: RR-01, rule: RR-15 (half: a replay has a full budget), rule: LAG-04
// (reported once)
func TestGivenUpToldReplayed(t *testing.T) {
	t.Parallel()
	const token = "t"
	hub := githubtest.NewForge(t, token)
	agent := filepath.Join(t.TempDir(), "agent")
	f := newFleet(t, func(c *config.Config) {
		c.Harnesses["late"] = config.Harness{Command: []string{agent}, Receipt: "file"}
		c.Routing.DefaultHarness = "late"
		c.Routing.MaxRetries = 2
	})
	var err error
	if f.poster, err = github.New(hub.URL(), func() (string, error) { return token, nil }); err != nil {
		t.Fatal(err)
	}
	f.start("w1")
	f.start("w2")
	ref := hub.Ref("octo", "hello", 42)
	l := label(ref, 0)
	l.Body = "the commenter's own words"
	f.publish(l)
	if o := f.outcome(l); o.Kind != record.Dead {
		t.Fatalf("outcome %+v", o)
	}
	waitfor.Until(t, "the notice", func() bool { return len(hub.Comments(ref)) > 0 })
	if body := hub.Comments(ref)[0].Body; strings.Contains(body, l.Body) || !strings.Contains(body, "loopfleet dead-letters replay "+l.ID) {
		t.Errorf("notice:\n%s", body)
	}

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nexec '" + self + "' " + agentArg + " \"$@\"\n"
	if err := os.WriteFile(agent, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	es := f.letters(ref)
	if len(es) != 1 || es[0].State != deadletter.Open {
		t.Fatalf("letters %+v, want one that is open", es)
	}
	for range 2 {
		if _, err := f.box().Replay(t.Context(), es[0].Letter); err != nil {
			t.Fatal(err)
		}
	}
	again := l
	again.Generation = 1
	if o := f.want(again, record.Done, ""); o.Attempts != 1 {
		t.Errorf("attempts %d, want 1", o.Attempts)
	}
	f.wantReceived(ref, l)
	if es := f.letters(ref); es[0].State != deadletter.Settled {
		t.Errorf("the letter is %s, want settled", es[0].State)
	}
	f.wantLogged(event.NoticePosted, ref, 1)
	if n := len(hub.Comments(ref)); n != 1 {
		t.Errorf("%d notices, want 1", n)
	}
}

// A comment given up because its worker died in the last attempt has one letter,
// whoever records the outcome.
func TestLetterKeptTwice(t *testing.T) {
	t.Parallel()
	f := newFleet(t, func(c *config.Config) {
		c.Harnesses["broken"] = config.Harness{Command: []string{"/nonexistent/agent"}, Receipt: "none"}
		c.Routing.DefaultHarness = "broken"
	})
	ref := item(t, 71)
	l := label(ref, 0)
	// What the first worker left: the letter, and no outcome.
	if err := deadletter.Keep(t.Context(), f.nats.JS, deadletter.Letter{Event: l, Reason: "attempts-spent", Worker: "w0", At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	f.publish(l)
	f.start("w1")
	if o := f.outcome(l); o.Kind != record.Dead {
		t.Fatalf("outcome %+v", o)
	}
	if es := f.letters(ref); len(es) != 1 || len(es[0].Seqs) != 1 || es[0].Worker != "w0" {
		t.Errorf("letters %+v, want the one of w0", es)
	}
}

// An item that answers itself is paused after so many prompts within the hour,
// with a note for its ticket and a line in the log; nothing is lost, and whoever
// resumes it gives it a full count.
func TestBreaker(t *testing.T) {
	t.Parallel()
	f := newFleet(t, func(c *config.Config) { c.Routing.MaxEventsPerHour = 3 })
	f.start("w1")
	ref := item(t, 81)
	all := []event.Event{label(ref, 0)}
	for n := range 6 {
		all = append(all, comment(ref, n+1))
	}
	f.publish(all...)
	for round := range 2 {
		upTo := 3 * (round + 1)
		for _, e := range all[:upTo] {
			f.want(e, record.Done, "")
		}
		waitfor.Until(t, "the item to be paused", func() bool { return f.record(ref).Want == record.Paused })
		f.state(ref, record.StatePaused)
		f.wantReceived(ref, all[:upTo]...)
		f.wantLogged(event.BreakerTripped, ref, round+1)
		if n := f.notes(ref); n != round+1 {
			t.Errorf("%d notes, want %d", n, round+1)
		}
		f.publish(event.Event{
			ID:   event.NewID(event.Resume, ref.Host, 1, ref.Number, "resume", clock.Add(time.Duration(round)*time.Second)),
			Kind: event.Resume, Source: event.Operator, WorkItem: ref, At: time.Now().UTC(),
		})
	}
	f.want(all[6], record.Done, "")
	f.wantReceived(ref, all...)
	lines := f.logged(event.ControlApplied, ref)
	if !slices.ContainsFunc(lines, func(l eventlog.Line) bool { return l.Reason() == "too-many-prompts" }) {
		t.Errorf("no %s says that the breaker paused the item: %v", event.ControlApplied, lines)
	}
}

// An agent's gh is the shim that marks what it posts.
func TestAgentsGH(t *testing.T) {
	t.Parallel()
	f := newFleet(t, func(c *config.Config) {
		c.Harnesses["gh"] = config.Harness{Command: []string{"/bin/sh", "-c", "command -v gh > gh; read -r line"}, Receipt: "none"}
		c.Routing.DefaultHarness = "gh"
	})
	f.start("w1")
	ref := item(t, 91)
	l := label(ref, 0)
	f.publish(l)
	f.want(l, record.Done, "")
	found := waitfor.Value(t, "the agent to look for gh", func() (string, bool) {
		b, err := os.ReadFile(filepath.Join(f.record(ref).Session.Cwd, "gh"))
		return strings.TrimSpace(string(b)), err == nil && len(b) > 0
	})
	if want := filepath.Join(f.cfg.StateDir, "workers", "w1", "shim", "gh"); found != want {
		t.Errorf("the agent's gh is %q, want %q", found, want)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(found); err != nil || to != self {
		t.Errorf("it leads to %q, %v; want %q", to, err, self)
	}
}

// notes counts the notes in the outbox of an item.
func (f *fleet) notes(ref workitem.Ref) int {
	f.t.Helper()
	st, err := f.nats.JS.Stream(f.t.Context(), "LOOP_DEAD")
	if err != nil {
		f.t.Fatal(err)
	}
	subject := notice.Prefix + ref.Key()
	info, err := st.Info(f.t.Context(), jetstream.WithSubjectFilter(subject))
	if err != nil {
		f.t.Fatal(err)
	}
	return int(info.State.Subjects[subject])
}
