package record_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loopfleet/pkg/event"
	"loopfleet/pkg/record"
	"loopfleet/pkg/workitem"
)

func item(t *testing.T) workitem.Ref {
	t.Helper()
	ref, err := workitem.Parse("github:octo/hello#42")
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// at is a moment of the forge's clock, in seconds after an arbitrary start.
func at(sec int) time.Time { return time.Unix(1_700_000_000+int64(sec), 0).UTC() }

func control(kind event.Kind, seq uint64, sec int) record.Control {
	return record.Control{EventID: fmt.Sprintf("%s-%d", kind, sec), Kind: kind, Seq: seq, At: at(sec), Reason: event.IssueClosed}
}

// armed is a record whose label of second 10 was obeyed.
func armed(t *testing.T) record.Record {
	t.Helper()
	r := record.New(item(t))
	r.Arm(at(10))
	r.Floor = 1
	return r
}

func TestFold_WhatEachControlDoes(t *testing.T) {
	t.Parallel()
	backingOff := func(r *record.Record) {
		r.Begin("comment-a", 0, 5)
		r.Fail("no tmux", at(99))
	}
	tests := []struct {
		name   string
		given  func(*record.Record)
		kind   event.Kind
		sec    int
		effect record.Effect
		check  func(record.Record) bool
	}{
		{"close ends", nil, event.Close, 20, record.Applied, func(r record.Record) bool {
			return r.Want == record.Closed && r.Reason == event.IssueClosed && r.ClosedSeq == 7 && r.ClosedAt.Equal(at(20))
		}},
		{"close of the arming second ends", nil, event.Close, 10, record.Applied, func(r record.Record) bool { return r.Want == record.Closed }},
		{"close older than the arming is old news", nil, event.Close, 9, record.Outdated, func(r record.Record) bool {
			return r.Want == record.Run && r.ClosedSeq == 0 && r.ClosedAt.IsZero()
		}},
		{"close of a paused item ends it", func(r *record.Record) { r.Want = record.Paused }, event.Close, 20, record.Applied, func(r record.Record) bool { return r.Want == record.Closed }},
		{"close of a stopped item closes it", func(r *record.Record) { r.Want, r.Reason = record.Stopped, event.Stopped }, event.Close, 20, record.Applied, func(r record.Record) bool {
			return r.Want == record.Closed && r.Reason == event.IssueClosed
		}},
		{"a later close of a closed item moves the line", func(r *record.Record) { r.Fold([]record.Control{control(event.Close, 3, 20)}) }, event.Close, 30, record.Pointless, func(r record.Record) bool {
			return r.Want == record.Closed && r.ClosedSeq == 7 && r.ClosedAt.Equal(at(30))
		}},
		{"an older close of a closed item keeps the time", func(r *record.Record) { r.Fold([]record.Control{control(event.Close, 3, 30)}) }, event.Close, 20, record.Pointless, func(r record.Record) bool {
			return r.Want == record.Closed && r.ClosedAt.Equal(at(30))
		}},
		{"stop ends", nil, event.Stop, 20, record.Applied, func(r record.Record) bool {
			return r.Want == record.Stopped && r.Reason == event.Stopped && r.ClosedSeq == 7
		}},
		{"stop of a closed item does nothing", func(r *record.Record) { r.Want = record.Closed }, event.Stop, 20, record.Pointless, func(r record.Record) bool { return r.Want == record.Closed }},
		{"stop of a stopped item does nothing", func(r *record.Record) { r.Want = record.Stopped }, event.Stop, 20, record.Pointless, func(r record.Record) bool { return r.ClosedSeq == 0 }},
		{"pause", nil, event.Pause, 20, record.Applied, func(r record.Record) bool { return r.Want == record.Paused }},
		{"pause of a paused item", func(r *record.Record) { r.Want = record.Paused }, event.Pause, 20, record.Pointless, func(r record.Record) bool { return r.Want == record.Paused }},
		{"pause of a closed item", func(r *record.Record) { r.Want = record.Closed }, event.Pause, 20, record.Pointless, func(r record.Record) bool { return r.Want == record.Closed }},
		{"resume", func(r *record.Record) { r.Want = record.Paused }, event.Resume, 20, record.Applied, func(r record.Record) bool { return r.Want == record.Run }},
		{"resume of a running item", nil, event.Resume, 20, record.Pointless, func(r record.Record) bool { return r.Want == record.Run }},
		{"resume of a stopped item", func(r *record.Record) { r.Want = record.Stopped }, event.Resume, 20, record.Pointless, func(r record.Record) bool { return r.Want == record.Stopped }},
		{"retry cuts a backoff short", backingOff, event.Retry, 20, record.Applied, func(r record.Record) bool {
			return r.Started.NotBefore.IsZero() && r.Started.Failures == 1
		}},
		{"retry clears stopped", func(r *record.Record) { r.Want, r.ClosedSeq = record.Stopped, 3 }, event.Retry, 20, record.Applied, func(r record.Record) bool {
			return r.Want == record.Run && r.ClosedSeq == 0
		}},
		{"retry of a closed item does nothing", func(r *record.Record) { r.Want = record.Closed }, event.Retry, 20, record.Pointless, func(r record.Record) bool { return r.Want == record.Closed }},
		{"retry with nothing to retry", nil, event.Retry, 20, record.Pointless, func(r record.Record) bool { return r.Want == record.Run }},
		{"retry of a stopped item that has ended lets it sleep", func(r *record.Record) {
			r.Want = record.Stopped
			r.Set(record.StateClosed, event.Stopped, at(15))
		}, event.Retry, 20, record.Applied, func(r record.Record) bool {
			return r.Want == record.Run && r.State == record.StateSleeping && r.Since.Equal(at(20))
		}},
		{"cleanup ends and wishes to forget", nil, event.Cleanup, 20, record.Applied, func(r record.Record) bool {
			return r.Want == record.Stopped && r.Forget && r.Wishes() && r.ClosedSeq == 7 && r.ClosedAt.Equal(at(20))
		}},
		{"cleanup of a closed item too", func(r *record.Record) { r.Want = record.Closed }, event.Cleanup, 20, record.Applied, func(r record.Record) bool {
			return r.Want == record.Stopped && r.Forget
		}},
		{"a kind from the future", nil, event.Kind("levitate"), 20, record.Pointless, func(r record.Record) bool { return r.Want == record.Run }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := armed(t)
			if tt.given != nil {
				tt.given(&r)
			}
			folded := r.Fold([]record.Control{control(tt.kind, 7, tt.sec)})
			if len(folded) != 1 || folded[0].Effect != tt.effect {
				t.Errorf("folded %+v, want effect %s", folded, tt.effect)
			}
			if !tt.check(r) {
				t.Errorf("record after it: %+v", r)
			}
			if r.ControlSeq != 7 {
				t.Errorf("control_seq %d, want 7", r.ControlSeq)
			}
		})
	}
}

func TestFold_IDAppliedBeforeChangesNothing(t *testing.T) {
	t.Parallel()
	r := armed(t)
	r.Fold([]record.Control{control(event.Close, 2, 20)})
	r.Arm(at(20)) // the reopen, of the same second
	again := control(event.Close, 4, 20)
	if f := r.Fold([]record.Control{again}); f[0].Effect != record.Repeated {
		t.Errorf("effect %s, want repeated", f[0].Effect)
	}
	if r.Want != record.Run || r.ClosedSeq != 0 {
		t.Errorf("a close that was applied before ended the item again: %+v", r)
	}
}

func TestFold_KeepsTheLastIDs(t *testing.T) {
	t.Parallel()
	r := armed(t)
	const n = 3 * record.MaxControlIDs
	for i := range n {
		r.Fold([]record.Control{control(event.Pause, uint64(i+1), i)})
	}
	r.Fold([]record.Control{{Seq: n + 1}}) // cannot be decoded: has no id worth keeping
	if len(r.ControlIDs) != record.MaxControlIDs {
		t.Fatalf("%d ids kept, want %d", len(r.ControlIDs), record.MaxControlIDs)
	}
	if want := fmt.Sprintf("pause-%d", n-1); r.ControlIDs[len(r.ControlIDs)-1] != want {
		t.Errorf("newest id %q, want %q", r.ControlIDs[len(r.ControlIDs)-1], want)
	}
	if r.ControlSeq != n+1 {
		t.Errorf("control_seq %d: what cannot be decoded is passed over once and for all", r.ControlSeq)
	}
}

// Folding everything in one go, in pieces, or in pieces that overlap gives one
// and the same record.
func TestFold_IsIdempotent(t *testing.T) {
	t.Parallel()
	kinds := []event.Kind{event.Close, event.Stop, event.Pause, event.Resume, event.Retry, event.Cleanup, ""}
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		msgs := make([]record.Control, 1+rng.IntN(30))
		for i := range msgs {
			msgs[i] = control(kinds[rng.IntN(len(kinds))], uint64(2*i+2), rng.IntN(12))
			if i > 0 && rng.IntN(4) == 0 { // published twice, beyond the duplicate window
				old := msgs[rng.IntN(i)]
				old.Seq = msgs[i].Seq
				msgs[i] = old
			}
		}
		start := armed(t)
		if rng.IntN(2) == 0 {
			start.Begin("comment-a", 0, 1)
			start.Fail("x", at(50))
		}
		whole := start.Clone()
		wholeEffects := whole.Fold(msgs)

		pieces := start.Clone()
		var effects []record.Folded
		for from := 0; from < len(msgs); {
			to := from + 1 + rng.IntN(len(msgs)-from)
			effects = append(effects, pieces.Fold(msgs[rng.IntN(from+1):to])...) // reaches back at random
			effects = append(effects, pieces.Fold(msgs[:to])...)
			from = to
		}
		if diff := cmp.Diff(whole, pieces); diff != "" {
			t.Fatalf("seed %d: in one go and in pieces differ:\n%s", seed, diff)
		}
		if diff := cmp.Diff(wholeEffects, effects); diff != "" {
			t.Fatalf("seed %d: effects differ:\n%s", seed, diff)
		}
		if again := whole.Fold(msgs); len(again) != 0 {
			t.Fatalf("seed %d: folding again had effects: %+v", seed, again)
		}
	}
}

func TestConfirm_OlderCloseIsOldNews(t *testing.T) {
	t.Parallel()
	r := armed(t)
	r.Confirm(at(30)) // a reopen that overtook its close
	if f := r.Fold([]record.Control{control(event.Close, 4, 20)}); f[0].Effect != record.Outdated || r.Want != record.Run {
		t.Errorf("close: %s, want outdated; want is %s", f[0].Effect, r.Want)
	}
	if f := r.Fold([]record.Control{control(event.Close, 5, 31)}); f[0].Effect != record.Applied {
		t.Errorf("a newer close: %s", f[0].Effect)
	}
	r.Confirm(at(40))
	if !r.ArmedAt.Equal(at(30)) {
		t.Error("a closed item was confirmed open without an event that was obeyed")
	}
}

func TestArm(t *testing.T) {
	t.Parallel()
	r := record.New(item(t))
	r.Fold([]record.Control{control(event.Close, 3, 20)})
	r.Arm(at(30))
	if r.Want != record.Run || !r.Armed || r.ClosedSeq != 0 || !r.ArmedAt.Equal(at(30)) {
		t.Errorf("after arming: %+v", r)
	}
	r.Arm(at(5))
	if !r.ArmedAt.Equal(at(30)) {
		t.Errorf("armed_at went back to %s", r.ArmedAt)
	}
}

func TestClone_SharesNothing(t *testing.T) {
	t.Parallel()
	r := armed(t)
	r.Session = &record.Session{Token: "t"}
	r.Fold([]record.Control{control(event.Pause, 1, 20)})
	r.Finish(record.Outcome{EventID: "a", Seq: 1})
	r.Begin("b", 0, 2)
	want, c := r.Clone(), r.Clone()
	c.Session.Token, c.Started.Starts = "other", 9
	c.ControlIDs[0], c.Recent[0].EventID = "other", "other"
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("changing the clone changed the original:\n%s", diff)
	}
	if !slices.Equal(c.ControlIDs, []string{"other"}) {
		t.Error("the clone was not changed")
	}
}
