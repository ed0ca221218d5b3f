package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"loopfleet/pkg/config"
	"loopfleet/pkg/event"
	"loopfleet/pkg/ingress"
	"loopfleet/pkg/record"
	"loopfleet/pkg/testutil/fleettest"
	"loopfleet/pkg/testutil/githubtest"
	"loopfleet/pkg/testutil/waitfor"
)

// Scenario 25: the same events reach two ingresses at once, two workers hear of
// them: one session, one prompt each.
//
// rule: LAG-06
func TestTwoIngresses_TwoWorkers(t *testing.T) {
	t.Parallel()
	s := stage(t)
	ins := []*fleettest.Ingress{s.Ingress("in1"), s.Ingress("in2")}
	s.Worker("w1", "DISPATCH_LAG=300ms")
	s.Worker("w2", "DISPATCH_LAG=300ms")
	both := func(d githubtest.Delivery) ingress.EventAnswer {
		t.Helper()
		replies := make([]fleettest.Reply, len(ins))
		var wg sync.WaitGroup
		for i, in := range ins {
			wg.Go(func() {
				var err error
				if replies[i], _, err = fleettest.Send(t.Context(), func() string { return in.URL }, d.Again()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			t.FailNow()
		}
		a, b := replies[0], replies[1]
		if len(a.Events) != 1 || len(b.Events) != 1 || a.Events[0].EventID != b.Events[0].EventID {
			t.Fatalf("one event under two deliveries: %+v and %+v", a.Events, b.Events)
		}
		if a.Events[0].Duplicate == b.Events[0].Duplicate {
			t.Errorf("%s: duplicates %v and %v, want exactly one", a.Events[0].EventID, a.Events[0].Duplicate, b.Events[0].Duplicate)
		}
		return a.Events[0]
	}
	for n := range int64(3) {
		ref := item(t, int(50+n))
		l := both(label(50 + n))
		c := both(comment(50+n, 1))
		s.done(l, c)
		s.agent(ref)
		s.received(ref, l, c)
		s.wantLogged(event.SessionSpawned, ref, 1)
		s.wantLogged(event.SessionRespawned, ref, 0)
	}
}

// The server goes away under load: while it is away nothing is accepted, and
// everything that was accepted before, meanwhile and after is delivered.
func TestServerRestart_UnderLoad(t *testing.T) {
	t.Parallel()
	s := stage(t)
	in := s.Ingress("in1")
	s.Worker("w1")
	const items, comments = 3, 8
	var wg sync.WaitGroup
	sent := make([][]ingress.EventAnswer, items)
	half := make(chan struct{}, items)
	for i := range items {
		wg.Go(func() {
			n := int64(60 + i)
			for k := range int64(comments + 1) {
				d := comment(n, k)
				if k == 0 {
					d = label(n)
				}
				r, _, err := fleettest.Send(t.Context(), func() string { return in.URL }, d)
				if err != nil || len(r.Events) != 1 {
					t.Errorf("%d events, %v", len(r.Events), err)
					return
				}
				sent[i] = append(sent[i], r.Events[0])
				if k == comments/2 {
					half <- struct{}{}
				}
			}
		})
	}
	<-half
	s.Server.Kill()
	waitfor.Until(t, "the ingress to refuse", func() bool { return s.refused(in, label(69)) })
	s.serverUp()
	wg.Wait()
	for i, events := range sent {
		if len(events) != comments+1 {
			t.Fatalf("%d events of item %d were accepted, want %d", len(events), i, comments+1)
		}
		s.done(events...)
		s.received(item(t, 60+i), events...)
	}
	s.done(s.send(in, label(69)))
}

// An ingress dies after it has stored an event and before it has said so. The
// forge delivers again; nobody sees anything twice.
//
// rule: RR-22, rule: RR-26
func TestIngressKilled_BeforeAnswer(t *testing.T) {
	t.Parallel()
	s := stage(t)
	s.Worker("w1")
	in := s.Ingress("in1", "FAULT_KILL=publish-answer:1")
	d := label(70)
	if r, err := fleettest.Post(t.Context(), in.URL, d); err == nil {
		t.Fatalf("the ingress answered %d and should have died", r.Status)
	}
	<-in.Ended()
	in = s.Ingress("in1")
	r := s.answer(in, d.Redeliver())
	if r.Outcome != ingress.Duplicate || len(r.Events) != 1 {
		t.Fatalf("the redelivery: %+v, want a duplicate", r.Answer)
	}
	s.done(r.Events[0])
	c := s.send(in, comment(70, 1))
	s.done(c)
	s.received(item(t, 70), r.Events[0], c)
	s.wantLogged(event.SessionSpawned, item(t, 70), 1)
}

// A delivery that was given up is tried again when somebody presses Redeliver,
// and by nothing else; other items never notice.
//
// rule: RR-26
func TestRedelivery_AfterGiveUp(t *testing.T) {
	t.Parallel()
	flag := filepath.Join(t.TempDir(), "works")
	f := fleettest.New(t, func(c *config.Config) {
		agent := c.Harnesses["demo"].Command
		script := fmt.Sprintf(`case $LOOPFLEET_WORK_ITEM in *'#80') test -e '%s' || exit 3;; esac; exec "$@"`, flag)
		c.Harnesses["demo"] = config.Harness{Command: append([]string{"sh", "-c", script, "sh"}, agent...), Receipt: "file"}
	})
	s := &scene{Fleet: f, t: t}
	in := s.Ingress("in1")
	s.Worker("w1")
	d := label(80)
	broken, healthy := s.send(in, d), s.send(in, label(81))
	s.done(healthy)
	if o := s.outcome(broken, 0); o.Kind != record.Dead || o.Attempts != 3 {
		t.Fatalf("%s(%s) after %d attempts, want dead after 3", o.Kind, o.Reason, o.Attempts)
	}
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := s.answer(in, d.Again()); r.Outcome != ingress.Duplicate {
		t.Errorf("another hook's delivery of the same event: %+v, want a duplicate", r.Answer)
	}
	if r := s.answer(in, d.Redeliver()); r.Outcome != ingress.Routed {
		t.Fatalf("the redelivery: %+v, want it routed", r.Answer)
	}
	if o := s.outcome(broken, 1); o.Kind != record.Done || o.Attempts != 1 {
		t.Errorf("%s(%s) after %d attempts, want done after 1", o.Kind, o.Reason, o.Attempts)
	}
	s.received(item(t, 80), broken)
	s.received(item(t, 81), healthy)
}
