package record

import (
	"slices"
	"time"

	"loopfleet/pkg/event"
)

// MaxLostStarts is how many starts of one event may end without an outcome
// (crashes) before the event is given up.
const MaxLostStarts = 5

// Begin records a start of the event at the head of the lane, before its side
// effect. Resent is true when an earlier start of it may have reached the agent
// and nothing was recorded of it.
func (r *Record) Begin(eventID string, generation int, seq uint64) (a Attempt, resent bool) {
	if r.Started == nil || r.Started.EventID != eventID || r.Started.Generation != generation {
		r.Started = &Attempt{EventID: eventID, Generation: generation}
	}
	s := r.Started
	if open := s.Starts - s.Failures - s.Lost; open > 0 {
		s.Lost += open
		resent = true
	}
	s.Seq = seq
	s.Starts++
	s.Incarnation = r.Incarnation
	s.NotBefore = time.Time{}
	return *s, resent
}

// TakeBack undoes a start that was never tried: a hold, a drain, a lost lease.
func (r *Record) TakeBack() {
	if s := r.Started; s != nil && s.Starts > s.Failures+s.Lost {
		s.Starts--
	}
}

// Fail charges a failed try; the next is due at notBefore.
func (r *Record) Fail(reason string, notBefore time.Time) {
	if r.Started == nil {
		return
	}
	r.Started.Failures++
	r.Started.Error = reason
	r.Started.NotBefore = notBefore
}

// Finish records the outcome of an event: floor, history and the end of its
// attempt are one change.
func (r *Record) Finish(o Outcome) {
	r.Floor = max(r.Floor, o.Seq)
	r.Started = nil
	r.Recent = append(r.Recent, o)
	if n := len(r.Recent) - MaxRecent; n > 0 {
		r.Recent = slices.Delete(r.Recent, 0, n)
	}
	if o.Kind != Dropped {
		r.LastEventAt = o.At
	}
}

// Set changes the state, and its time only when it is another one.
func (r *Record) Set(s State, reason string, now time.Time) {
	if r.State != s {
		r.Since = now
	}
	r.State, r.Reason = s, reason
}

// Arm records that an arming event of the forge's time at was obeyed: the item
// is open, whatever was closed before.
func (r *Record) Arm(at time.Time) {
	r.Want, r.Armed = Run, true
	r.ClosedSeq = 0 // the lane is in order: everything below has its outcome
	if at.After(r.ArmedAt) {
		r.ArmedAt = at
	}
}

// Control is one control message, as far as folding needs it.
type Control struct {
	EventID  string
	Kind     event.Kind
	Seq      uint64
	At       time.Time
	Reason   string
	Delivery string
}

// Effect is what folding one control message did.
type Effect string

// Effects.
const (
	// Applied changed what the item wants.
	Applied Effect = "applied"
	// Repeated was applied before under the same id.
	Repeated Effect = "repeated"
	// Outdated is a close older than the last arming event that was obeyed.
	Outdated Effect = "outdated"
	// Pointless asks for what already is.
	Pointless Effect = "pointless"
)

// Folded is a control message with its effect.
type Folded struct {
	Control
	Effect Effect
}

// Fold applies control messages in the order of their sequences. Those at or
// below ControlSeq are passed over, and an id that was applied before changes
// nothing: folding is idempotent.
func (r *Record) Fold(msgs []Control) []Folded {
	var out []Folded
	for _, m := range msgs {
		if m.Seq <= r.ControlSeq {
			continue
		}
		r.ControlSeq = m.Seq
		f := Folded{Control: m, Effect: Repeated}
		if !slices.Contains(r.ControlIDs, m.EventID) {
			f.Effect = r.apply(m)
			r.ControlIDs = append(r.ControlIDs, m.EventID)
			if n := len(r.ControlIDs) - MaxControlIDs; n > 0 {
				r.ControlIDs = slices.Delete(r.ControlIDs, 0, n)
			}
		}
		out = append(out, f)
	}
	return out
}

func (r *Record) apply(m Control) Effect {
	switch m.Kind {
	case event.Close:
		if m.At.Before(r.ArmedAt) {
			return Outdated
		}
		if r.Want == Closed {
			// Still raise the line below which events are dropped.
			r.ClosedSeq = m.Seq
			return Pointless
		}
		r.Want, r.Reason, r.ClosedSeq, r.ClosedAt = Closed, m.Reason, m.Seq, m.At
	case event.Stop:
		if r.Want.Ended() {
			return Pointless
		}
		r.Want, r.Reason, r.ClosedSeq = Stopped, event.Stopped, m.Seq
	case event.Pause:
		if r.Want != Run {
			return Pointless
		}
		r.Want = Paused
	case event.Resume:
		if r.Want != Paused {
			return Pointless
		}
		r.Want = Run
	case event.Retry:
		backing := r.Started != nil && !r.Started.NotBefore.IsZero()
		if !backing && r.Want != Stopped {
			return Pointless
		}
		if backing {
			r.Started.NotBefore = time.Time{}
		}
		if r.Want == Stopped {
			r.Want, r.ClosedSeq = Run, 0
		}
	default:
		return Pointless
	}
	return Applied
}
