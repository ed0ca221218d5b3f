package record_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"loopfleet/pkg/record"
)

// step is one thing that can happen to the event at the head of a lane.
type step string

const (
	begin    step = "begin"
	takeBack step = "take back"
	fail     step = "fail"
)

func TestAttempt_Counts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                   string
		steps                  []step
		starts, failures, lost int
		resent                 bool // at the last begin
	}{
		{"first start", []step{begin}, 1, 0, 0, false},
		// rule: RR-12
		{"a hold takes the start back", []step{begin, takeBack}, 0, 0, 0, false},
		{"held often, then tried", []step{begin, takeBack, begin, takeBack, begin}, 1, 0, 0, false},
		{"a failure is charged", []step{begin, fail}, 1, 1, 0, false},
		{"a retry after a failure is not a resend", []step{begin, fail, begin}, 2, 1, 0, false},
		{"a crash loses the start", []step{begin, begin}, 2, 0, 1, true},
		{"a crash after a failure", []step{begin, fail, begin, begin}, 3, 1, 1, true},
		{"a failure after a crash", []step{begin, begin, fail}, 2, 1, 1, true},
		{"a hold after a crash", []step{begin, begin, takeBack}, 1, 0, 1, true},
		{"what a crash lost may have arrived, also after a hold", []step{begin, begin, takeBack, begin}, 2, 0, 1, true},
		{"what a crash lost may have arrived, also after a failure", []step{begin, begin, fail, begin}, 3, 1, 1, true},
		{"a failure cannot be taken back", []step{begin, fail, takeBack}, 1, 1, 0, false},
		{"nothing started, nothing charged", []step{begin, fail, fail}, 1, 1, 0, false},
		{"five crashes", []step{begin, begin, begin, begin, begin, begin}, 6, 0, record.MaxLostStarts, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := armed(t)
			resent := false
			for _, s := range tt.steps {
				switch s {
				case begin:
					_, resent = r.Begin("comment-a", 1, 7)
				case takeBack:
					r.TakeBack()
				case fail:
					r.Fail("no tmux", at(60))
				}
			}
			a := r.Started
			if a.Starts != tt.starts || a.Failures != tt.failures || a.Lost != tt.lost || resent != tt.resent {
				t.Errorf("starts %d failures %d lost %d resent %t, want %d %d %d %t",
					a.Starts, a.Failures, a.Lost, resent, tt.starts, tt.failures, tt.lost, tt.resent)
			}
		})
	}
}

func TestBegin_ClearsTheBackoffAndKeepsTheError(t *testing.T) {
	t.Parallel()
	r := armed(t)
	r.Incarnation = 3
	r.Begin("comment-a", 0, 7)
	r.Fail("no tmux", at(60))
	if !r.Started.NotBefore.Equal(at(60)) || r.Started.Error != "no tmux" {
		t.Fatalf("after a failure: %+v", r.Started)
	}
	a, _ := r.Begin("comment-a", 0, 7)
	if !a.NotBefore.IsZero() || a.Error != "no tmux" || a.Incarnation != 3 || a.Seq != 7 {
		t.Errorf("second start: %+v", a)
	}
}

func TestBegin_AnotherEventOrGenerationHasAFreshBudget(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]struct {
		id  string
		gen int
	}{"event": {"comment-b", 0}, "generation": {"comment-a", 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := armed(t)
			r.Begin("comment-a", 0, 7)
			r.Fail("x", at(60))
			a, resent := r.Begin(next.id, next.gen, 8)
			if a.Starts != 1 || a.Failures != 0 || a.Error != "" || resent {
				t.Errorf("%+v, resent %t", a, resent)
			}
		})
	}
}

func TestFinish(t *testing.T) {
	t.Parallel()
	r := armed(t)
	r.Begin("comment-a", 0, 7)
	r.Finish(record.Outcome{EventID: "comment-a", Kind: record.Done, Seq: 7, At: at(70)})
	if r.Floor != 7 || r.Started != nil || !r.LastEventAt.Equal(at(70)) {
		t.Errorf("after done: %+v", r)
	}
	r.Finish(record.Outcome{EventID: "comment-b", Kind: record.Dropped, Seq: 8, At: at(80)})
	if r.Floor != 8 || !r.LastEventAt.Equal(at(70)) {
		t.Errorf("a drop is not something the agent saw: %+v", r)
	}
	r.Finish(record.Outcome{EventID: "old", Kind: record.Dropped, Seq: 3, At: at(90)})
	if r.Floor != 8 {
		t.Errorf("the floor went back to %d", r.Floor)
	}
	for i := range 2 * record.MaxRecent {
		r.Finish(record.Outcome{EventID: fmt.Sprintf("e-%d", i), Generation: i % 3, Kind: record.Done, Seq: uint64(10 + i)})
	}
	if len(r.Recent) != record.MaxRecent {
		t.Errorf("%d recent outcomes, want %d", len(r.Recent), record.MaxRecent)
	}
	last := 2*record.MaxRecent - 1
	if o, ok := r.Outcome(fmt.Sprintf("e-%d", last), last%3); !ok || o.Seq != uint64(10+last) {
		t.Errorf("the newest outcome: %+v, %t", o, ok)
	}
	if _, ok := r.Outcome(fmt.Sprintf("e-%d", last), last%3+1); ok {
		t.Error("another generation has this one's outcome")
	}
	if _, ok := r.Outcome("comment-a", 0); ok {
		t.Error("an outcome beyond the bound is still there")
	}
}

func TestSet_KeepsTheTimeOfAStateThatStays(t *testing.T) {
	t.Parallel()
	r := armed(t)
	r.Set(record.StateActive, "", at(20))
	r.Set(record.StateActive, record.ReasonNoReceipt, at(30))
	if !r.Since.Equal(at(20)) || r.Reason != record.ReasonNoReceipt {
		t.Errorf("since %s, reason %q", r.Since, r.Reason)
	}
	r.Set(record.StateDead, "exit 1", at(40))
	if !r.Since.Equal(at(40)) {
		t.Errorf("since %s", r.Since)
	}
}

// Whatever happens in whatever order, every start is charged, lost, taken back
// or under way, and only one is under way.
func TestAttempt_EveryStartIsAccountedFor(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 2))
		r := armed(t)
		failures, lost := 0, 0
		r.Begin("e", 0, 1)
		open := true
		for range 40 {
			switch rng.IntN(3) {
			case 0:
				if open {
					lost++
				}
				_, resent := r.Begin("e", 0, 1)
				if resent != (lost > 0) {
					t.Fatalf("seed %d: resent %t, %d starts lost", seed, resent, lost)
				}
				open = true
			case 1:
				r.TakeBack()
				open = false
			case 2:
				if open {
					failures++
				}
				r.Fail("x", at(1))
				open = false
			}
			a := r.Started
			under := a.Starts - a.Failures - a.Lost
			if a.Failures != failures || a.Lost != lost || under != map[bool]int{true: 1}[open] {
				t.Fatalf("seed %d: %+v, want %d failures, %d lost, under way %t", seed, a, failures, lost, open)
			}
		}
	}
}

// A start that a crash left open ends with the outcome that is known of its
// event; another event's start goes on.
func TestPass(t *testing.T) {
	t.Parallel()
	r := record.New(item(t))
	r.Begin("comment-a", 0, 7)
	r.Pass("comment-b", 0, 5)
	if r.Started == nil || r.Floor != 5 {
		t.Errorf("floor %d, started %+v", r.Floor, r.Started)
	}
	r.Pass("comment-a", 0, 7)
	if r.Started != nil || r.Floor != 7 {
		t.Errorf("floor %d, started %+v", r.Floor, r.Started)
	}
}
