// Package e2e_test tests the product as processes: what happens to people's
// events when workers, ingresses and the server are killed, stopped and started.
package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/ingress"
	"loopfleet/pkg/record"
	"loopfleet/pkg/testutil/fleettest"
	"loopfleet/pkg/testutil/githubtest"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/tmux"
	"loopfleet/pkg/workitem"
	"loopfleet/streams"
)

func TestMain(m *testing.M) { os.Exit(fleettest.Main(m)) } //nolint:forbidigo // a test's main

// scene is a fleet with the questions that the tests ask.
type scene struct {
	*fleettest.Fleet
	t *testing.T
}

func stage(t *testing.T) *scene {
	t.Helper()
	return &scene{Fleet: fleettest.New(t), t: t}
}

func item(t *testing.T, n int) workitem.Ref {
	t.Helper()
	ref, err := workitem.New(workitem.GitHub, "github.com", "octo", "hello", fmt.Sprint(n))
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func label(n int64) githubtest.Delivery { return githubtest.LabeledIssue(n, "loopfleet") }

// comment is the nth comment on a labelled issue.
func comment(issue, n int64) githubtest.Delivery {
	return githubtest.IssueComment("created", issue, githubtest.Labels("loopfleet"),
		githubtest.ID(issue*1000+n), githubtest.Text(fmt.Sprintf("comment %d", n)))
}

// send delivers until it is accepted and returns the one event's id.
func (s *scene) send(in *fleettest.Ingress, d githubtest.Delivery) ingress.EventAnswer {
	s.t.Helper()
	r := s.answer(in, d)
	if len(r.Events) != 1 {
		s.t.Fatalf("%s: %d events, outcome %s (%s), want one event", d.GUID, len(r.Events), r.Outcome, r.Reason)
	}
	return r.Events[0]
}

func (s *scene) answer(in *fleettest.Ingress, d githubtest.Delivery) fleettest.Reply {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitfor.Limit)
	defer cancel()
	r, _, err := fleettest.Send(ctx, func() string { return in.URL }, d)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// refused posts once and wants 503.
func (s *scene) refused(in *fleettest.Ingress, d githubtest.Delivery) bool {
	s.t.Helper()
	r, err := fleettest.Post(s.t.Context(), in.URL, d)
	if err != nil {
		s.t.Fatal(err)
	}
	if r.Status == http.StatusServiceUnavailable && r.RetryAfter == "" {
		s.t.Error("503 without Retry-After")
	}
	return r.Status == http.StatusServiceUnavailable
}

func (s *scene) outcome(e ingress.EventAnswer, generation int) record.Outcome {
	s.t.Helper()
	return waitfor.Value(s.t, fmt.Sprintf("the outcome of %s for %s, generation %d", e.EventID, e.WorkItem, generation),
		func() (record.Outcome, bool) {
			o, ok, err := s.Reg.Outcome(s.t.Context(), e.WorkItem, e.EventID, generation)
			return o, ok && err == nil
		})
}

func (s *scene) done(events ...ingress.EventAnswer) {
	s.t.Helper()
	for _, e := range events {
		if o := s.outcome(e, 0); o.Kind != record.Done {
			s.t.Errorf("%s for %s: %s(%s), last error %q; want done", e.EventID, e.WorkItem, o.Kind, o.Reason, o.Error)
		}
	}
}

// received wants exactly these prompts, in order.
func (s *scene) received(ref workitem.Ref, events ...ingress.EventAnswer) {
	s.t.Helper()
	want := []string{}
	for _, e := range events {
		want = append(want, e.EventID)
	}
	if diff := cmp.Diff(want, s.ReceivedIDs(ref)); diff != "" {
		s.t.Errorf("the agent of %s received (-want +got):\n%s", ref, diff)
	}
}

// takes waits until an agent has taken the event.
func (s *scene) takes(e ingress.EventAnswer) {
	s.t.Helper()
	waitfor.Until(s.t, "the agent to take "+e.EventID, func() bool {
		return slices.Contains(s.ReceivedIDs(e.WorkItem), e.EventID)
	})
}

// agent is the one running agent of an item.
func (s *scene) agent(ref workitem.Ref) tmux.Process {
	s.t.Helper()
	agents := s.AgentsOf(ref)
	if len(agents) != 1 {
		s.t.Fatalf("%d agents of %s run, want 1: %+v", len(agents), ref, agents)
	}
	return agents[0].Process
}

// logged counts the lines of a type about an item once the log has all that
// belongs to outcomes that were seen.
func (s *scene) logged(typ event.LogType, ref workitem.Ref) []eventlog.Line {
	s.t.Helper()
	var out []eventlog.Line
	err := eventlog.Read(s.t.Context(), s.JS, eventlog.Query{TypeGlob: string(typ), WorkItem: ref}, func(l eventlog.Line) error {
		out = append(out, l)
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

func (s *scene) wantLogged(typ event.LogType, ref workitem.Ref, n int) {
	s.t.Helper()
	got := waitfor.Value(s.t, fmt.Sprintf("%d lines of %s for %s", n, typ, ref), func() ([]eventlog.Line, bool) {
		l := s.logged(typ, ref)
		return l, len(l) >= n
	})
	if len(got) != n {
		s.t.Errorf("%d lines of %s for %s, want %d", len(got), typ, ref, n)
	}
}

// outage keeps the server away for longer than a lease lives.
func (s *scene) outage() {
	s.t.Helper()
	s.Server.Kill()
	t := time.NewTimer(streams.LeaseTTL + 2*time.Second)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.t.Context().Done():
	}
	s.serverUp()
}

func (s *scene) serverUp() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitfor.Limit)
	defer cancel()
	if err := s.Server.Start(ctx); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) record(ref workitem.Ref) record.Record {
	s.t.Helper()
	e, err := s.Reg.Get(s.t.Context(), ref)
	if err != nil {
		s.t.Fatal(err)
	}
	if e.Record.Session == nil {
		s.t.Fatalf("%s has no session: %+v", ref, e.Record)
	}
	return e.Record
}

// wantResent wants the log to say that the event may have been sent twice.
func (s *scene) wantResent(ref workitem.Ref, eventID string) {
	s.t.Helper()
	waitfor.Until(s.t, "the log to say that the event was sent again", func() bool {
		return slices.ContainsFunc(s.logged(event.DispatchStarted, ref), func(l eventlog.Line) bool {
			return l.EventID == eventID && l.Fields["resent"] == true
		})
	})
}
