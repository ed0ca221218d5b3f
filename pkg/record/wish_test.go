package record_test

import (
	"testing"

	"loopfleet/pkg/event"
	"loopfleet/pkg/record"
)

// A stop that takes the screen too is a wish until somebody has reached it.
func TestFold_StopWithItsScreen(t *testing.T) {
	t.Parallel()
	stop := func(seq uint64, kill bool) record.Control {
		c := control(event.Stop, seq, int(seq))
		c.KillTmux = kill
		return c
	}
	tests := []struct {
		name   string
		given  func(*record.Record)
		kill   bool
		effect record.Effect
		wishes bool
	}{
		{"running, with", nil, true, record.Applied, true},
		{"running, without", nil, false, record.Applied, false},
		{"closed, with", func(r *record.Record) { r.Want = record.Closed }, true, record.Applied, true},
		{"closed, without", func(r *record.Record) { r.Want = record.Closed }, false, record.Pointless, false},
		{"closed, asked for already", func(r *record.Record) { r.Want, r.KillTmux = record.Closed, true }, true, record.Pointless, true},
		{"closed, no session", func(r *record.Record) { r.Want, r.Session = record.Closed, nil }, true, record.Pointless, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := armed(t)
			r.Session = &record.Session{Host: "w1"}
			if tt.given != nil {
				tt.given(&r)
			}
			want := r.Want
			folded := r.Fold([]record.Control{stop(7, tt.kill)})
			if folded[0].Effect != tt.effect || r.Wishes() != tt.wishes {
				t.Errorf("effect %s, wishes %t; want %s, %t", folded[0].Effect, r.Wishes(), tt.effect, tt.wishes)
			}
			if want == record.Closed && r.Want != record.Closed {
				t.Errorf("a closed item became %s", r.Want)
			}
			r.Arm(at(30))
			if r.KillTmux || r.Wishes() {
				t.Error("the wish outlives a new label")
			}
		})
	}
}

// What is erased cannot come back by old news, and counts on when it does by new.
func TestErase(t *testing.T) {
	t.Parallel()
	r := armed(t)
	r.Owner, r.Incarnation, r.Harness, r.Title = "w1", 3, "demo", "Greet people"
	r.Session = &record.Session{Host: "w1"}
	r.Set(record.StateActive, "", at(11))
	r.Finish(record.Outcome{EventID: "label-a", Kind: record.Done, Seq: 4, At: at(12)})
	r.Fold([]record.Control{control(event.Cleanup, 7, 20)})
	r.Erase(at(21), record.End{PanePID: 9})
	switch {
	case r.Session != nil, r.Armed, r.State != "", r.Harness != "", r.Title != "", r.Forget, r.Wishes():
		t.Errorf("something is left: %+v", r)
	case r.Owner != "w1", r.Floor != 4, r.ControlSeq != 7, r.ClosedSeq != 7, r.Incarnation != 3, r.Want != record.Stopped:
		t.Errorf("what guards against old news is gone: %+v", r)
	case !r.ForgottenAt.Equal(at(21)), r.End == nil, r.End.PanePID != 9:
		t.Errorf("what was done is not told: %+v", r)
	}
	if _, known := r.Outcome("label-a", 0); !known {
		t.Error("an event that has its outcome would be news")
	}
	if folded := r.Fold([]record.Control{control(event.Cleanup, 7, 20)}); len(folded) != 0 {
		t.Errorf("the cleanup is read again: %+v", folded)
	}
	r.Arm(at(30))
	if !r.ForgottenAt.IsZero() || r.Want != record.Run || r.End != nil {
		t.Errorf("after a label: %+v", r)
	}
}
