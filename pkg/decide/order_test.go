package decide_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"loopfleet/pkg/decide"
	"loopfleet/pkg/event"
	"loopfleet/pkg/record"
)

// transition is one lifecycle event of the forge.
type transition struct {
	kind event.Kind
	sec  int
	seq  uint64
}

func (tr transition) id() string { return fmt.Sprintf("%s-%d", tr.kind, tr.sec) }

// owner does to a record what the queue and the worker do: it folds the control
// that has arrived, then decides the next event and records the outcome.
type owner struct {
	rec    record.Record
	stream []transition
	next   int // the lane's cursor
	spawns int
}

func (o *owner) fold() {
	var msgs []record.Control
	for _, tr := range o.stream {
		if tr.kind == event.Close && tr.seq > o.rec.ControlSeq {
			msgs = append(msgs, record.Control{EventID: tr.id(), Kind: tr.kind, Seq: tr.seq, At: at(tr.sec), Reason: event.IssueClosed})
		}
	}
	o.rec.Fold(msgs)
}

// step handles one event of the lane; false when there is none.
func (o *owner) step() bool {
	for o.next < len(o.stream) && o.stream[o.next].kind == event.Close {
		o.next++
	}
	if o.next == len(o.stream) {
		return false
	}
	tr := o.stream[o.next]
	o.next++
	o.fold()
	if _, known := o.rec.Outcome(tr.id(), 0); known {
		return true
	}
	ev := event.Event{ID: tr.id(), Kind: tr.kind, At: at(tr.sec)}
	out := record.Outcome{EventID: ev.ID, Seq: tr.seq, Kind: record.Dropped}
	a := decide.Event(decide.Input{Event: ev, Seq: tr.seq, Published: at(tr.sec), Record: o.rec, Now: at(tr.sec)})
	switch {
	case a.Do == decide.Spawn:
		o.rec.Begin(ev.ID, 0, tr.seq)
		o.rec.Arm(ev.At)
		o.rec.Session = &record.Session{Token: "t"}
		o.rec.Set(record.StateActive, "", ev.At)
		o.spawns++
		out.Kind = record.Done
	case a.Reason == decide.Already:
		o.rec.Confirm(ev.At)
	}
	o.rec.Finish(out)
	return true
}

// However labels, closes and reopens of an item are shuffled, repeated and
// interleaved with the folding, the item ends as the forge last had it.
// rule: CL-08
func TestCloseAndReopen_InEveryOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		// The truth: label, then close and reopen in turn.
		truth := []transition{{kind: event.Label, sec: 1}}
		for i := range rng.IntN(6) {
			kind := event.Close
			if i%2 == 1 {
				kind = event.Reopen
			}
			truth = append(truth, transition{kind: kind, sec: i + 2})
		}
		wantClosed := truth[len(truth)-1].kind == event.Close
		// What arrives: all of it in any order, some of it twice.
		arrives := append([]transition(nil), truth...)
		for range rng.IntN(3) {
			arrives = append(arrives, truth[rng.IntN(len(truth))])
		}
		rng.Shuffle(len(arrives), func(i, j int) { arrives[i], arrives[j] = arrives[j], arrives[i] })

		o := owner{rec: record.New(item(t))}
		for i, tr := range arrives {
			tr.seq = uint64(i + 1)
			o.stream = append(o.stream, tr)
			for range rng.IntN(3) {
				if rng.IntN(2) == 0 {
					o.fold()
				} else {
					o.step()
				}
			}
		}
		for o.step() {
		}
		o.fold()
		if got := o.rec.Want == record.Closed; got != wantClosed {
			t.Fatalf("seed %d: %v: want is %s, the forge says closed=%t\n%+v", seed, arrives, o.rec.Want, wantClosed, o.rec)
		}
	}
}

// What was labelled and closed before anybody had room never spawns, and a
// redelivered old close ends nothing.
func TestCloseAndReopen_KnownOrders(t *testing.T) {
	t.Parallel()
	label, closed, reopen := transition{kind: event.Label, sec: 10}, transition{kind: event.Close, sec: 20}, transition{kind: event.Reopen, sec: 30}
	again := transition{kind: event.Close, sec: 40}
	tests := []struct {
		name   string
		stream []transition
		spawns int
		want   record.Want
	}{
		{"label, close", []transition{label, closed}, 0, record.Closed},
		{"close, label", []transition{closed, label}, 0, record.Closed},
		{"label, close, reopen", []transition{label, closed, reopen}, 1, record.Run},
		{"label, close, reopen, the close again", []transition{label, closed, reopen, closed}, 1, record.Run},
		{"label, reopen, close", []transition{label, reopen, closed}, 1, record.Run},
		{"label, close, reopen, close", []transition{label, closed, reopen, again}, 0, record.Closed},
		{"the reopen behind both closes", []transition{label, closed, again, reopen}, 0, record.Closed},
		{"both closes backwards around the reopen", []transition{label, again, reopen, closed}, 0, record.Closed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := owner{rec: record.New(item(t))}
			for i, tr := range tt.stream {
				tr.seq = uint64(i + 1)
				o.stream = append(o.stream, tr)
			}
			o.fold() // whoever claims it folds first
			for o.step() {
			}
			if o.spawns != tt.spawns || o.rec.Want != tt.want {
				t.Errorf("%d spawns and want %s, expected %d and %s", o.spawns, o.rec.Want, tt.spawns, tt.want)
			}
		})
	}
}
