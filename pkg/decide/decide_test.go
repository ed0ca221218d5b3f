package decide_test

import (
	"maps"
	"testing"
	"time"

	"loopfleet/pkg/config"
	"loopfleet/pkg/decide"
	"loopfleet/pkg/event"
	"loopfleet/pkg/record"
	"loopfleet/pkg/workitem"
)

func item(tb testing.TB) workitem.Ref {
	tb.Helper()
	ref, err := workitem.Parse("github:octo/hello#42")
	if err != nil {
		tb.Fatal(err)
	}
	return ref
}

func at(sec int) time.Time { return time.Unix(1_700_000_000+int64(sec), 0).UTC() }

// The columns of the table: label obeyed in second 10, closed in second 20,
// given up in second 30.
func columns(tb testing.TB) map[string]record.Record {
	tb.Helper()
	live := func(s record.State, session bool) record.Record {
		r := record.New(item(tb))
		r.Arm(at(10))
		r.Floor = 1
		r.Set(s, "", at(30))
		if session {
			r.Session = &record.Session{Token: "t", Host: "w1"}
		}
		return r
	}
	paused := live(record.StatePaused, true)
	paused.Want = record.Paused
	closed := live(record.StateClosed, true)
	closed.Want, closed.ClosedSeq, closed.ClosedAt = record.Closed, 5, at(20)
	stopped := live(record.StateClosed, true)
	stopped.Want, stopped.ClosedSeq = record.Stopped, 5
	return map[string]record.Record{
		"no record":                   record.New(item(tb)),
		"waiting":                     live(record.StateWaiting, false),
		"starting before the program": live(record.StateStarting, false),
		"starting":                    live(record.StateStarting, true),
		"active":                      live(record.StateActive, true),
		"paused":                      paused,
		"sleeping":                    live(record.StateSleeping, true),
		"dead":                        live(record.StateDead, true),
		"lost":                        live(record.StateLost, true),
		"failed":                      live(record.StateFailed, false),
		"closed":                      closed,
		"stopped":                     stopped,
	}
}

var (
	spawn   = decide.Action{Do: decide.Spawn}
	deliver = decide.Action{Do: decide.Deliver}
	already = decide.Action{Do: decide.Drop, Reason: decide.Already}
)

func drop(reason string) decide.Action { return decide.Action{Do: decide.Drop, Reason: reason} }

// Every cell of the table of DESIGN section 8. The event came after everything
// else (seq 9, second 40), unless the row says otherwise.
func TestEvent_Table(t *testing.T) {
	t.Parallel()
	hold := decide.Action{Do: decide.Hold, Reason: decide.PausedItem}
	prompt := map[string]decide.Action{
		"no record": drop(decide.NotArmed), "waiting": spawn, "starting before the program": spawn, "starting": deliver,
		"active": deliver, "paused": hold,
		"sleeping": spawn, "dead": spawn, "lost": spawn, // rule: RR-02
		"failed": spawn, // rule: RR-15 rule: RR-19
		"closed": drop(decide.ClosedItem), "stopped": drop(decide.StoppedItem),
	}
	ci := map[string]decide.Action{}
	maps.Copy(ci, prompt)
	ci["failed"] = drop(decide.FailedSpawn)
	label := map[string]decide.Action{
		"no record": spawn, "waiting": already, "starting before the program": already, "starting": already, "active": already,
		"paused": already, "sleeping": already, "dead": already, "lost": already,
		"failed": spawn,
		"closed": spawn, "stopped": spawn, // rule: CL-20
	}
	presence := map[string]decide.Action{}
	maps.Copy(presence, label)
	presence["failed"], presence["stopped"] = already, drop(decide.StoppedItem)
	// rule: CL-01
	control := map[string]decide.Action{}
	for column := range label {
		control[column] = drop(decide.NotPrompt)
	}
	rows := map[event.Kind]map[string]decide.Action{
		event.Label: label, event.Reopen: label, event.Presence: presence,
		event.Comment: prompt, event.Review: prompt, event.ReviewComment: prompt, event.CI: ci,
		event.Close: control, event.Pause: control, event.Resume: control, event.Stop: control, event.Retry: control, event.Cleanup: control,
	}
	cols := columns(t)
	for kind, row := range rows {
		if len(row) != len(cols) {
			t.Fatalf("row %s has %d cells of %d", kind, len(row), len(cols))
		}
		for column, want := range row {
			t.Run(string(kind)+"/"+column, func(t *testing.T) {
				t.Parallel()
				got := decide.Event(decide.Input{
					Event: event.Event{ID: "e-1", Kind: kind, At: at(40)}, Seq: 9, Published: at(40),
					Record: cols[column], Now: at(40), Routing: config.Routing{},
				})
				if got != want {
					t.Errorf("got %+v, want %+v", got, want)
				}
			})
		}
	}
}

// What the table says in words, and what lies between its cells.
func TestEvent_Cases(t *testing.T) {
	t.Parallel()
	routing := config.Routing{ArmGraceSeconds: 60, QuietSeconds: 20}
	replay := func(in *decide.Input) {
		in.Event.Generation, in.Event.Source, in.Now = 1, event.Operator, at(100)
	}
	tests := []struct {
		name   string
		column string
		kind   event.Kind
		change func(*decide.Input)
		want   decide.Action
	}{
		{"failed: a comment from before the give-up", "failed", event.Comment, func(in *decide.Input) { in.Published = at(29) }, drop(decide.FailedSpawn)},
		{"failed: a comment of the very moment", "failed", event.Comment, func(in *decide.Input) { in.Published = at(30) }, drop(decide.FailedSpawn)},
		{"failed: a comment whose tries go on", "failed", event.Comment, func(in *decide.Input) {
			in.Published = at(29)
			in.Record.Begin("e-1", 0, 9)
		}, spawn},
		{"failed: tries of another generation are another's", "failed", event.Comment, func(in *decide.Input) {
			in.Published = at(29)
			in.Record.Begin("e-1", 1, 9)
		}, drop(decide.FailedSpawn)},
		{"failed: a CI failure replayed by a person", "failed", event.CI, replay, spawn},
		{"failed: a presence replayed by a person", "failed", event.Presence, replay, spawn},
		{"active: a label replayed by a person, whose prompt got no receipt", "active", event.Label, replay, deliver},
		{"dead: a label replayed by a person", "dead", event.Label, replay, spawn},
		{"closed: a comment replayed by a person", "closed", event.Comment, replay, drop(decide.ClosedItem)},
		{"active: a label of a higher generation is no replay", "active", event.Label, func(in *decide.Input) { in.Event.Generation = 1 }, already},
		{"starting: the label's own further tries", "starting before the program", event.Label, func(in *decide.Input) { in.Record.Begin("e-1", 0, 9) }, spawn},
		{"backoff", "active", event.Comment, func(in *decide.Input) {
			in.Record.Begin("e-1", 0, 9)
			in.Record.Fail("x", at(50))
		}, decide.Action{Do: decide.Hold, Reason: decide.Backoff, Until: at(50)}},
		{"backoff is over", "active", event.Comment, func(in *decide.Input) {
			in.Record.Begin("e-1", 0, 9)
			in.Record.Fail("x", at(40))
		}, deliver},
		{"another event's backoff", "active", event.Comment, func(in *decide.Input) {
			in.Record.Begin("e-0", 0, 8)
			in.Record.Fail("x", at(50))
		}, deliver},
		{"backoff of a paused item", "paused", event.Comment, func(in *decide.Input) {
			in.Record.Begin("e-1", 0, 9)
			in.Record.Fail("x", at(50))
		}, decide.Action{Do: decide.Hold, Reason: decide.PausedItem}},
		{"backoff of a closed item", "closed", event.Comment, func(in *decide.Input) {
			in.Record.Begin("e-1", 0, 9)
			in.Record.Fail("x", at(50))
		}, drop(decide.ClosedItem)},
		{"no record: a comment whose label is behind it", "no record", event.Comment, func(in *decide.Input) { in.ArmingAhead = true }, spawn},
		{"no record: a comment of a labelled item waits for the label", "no record", event.Comment, func(in *decide.Input) { in.Event.Labeled = true }, decide.Action{Do: decide.Hold, Reason: decide.AwaitingLabel, Until: at(100)}},
		{"no record: the label never came", "no record", event.Comment, func(in *decide.Input) { in.Event.Labeled, in.Now = true, at(100) }, drop(decide.NotArmed)},
		{"no record, paused: label", "no record", event.Label, func(in *decide.Input) { in.Record.Want = record.Paused }, decide.Action{Do: decide.Hold, Reason: decide.PausedItem}},
		{"no record, paused: a comment whose label is behind it", "no record", event.Comment, func(in *decide.Input) {
			in.Record.Want, in.ArmingAhead = record.Paused, true
		}, decide.Action{Do: decide.Hold, Reason: decide.PausedItem}},
		{"no record, paused: a comment of nobody's item", "no record", event.Comment, func(in *decide.Input) { in.Record.Want = record.Paused }, drop(decide.NotArmed)},
		{"paused: the label's own further tries", "starting before the program", event.Label, func(in *decide.Input) {
			in.Record.Begin("e-1", 0, 9)
			in.Record.Want = record.Paused
		}, decide.Action{Do: decide.Hold, Reason: decide.PausedItem}},
		{"paused: a label after the spawn was given up", "failed", event.Label, func(in *decide.Input) { in.Record.Want = record.Paused }, decide.Action{Do: decide.Hold, Reason: decide.PausedItem}},
		{"paused: an old comment of a failed spawn", "failed", event.Comment, func(in *decide.Input) {
			in.Record.Want, in.Published = record.Paused, at(29)
		}, drop(decide.FailedSpawn)},
		{"CI waits for others of its commit", "active", event.CI, func(in *decide.Input) { in.Now = at(59) }, decide.Action{Do: decide.Hold, Reason: decide.Quiet, Until: at(60)}},
		{"CI has waited", "active", event.CI, func(in *decide.Input) { in.Now = at(60) }, deliver},
		{"CI of a paused item", "paused", event.CI, nil, decide.Action{Do: decide.Hold, Reason: decide.PausedItem}},
		{"CI of a closed item", "closed", event.CI, nil, drop(decide.ClosedItem)},

		// The closing line. rule: CL-01
		{"closed: label of before the close, behind it", "closed", event.Label, func(in *decide.Input) { in.Event.At = at(19) }, drop(decide.ClosedItem)},
		{"closed: reopen of the close's second, behind it", "closed", event.Reopen, func(in *decide.Input) { in.Event.At = at(20) }, spawn},
		{"closed: label before the close", "closed", event.Label, func(in *decide.Input) { in.Event.At, in.Seq = at(19), 3 }, drop(decide.ClosedItem)},
		{"closed: label of the close's second, before it", "closed", event.Label, func(in *decide.Input) { in.Event.At, in.Seq = at(20), 3 }, drop(decide.ClosedItem)},
		{"closed: reopen that overtook the close", "closed", event.Reopen, func(in *decide.Input) { in.Event.At, in.Seq = at(21), 3 }, spawn},
		{"closed: presence that overtook the close", "closed", event.Presence, func(in *decide.Input) { in.Event.At, in.Seq = at(21), 3 }, spawn},
		{"closed: comment that overtook the close", "closed", event.Comment, func(in *decide.Input) { in.Event.At, in.Seq = at(21), 3 }, drop(decide.ClosedItem)},
		{"closed: a comment with its reopen behind it", "closed", event.Comment, func(in *decide.Input) { in.ArmingAhead = true }, drop(decide.ClosedItem)},
		{"stopped: label of before the stop", "stopped", event.Label, func(in *decide.Input) { in.Seq = 3 }, drop(decide.StoppedItem)},
		{"tombstone: label of before the close", "no record", event.Label, func(in *decide.Input) {
			in.Record.Fold([]record.Control{{EventID: "close-1", Kind: event.Close, Seq: 12, At: at(41)}})
		}, drop(decide.ClosedItem)},
		{"tombstone: comment after the close", "no record", event.Comment, func(in *decide.Input) {
			in.Record.Fold([]record.Control{{EventID: "close-1", Kind: event.Close, Seq: 5, At: at(20)}})
		}, drop(decide.ClosedItem)},
	}
	cols := columns(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := decide.Input{
				Event: event.Event{ID: "e-1", Kind: tt.kind, At: at(40)}, Seq: 9, Published: at(40),
				Record: cols[tt.column].Clone(), Now: at(40), Routing: routing,
			}
			if tt.change != nil {
				tt.change(&in)
			}
			if got := decide.Event(in); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestTooMany(t *testing.T) {
	t.Parallel()
	var rec record.Record
	for i := range 5 {
		rec.Pace = rec.Pace.Add(at(i))
	}
	for limit, want := range map[int]bool{0: false, 4: true, 5: true, 6: false} {
		n, tripped := decide.TooMany(decide.Input{Record: rec, Now: at(10), Routing: config.Routing{MaxEventsPerHour: limit}})
		if n != 5 || tripped != want {
			t.Errorf("limit %d: %d prompts, tripped %t; want 5, %t", limit, n, tripped, want)
		}
	}
	if n, tripped := decide.TooMany(decide.Input{Record: rec, Now: at(3700), Routing: config.Routing{MaxEventsPerHour: 4}}); n != 0 || tripped {
		t.Errorf("an hour later: %d prompts, tripped %t", n, tripped)
	}
}
