package e2e_test

import (
	"strings"
	"testing"

	"loopfleet/pkg/event"
	"loopfleet/pkg/testutil/tmuxtest"
	"loopfleet/pkg/testutil/waitfor"
)

// A worker that comes back under its id finds its agents at work: the same
// processes, nothing started again, and what came meanwhile is delivered once.
//
// rule: RR-10, rule: RR-22
func TestWorkerKilled_ComesBack(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(s *scene){
		"at once":                           func(*scene) {},
		"after an outage longer than a TTL": (*scene).outage,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stage(t)
			in, w := s.Ingress("in1"), s.Worker("w1")
			ref := item(t, 42)
			l := s.send(in, label(42))
			s.done(l)
			before, server := s.agent(ref), s.record(ref).Session.ServerPID

			w.Kill()
			c := s.send(in, comment(42, 1))
			between(s)
			s.Worker("w1")
			s.done(c)
			if after := s.agent(ref); after != before {
				t.Errorf("the agent is process %+v, before it was %+v", after, before)
			}
			if after := s.record(ref).Session.ServerPID; after != server {
				t.Errorf("the tmux server is process %d, before it was %d", after, server)
			}
			s.received(ref, l, c)
			s.wantLogged(event.SessionAdopted, ref, 1)
			s.wantLogged(event.SessionRespawned, ref, 0)
		})
	}
}

// A worker that lives through an outage longer than its lease lets go, and then
// takes up what is its own; its peer has taken nothing.
func TestServerAway_LongerThanLease(t *testing.T) {
	t.Parallel()
	s := stage(t)
	in := s.Ingress("in1")
	s.Worker("w1")
	ref := item(t, 43)
	l := s.send(in, label(43))
	s.done(l)
	before := s.agent(ref)
	s.Worker("w2")
	s.outage()
	c := s.send(in, comment(43, 1))
	s.done(c)
	if after := s.agent(ref); after != before {
		t.Errorf("the agent is process %+v, before it was %+v", after, before)
	}
	s.received(ref, l, c)
	s.wantLogged(event.SessionRespawned, ref, 0)
}

// SIGTERM between paste and submit: the line is submitted, the session stays,
// and the next start of the worker takes it up.
func TestSIGTERM_FinishesSubmit(t *testing.T) {
	t.Parallel()
	s := stage(t)
	in, w := s.Ingress("in1"), s.Worker("w1")
	ref := item(t, 44)
	l := s.send(in, label(44))
	s.done(l)
	before := s.agent(ref)
	s.Stop(w)

	w = s.Worker("w1", "DISPATCH_LAG=2s")
	c := s.send(in, comment(44, 1))
	session := s.record(ref).Session
	srv := tmuxtest.On(t, session.TmuxSocket)
	waitfor.Until(t, "the line to stand in the composer", func() bool {
		text, _, err := srv.Screen(t.Context(), session.TmuxTarget)
		return err == nil && strings.Contains(squash(text), "event"+c.EventID+":read")
	})
	if got := s.ReceivedIDs(ref); len(got) != 1 {
		t.Fatalf("the line was submitted before the worker was stopped: %q", got)
	}
	s.Stop(w)
	s.takes(c)
	if after := s.agent(ref); after != before {
		t.Errorf("the agent is process %+v, before it was %+v", after, before)
	}
	s.Worker("w1")
	c2 := s.send(in, comment(44, 2))
	s.done(c, c2)
	s.received(ref, l, c, c2)
	if after := s.agent(ref); after != before {
		t.Errorf("the agent is process %+v, before it was %+v", after, before)
	}
	s.wantLogged(event.SessionRespawned, ref, 0)
}

// squash removes what the terminal's width puts into a line.
func squash(s string) string { return strings.Join(strings.Fields(s), "") }

// Scenario 29: a worker dies after the paste and before the outcome is written.
// The worker that comes back reads the receipt; one elsewhere cannot, and says
// so. What waited behind comes in order, either way.
//
// rule: RR-22
func TestWorkerKilled_BeforeOutcome(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]string{"comes back": "w1", "taken over": "w2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stage(t)
			in, w := s.Ingress("in1"), s.Worker("w1")
			ref := item(t, 45)
			l := s.send(in, label(45))
			s.done(l)
			s.Stop(w)
			w = s.Worker("w1", "DISPATCH_LAG=3s")
			c1 := s.send(in, comment(45, 1))
			s.takes(c1)
			c2, c3 := s.send(in, comment(45, 2)), s.send(in, comment(45, 3))
			w.Kill()
			if _, ok, err := s.Reg.Outcome(t.Context(), ref, c1.EventID, 0); ok || err != nil {
				t.Fatalf("the outcome is written already (%v, %v): nothing was tested", ok, err)
			}

			s.Worker(next)
			s.done(c1, c2, c3)
			if next == "w1" {
				s.received(ref, l, c1, c2, c3)
				s.wantLogged(event.SessionRespawned, ref, 0)
				return
			}
			s.received(ref, l, c1, c1, c2, c3)
			entries, err := s.Received(ref)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(entries[2].Text, "may have sent you this event before") {
				t.Errorf("the second prompt does not say that it may be one: %q", entries[2].Text)
			}
			s.wantResent(ref, c1.EventID)
		})
	}
}
