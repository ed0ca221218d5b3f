package ingress_test

import (
	"testing"
	"time"

	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/ingress"
	"loopfleet/pkg/record"
	"loopfleet/pkg/testutil/githubtest"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/workitem"
)

var armed = githubtest.Labels("loopfleet")

// ages runs fn with an event so old that its outcome is read first, and with
// one that the stream itself still knows.
func ages(t *testing.T, fn func(t *testing.T, at githubtest.Option)) {
	t.Helper()
	for name, at := range map[string]time.Time{"old": githubtest.DefaultTime, "young": time.Now()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fn(t, githubtest.At(at))
		})
	}
}

// bug report 2
func TestDuplicates_OneCommentUnderTwoGUIDs(t *testing.T) {
	t.Parallel()
	ages(t, oneCommentUnderTwoGUIDs)
}

func oneCommentUnderTwoGUIDs(t *testing.T, at githubtest.Option) {
	t.Helper()
	s := newSite(t)
	d := githubtest.IssueComment("created", 42, armed, at)
	s.accept(t, d, ingress.Routed, "")
	again := d.Again()
	got := s.accept(t, again, ingress.Duplicate, "duplicate")
	e := s.one(t)
	if len(got.Events) != 1 || got.Events[0] != (ingress.EventAnswer{EventID: e.ID, WorkItem: e.WorkItem, Duplicate: true}) {
		t.Errorf("answer %+v", got.Events)
	}
	s.accept(t, d.Redeliver(), ingress.Duplicate, "duplicate")
	lines := s.lines(t, eventlog.Query{TypeGlob: "routing.dropped", Delivery: again.GUID})
	if len(lines) != 1 || lines[0].Reason() != "duplicate" || lines[0].EventID != e.ID || lines[0].WorkItem != e.WorkItem {
		t.Errorf("log lines: %s", show(lines))
	}
	if st := s.srv.Stats(); st.Published != 1 || st.Duplicates != 2 || st.Accepted != 3 {
		t.Errorf("counters: %+v", st)
	}
}

// bug report 2
func TestDuplicates_TwoEventsUnderOneGUID(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := githubtest.IssueComment("created", 42, armed, githubtest.ID(1))
	s.accept(t, first, ingress.Routed, "")
	s.accept(t, githubtest.IssueComment("created", 42, armed, githubtest.ID(2), githubtest.GUID(first.GUID)), ingress.Routed, "")
	if got := s.stored(t); len(got) != 2 || got[0].ID == got[1].ID {
		t.Errorf("stored: %+v", got)
	}
}

func TestDuplicates_CloseReopenCloseAreThree(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i, action := range []string{"closed", "reopened", "closed"} {
		s.accept(t, githubtest.Issue(action, 42, armed, githubtest.At(githubtest.DefaultTime.Add(time.Duration(i)*time.Minute))), ingress.Routed, "")
	}
	if got := s.stored(t); len(got) != 3 {
		t.Errorf("stored: %+v", got)
	}
}

// rule: RR-26
func TestGenerations_OnlyTheRedeliveryOfWhatDiedIsTriedAgain(t *testing.T) {
	t.Parallel()
	ages(t, onlyTheRedeliveryOfWhatDied)
}

func onlyTheRedeliveryOfWhatDied(t *testing.T, at githubtest.Option) {
	t.Helper()
	s := newSite(t)
	d := githubtest.IssueComment("created", 42, armed, at)
	s.accept(t, d, ingress.Routed, "")
	e := s.one(t)
	end := func(g int, kind record.OutcomeKind) {
		t.Helper()
		o := record.Outcome{EventID: e.ID, Generation: g, Kind: kind, Delivery: d.GUID, At: time.Now()}
		if created, err := s.reg.PutOutcome(t.Context(), e.WorkItem, o); err != nil || !created {
			t.Fatalf("outcome: %t, %v", created, err)
		}
	}
	generations := func(want ...int) {
		t.Helper()
		all := s.stored(t)
		if len(all) != len(want) {
			t.Fatalf("%d events are stored, want generations %v", len(all), want)
		}
		for i, e := range all {
			if e.Generation != want[i] {
				t.Fatalf("event %d is generation %d, want %d", i, e.Generation, want[i])
			}
		}
	}
	end(0, record.Dead)
	// Another hook's GUID, or another's comment, raises nothing.
	s.accept(t, d.Again(), ingress.Duplicate, "duplicate")
	generations(0)
	s.accept(t, d.Redeliver(), ingress.Routed, "")
	generations(0, 1)
	// The second try is under way.
	s.accept(t, d.Redeliver(), ingress.Duplicate, "duplicate")
	generations(0, 1)
	end(1, record.Dead)
	s.accept(t, d.Redeliver(), ingress.Routed, "")
	generations(0, 1, 2)
	end(2, record.Done)
	s.accept(t, d.Redeliver(), ingress.Duplicate, "duplicate")
	generations(0, 1, 2)
	// Others are left alone.
	s.accept(t, githubtest.IssueComment("created", 43, armed, at), ingress.Routed, "")
	generations(0, 1, 2, 0)
}

func TestGenerations_OutcomeThatIsOnlyInTheRecordCounts(t *testing.T) {
	t.Parallel()
	ages(t, outcomeOnlyInTheRecord)
}

func outcomeOnlyInTheRecord(t *testing.T, at githubtest.Option) {
	t.Helper()
	s := newSite(t)
	d := githubtest.IssueComment("created", 42, armed, at)
	s.accept(t, d, ingress.Routed, "")
	e := s.one(t)
	rec := record.New(e.WorkItem)
	rec.Finish(record.Outcome{EventID: e.ID, Kind: record.Dead, Delivery: d.GUID, At: time.Now()})
	if _, err := s.reg.Put(t.Context(), rec, 0); err != nil {
		t.Fatal(err)
	}
	s.accept(t, d.Redeliver(), ingress.Routed, "")
	if all := s.stored(t); len(all) != 2 || all[1].Generation != 1 {
		t.Errorf("stored: %+v", all)
	}
}

// rule: RR-10
func TestDuplicates_DoneSurvivesARestartOfEverything(t *testing.T) { //nolint:tparallel // in this order
	t.Parallel()
	n := natstest.Start(t, "")
	natstest.Provision(t, n.JS)
	d := githubtest.IssueComment("created", 42, armed)
	t.Run("before", func(t *testing.T) {
		s := newSiteOn(t, n, nil)
		s.accept(t, d, ingress.Routed, "")
		e := s.one(t)
		if _, err := s.reg.PutOutcome(t.Context(), e.WorkItem, record.Outcome{EventID: e.ID, Kind: record.Done, Delivery: d.GUID}); err != nil {
			t.Fatal(err)
		}
		// The message goes too, as behind the floor; the outcome stays.
		st, err := s.JS.Stream(t.Context(), "LOOP_EVENTS")
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	n.Restart(t)
	t.Run("after", func(t *testing.T) {
		s := newSiteOn(t, n, nil)
		s.accept(t, d.Redeliver(), ingress.Duplicate, "duplicate")
		s.accept(t, d.Again(), ingress.Duplicate, "duplicate")
		if got := s.stored(t); len(got) != 0 {
			t.Errorf("published again: %+v", got)
		}
	})
}

// bug report 14
func TestNames_ARenameOrTransferKeepsTheItem(t *testing.T) { //nolint:tparallel // in this order
	t.Parallel()
	n := natstest.Start(t, "")
	natstest.Provision(t, n.JS)
	for _, name := range []string{githubtest.DefaultRepo, "octo/renamed", "acme/transferred"} {
		t.Run(name, func(t *testing.T) {
			s := newSiteOn(t, n, nil) // a fresh process each time: nothing is in memory
			d := githubtest.IssueComment("created", 42, armed, githubtest.Repo(name, githubtest.DefaultRepoID), githubtest.ID(int64(len(name))))
			got := s.accept(t, d, ingress.Routed, "")
			if want := item(t, "octo/hello#42"); got.Events[0].WorkItem != want {
				t.Errorf("routed to %s, want %s", got.Events[0].WorkItem, want)
			}
		})
	}
	t.Run("another repository under the freed name", func(t *testing.T) {
		s := newSiteOn(t, n, nil)
		got := s.accept(t, githubtest.LabeledIssue(42, "loopfleet", githubtest.Repo(githubtest.DefaultRepo, 77)), ingress.Routed, "")
		if got.Events[0].WorkItem == item(t, "octo/hello#42") {
			t.Error("it shares the items of the one before")
		}
	})
}

func TestKnown_ARecordOrAnEventArms(t *testing.T) {
	t.Parallel()
	comment := func() githubtest.Delivery { return githubtest.IssueComment("created", 42) }
	t.Run("neither", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.accept(t, comment(), ingress.Dropped, "not-armed")
	})
	t.Run("record", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		if _, err := s.reg.Put(t.Context(), record.New(item(t, "octo/hello#42")), 0); err != nil {
			t.Fatal(err)
		}
		s.accept(t, comment(), ingress.Routed, "")
	})
	t.Run("event", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.accept(t, githubtest.LabeledIssue(42, "loopfleet"), ingress.Routed, "")
		s.accept(t, comment(), ingress.Routed, "")
	})
}

func TestLinks_APullRequestGoesToTheIssueItCloses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	issue := item(t, "octo/hello#42")
	if _, err := s.reg.Put(t.Context(), record.New(issue), 0); err != nil {
		t.Fatal(err)
	}
	opened := githubtest.PullRequest("opened", 7, githubtest.ItemText("Fixes #42"))
	s.accept(t, opened, ingress.Dropped, "action-ignored")
	if lines := s.lines(t, eventlog.Query{TypeGlob: "link.recorded", Delivery: opened.GUID}); len(lines) != 2 || lines[0].WorkItem != issue {
		t.Errorf("log lines: %s", show(lines))
	}
	// The binding outlives the text that made it.
	got := s.accept(t, githubtest.PullRequestComment("created", 7, githubtest.ItemText("")), ingress.Routed, "")
	if got.Events[0].WorkItem != issue {
		t.Errorf("comment routed to %s", got.Events[0].WorkItem)
	}
	got = s.accept(t, githubtest.CheckRun("test", "failure", []int64{7}), ingress.Routed, "")
	if got.Events[0].WorkItem != issue {
		t.Errorf("check routed to %s", got.Events[0].WorkItem)
	}
	// A fork's pull request is named by no check: the commit is.
	got = s.accept(t, githubtest.Status("lint", "failure"), ingress.Duplicate, "duplicate") // one event per commit
	if got.Events[0].WorkItem != issue {
		t.Errorf("status routed to %s", got.Events[0].WorkItem)
	}
	s.accept(t, githubtest.MergedPullRequest(7), ingress.Dropped, "linked-pr-closed")
	for _, e := range s.stored(t) {
		if e.Via != item(t, "octo/hello#7") {
			t.Errorf("%s: via %s", e.Kind, e.Via)
		}
	}
}

func TestLinks_OneDeliveryTwoItems(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	pr := item(t, "octo/hello#7")
	items := []workitem.Ref{item(t, "octo/hello#1"), item(t, "octo/hello#2")}
	if _, err := s.reg.LinkPR(t.Context(), pr, items...); err != nil {
		t.Fatal(err)
	}
	d := githubtest.PullRequestComment("created", 7)
	got := s.accept(t, d, ingress.Routed, "")
	if len(got.Events) != 2 {
		t.Fatalf("answer %+v", got.Events)
	}
	all := s.stored(t)
	if len(all) != 2 || all[0].ID != all[1].ID || all[0].WorkItem == all[1].WorkItem {
		t.Errorf("stored: %+v", all)
	}
	// One of the two is done: the redelivery of the other's failure repeats one.
	for i, kind := range []record.OutcomeKind{record.Done, record.Dead} {
		o := record.Outcome{EventID: all[i].ID, Kind: kind, Delivery: d.GUID}
		if _, err := s.reg.PutOutcome(t.Context(), all[i].WorkItem, o); err != nil {
			t.Fatal(err)
		}
	}
	got = s.accept(t, d.Redeliver(), ingress.Routed, "")
	if !got.Events[0].Duplicate || got.Events[1].Duplicate {
		t.Errorf("answer %+v", got.Events)
	}
}
