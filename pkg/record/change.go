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
	s.Lost += max(0, s.Starts-s.Failures-s.Lost)
	s.Seq = seq
	s.Starts++
	s.Incarnation = r.Incarnation
	s.NotBefore = time.Time{}
	return *s, s.Lost > 0
}

// TakeBack undoes a start that was never tried: a hold, a drain, a lost lease.
func (r *Record) TakeBack() {
	if s := r.Started; s != nil && s.Starts > s.Failures+s.Lost {
		s.Starts--
	}
}

// Fail charges the start under way as a failed try; the next is due at
// notBefore. Without a start under way there is nothing to charge.
func (r *Record) Fail(reason string, notBefore time.Time) {
	s := r.Started
	if s == nil || s.Starts <= s.Failures+s.Lost {
		return
	}
	s.Failures++
	s.Error = reason
	s.NotBefore = notBefore
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
	if o.Kind == Done || o.Kind == Dead && o.Reason == ReasonNoReceipt {
		r.Pace = r.Pace.Add(o.At)
	}
}

// Pass moves the floor past a message whose event has its outcome already, and
// ends a start of it that was left open.
func (r *Record) Pass(eventID string, generation int, seq uint64) {
	r.Floor = max(r.Floor, seq)
	if s := r.Started; s != nil && s.EventID == eventID && s.Generation == generation {
		r.Started = nil
	}
}

// Set changes the state, and its time only when it is another one.
func (r *Record) Set(s State, reason string, now time.Time) {
	if r.State != s {
		r.Since = now
	}
	r.State, r.Reason = s, reason
}

// Wait makes the record one that a worker with room claims. What the session is
// stays known underneath.
func (r *Record) Wait(reason string, now time.Time) {
	if r.State != StateWaiting {
		r.Was = r.State
	}
	r.Set(StateWaiting, reason, now)
}

// Unwait ends a wait.
func (r *Record) Unwait(now time.Time) {
	if r.State == StateWaiting {
		r.Set(r.Was, "", now)
		r.Was = ""
	}
}

// Arm records that an arming event of the forge's time at was obeyed: the item
// is open, whatever was closed before.
func (r *Record) Arm(at time.Time) {
	r.Want, r.Armed = Run, true
	r.ClosedSeq = 0 // the lane is in order: everything below has its outcome
	r.KillTmux, r.Forget, r.ForgottenAt, r.End = false, false, time.Time{}, nil
	if at.After(r.ArmedAt) {
		r.ArmedAt = at
	}
}

// Confirm records that an arming event of the forge's time at changed nothing:
// the item was open then, so an older close that is still on its way is old
// news.
func (r *Record) Confirm(at time.Time) {
	if !r.Want.Ended() && at.After(r.ArmedAt) {
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
	// Actor is who asked for it.
	Actor string
	// KillTmux goes with a Stop; see event.Event.
	KillTmux bool
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
		switch {
		case m.EventID == "": // nothing that we published; there is no id to keep
			f.Effect = Pointless
		case !slices.Contains(r.ControlIDs, m.EventID):
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
		// Also of an item that is closed already: a reopen between the two closes
		// may still wait in the lane, and only the later close ends it.
		r.ClosedSeq = m.Seq
		if m.At.After(r.ClosedAt) {
			r.ClosedAt = m.At
		}
		if r.Want == Closed {
			return Pointless
		}
		r.Want, r.Reason, r.CloseReason = Closed, m.Reason, m.Reason
	case event.Stop:
		return r.stop(m)
	case event.Cleanup:
		r.Want, r.ClosedSeq = Stopped, m.Seq
		if m.At.After(r.ClosedAt) {
			r.ClosedAt = m.At
		}
		r.Reason, r.CloseReason = event.Stopped, event.Stopped
		r.Forget = true
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
		r.Pace = Pace{} // whoever resumes it has looked: the breaker counts anew
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
			if r.State == StateClosed { // else it has not even ended yet
				r.Set(StateSleeping, event.Stopped, m.At)
			}
		}
	default:
		return Pointless
	}
	return Applied
}

// stop is what a person wants who closes an item that is open on the forge. The
// screen of a session that has ended already can be done away with too.
func (r *Record) stop(m Control) Effect {
	kill := m.KillTmux && !r.KillTmux && r.Session != nil
	if kill {
		r.KillTmux = true
	}
	switch {
	case !r.Want.Ended():
		r.Want, r.ClosedSeq = Stopped, m.Seq
		r.Reason, r.CloseReason = event.Stopped, event.Stopped
		r.KillTmux = m.KillTmux
		return Applied
	case kill:
		return Applied
	default:
		return Pointless
	}
}

// Wishes reports whether something is left to be done on the session's machine
// for an item that has ended: its screen, or everything, is to go.
func (r *Record) Wishes() bool {
	return r.Want.Ended() && (r.Forget || r.KillTmux && r.Session != nil)
}

// Erase forgets the item, once everything of it has ended: what is left is what
// keeps old events from being taken for new ones. Nothing revives it but a new
// label or a reopen.
func (r *Record) Erase(now time.Time, end End) {
	*r = Record{
		Version: r.Version, WorkItem: r.WorkItem, Owner: r.Owner, Floor: r.Floor, Want: Stopped,
		ArmedAt: r.ArmedAt, ClosedAt: r.ClosedAt, ClosedSeq: r.ClosedSeq,
		ControlSeq: r.ControlSeq, ControlIDs: r.ControlIDs,
		Incarnation: r.Incarnation, Recent: r.Recent,
		ForgottenAt: now, End: &end,
	}
}
