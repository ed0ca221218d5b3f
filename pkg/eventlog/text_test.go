package eventlog

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"loopfleet/pkg/event"
)

// line is what a reader gets of the entry, written at noon UTC of March 1st.
func line(t *testing.T, e Entry) Line {
	t.Helper()
	l, err := Parse(encode(t, e))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

type fields = map[string]any

// rule: RR-24
func TestLine_TellsWhatHappenedAndWhyIn80Columns(t *testing.T) {
	t.Parallel()
	const (
		id   = "comment-kdi5jmmxthdfr35qxh7er5um"
		guid = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
	)
	item := item42(t)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		entry Entry
		want  string
	}{
		"breaker": {
			Entry{Type: event.BreakerTripped, Level: event.Warn, WorkItem: item, Fields: fields{"reason": "too-many-events", "limit": 60}},
			"12:00:00 ! breaker.tripped    octo/hello#42 too-many-events limit=60 worker=w1",
		},
		"close": {
			Entry{Type: event.ControlApplied, WorkItem: item, EventID: "close-x", Fields: fields{"action": "close", "effect": "applied", "reason": "issue-closed", "seq": 7}},
			"12:00:00   control.applied    octo/hello#42 close applied (issue-closed)",
		},
		"dead": {
			Entry{Type: event.DispatchDead, Level: event.Error, WorkItem: item, EventID: id, Fields: fields{
				"reason": "attempts-spent", "error": "start the session of github:octo/hello#42: the agent in loop-octo-hello-42-7cc6 ended right after its start: exit status 1", "attempt": 3, "kind": "comment",
			}},
			"12:00:00 !!dispatch.dead      octo/hello#42 attempts-spent: the agent in loop-o…",
		},
		"drop": {
			Entry{Type: event.DispatchDropped, WorkItem: item, EventID: id, Delivery: guid, Fields: fields{"reason": "not-armed", "kind": "comment", "seq": 3, "generation": 0, "delivered": 1, "submitted": false}},
			"12:00:00   dispatch.dropped   octo/hello#42 not-armed: comment",
		},
		"failed": {
			Entry{Type: event.DispatchFailed, Level: event.Warn, WorkItem: item, EventID: id, Fields: fields{
				"kind": "comment", "attempt": 1, "delivered": 1, "reason": "not-landed", "error": "the line was not seen on the screen of the session", "will_retry": true, "retry_in": 4812 * time.Millisecond,
			}},
			"12:00:00 ! dispatch.failed    octo/hello#42 not-landed: the line … (again in 5s)",
		},
		"failed for the last time": {
			Entry{Type: event.DispatchFailed, Level: event.Warn, WorkItem: item, EventID: id, Fields: fields{
				"kind": "label", "attempt": 3, "error": "no", "will_retry": false, "retry_in": 5 * time.Second,
			}},
			"12:00:00 ! dispatch.failed    octo/hello#42 no (the last try)",
		},
		"first try": {
			Entry{Type: event.DispatchStarted, WorkItem: item, EventID: id, Fields: fields{"kind": "comment", "action": "deliver", "attempt": 1, "delivered": 1, "resent": false, "seq": 2}},
			"12:00:00   dispatch.started   octo/hello#42 deliver comment",
		},
		"second try": {
			Entry{Type: event.DispatchStarted, WorkItem: item, EventID: id, Fields: fields{"kind": "comment", "action": "deliver", "attempt": 2, "resent": true}},
			"12:00:00   dispatch.started   octo/hello#42 deliver comment, try 2, maybe resent",
		},
		"delivered": {
			Entry{Type: event.DispatchSucceeded, WorkItem: item, EventID: id, Fields: fields{"kind": "comment", "attempt": 1, "delivered": 1, "incarnation": 1, "harness": "demo", "submitted": true}},
			"12:00:00   dispatch.succeeded octo/hello#42 comment",
		},
		"waits for a person": {
			Entry{Type: event.DispatchWithheld, Level: event.Warn, WorkItem: item, EventID: id, Fields: fields{"kind": "comment", "reason": "dialog", "error": "the agent asks a person something; attach to its session and answer"}},
			"12:00:00 ! dispatch.withheld  octo/hello#42 dialog (the agent asks a person so…)",
		},
		"waits for its label": {
			Entry{Type: event.DispatchWithheld, WorkItem: item, EventID: id, Fields: fields{"kind": "comment", "reason": "awaiting-label", "until": at.Add(time.Minute)}},
			"12:00:00   dispatch.withheld  octo/hello#42 awaiting-label until 12:01:00",
		},
		"lease": {
			Entry{Type: event.LeaseLost, Level: event.Warn, Fields: fields{"error": "nats: timeout"}},
			"12:00:00 ! lease.lost         w1: nats: timeout",
		},
		"letter": {
			Entry{Type: event.DeadLetterReplayed, WorkItem: item, EventID: "label-1"},
			"12:00:00   letter.replayed    octo/hello#42 event_id=label-1 worker=w1",
		},
		"link": {
			Entry{Type: event.LinkRecorded, WorkItem: item, Delivery: guid, Fields: fields{"pull_request": "github:octo/hello#43"}},
			"12:00:00   link.recorded      octo/hello#42 gets #43",
		},
		"owner": {
			Entry{Type: event.OwnerChanged, WorkItem: item, Fields: fields{"from": "", "to": "w1", "reason": "bell"}},
			"12:00:00   owner.changed      octo/hello#42 nobody -> w1 (bell)",
		},
		"a stranger": {
			Entry{Type: event.RoutingDropped, WorkItem: item, EventID: id, Delivery: guid, Fields: fields{"reason": "unauthorized-actor", "event": "issue_comment", "action": "created", "actor": "mallory", "kind": "comment"}},
			"12:00:00   routing.dropped    octo/hello#42 unauthorized-actor: mallory comment",
		},
		"an event nobody waits for": {
			Entry{Type: event.RoutingDropped, Delivery: guid, Fields: fields{"reason": "event-filter", "event": "star"}},
			"12:00:00   routing.dropped    event-filter: star",
		},
		"routed by way of its pull request": {
			Entry{Type: event.RoutingRouted, WorkItem: item, EventID: id, Fields: fields{"kind": "comment", "action": "created", "event": "issue_comment", "actor": "alice", "via": "github:octo/hello#43", "seq": 4}},
			"12:00:00   routing.routed     octo/hello#42 comment by alice on #43",
		},
		"resumed": {
			Entry{Type: event.SessionRespawned, WorkItem: item, EventID: id, Fields: fields{"harness": "claude", "session": "loop-octo-hello-42-7cc6", "incarnation": 2, "resumed": true}},
			"12:00:00   session.respawned  octo/hello#42 claude, incarnation 2, resumed",
		},
		"a long type, with what is no noise": {
			Entry{Type: event.SessionEnded, WorkItem: item, Fields: fields{"harness": "demo", "session": "s", "missing": false, "killed": 2, "survivors": 0}},
			"12:00:00   session.terminated octo/hello#42 demo, needed KILL session=s",
		},
		"a request": {
			Entry{Type: event.WebhookReceived, Delivery: guid, Fields: fields{"event": "issue_comment", "bytes": 3557}},
			"12:00:00   webhook.received   issue_comment",
		},
		"a request without signature": {
			Entry{Type: event.WebhookRejected, Level: event.Warn, Fields: fields{"reason": "signature-missing", "status": 401, "event": "issues", "remote": "127.0.0.1", "error": "the X-Hub-Signature-256 header is missing"}},
			"12:00:00 ! webhook.rejected   signature-missing: issues from 127.0.0.1 (the X-…)",
		},
		"worker": {
			Entry{Type: event.WorkerStarted, Fields: fields{"capacity": 20, "harnesses": []string{"claude", "demo"}, "version": "dev"}},
			"12:00:00   worker.started     w1 has room for 20 (claude, demo)",
		},
		"hostile": {
			Entry{Type: event.RoutingDropped, WorkItem: item, Fields: fields{"reason": "not-armed", "kind": "comment", "actor": "a\r\nb\u202e\u200b\u00a0\x7f\U000e0041"}},
			`12:00:00   routing.dropped    octo/hello#42 not-armed: a\r\nb\u202e\u200b\u00a0…`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := line(t, tc.entry)
			if got := l.textAt(at, 80); got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestLine_TypesFitTheirColumn(t *testing.T) {
	t.Parallel()
	seen := map[string]event.LogType{}
	for typ := range event.Catalogue {
		short := strings.TrimRight(typeColumn(typ, 80), " ")
		if strings.HasSuffix(short, "…") {
			t.Errorf("%s is cut to %s: give it a name for people in shortTypes", typ, short)
		}
		if other, ok := seen[short]; ok {
			t.Errorf("%s and %s are both shown as %s", typ, other, short)
		}
		seen[short] = typ
		if _, ok := shortTypes[typ]; ok && len(typ) <= typeColumns {
			t.Errorf("%s fits and needs no other name", typ)
		}
	}
}

func TestLine_WideLeavesNothingOut(t *testing.T) {
	t.Parallel()
	l := line(t, Entry{
		Type: event.SessionEnded, WorkItem: item42(t), EventID: "close-1", Delivery: "guid",
		Fields: fields{"harness": "demo", "session": "s", "missing": false, "killed": 0, "survivors": 0, "zeta": strings.Repeat("z", 100)},
	})
	want := "12:00:00   session.harness_terminated octo/hello#42 demo session=s event_id=close-1 delivery_id=guid worker=w1 zeta=" + strings.Repeat("z", 100)
	if got := l.textAt(time.Date(2026, 3, 1, 20, 0, 0, 0, time.UTC), 0); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestLine_OtherDaysShowTheDate(t *testing.T) {
	t.Parallel()
	l := line(t, Entry{Type: event.LeaseTaken})
	east := time.FixedZone("east", 13*3600)
	for want, now := range map[string]time.Time{
		"12:00:00   lease.taken        w1":    time.Date(2026, 3, 1, 23, 59, 0, 0, time.UTC),
		"03-01 12:00   lease.taken        w1": time.Date(2026, 3, 2, 0, 1, 0, 0, time.UTC),
		"01:00:00   lease.taken        w1":    time.Date(2026, 3, 2, 5, 0, 0, 0, east),
	} {
		if got := l.textAt(now, 80); got != want {
			t.Errorf("at %s: got %q, want %q", now, got, want)
		}
	}
}

func TestLine_OfANewerVersionTellsAllItsFields(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	l := Line{
		TS: at, Type: "merge.x\x1b]0;y", Level: event.Warn,
		Fields: fields{"reason": "conflict", "error": "two\xff", "branch": "main", "count": json.Number("3"), "list": []any{"a", json.Number("1")}},
	}
	want := `12:00:00 ! merge.x\x1b]0;y    conflict two\xff branch=main count=3 list=a, 1`
	if got := l.textAt(at, 80); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
