package decide

import (
	"time"

	"loopfleet/pkg/config"
	"loopfleet/pkg/event"
	"loopfleet/pkg/record"
)

// Do is what is to be done.
type Do string

// What can be done with an event.
const (
	// Spawn starts a session, or starts it again, with this event as its boot
	// prompt.
	Spawn Do = "spawn"
	// Deliver sends the event to the running session.
	Deliver Do = "deliver"
	// Drop ends the event without a prompt.
	Drop Do = "drop"
	// Hold leaves the event at the head of the lane, uncharged.
	Hold Do = "hold"
)

// Reasons to drop or hold.
const (
	// Already: the item has, or had, its session; arming it again does nothing.
	Already = "already"
	// AwaitingLabel: the item carries the label, and the event of the labelling
	// may still be on its way.
	AwaitingLabel = "awaiting-label"
	// Backoff: the next try is not due yet.
	Backoff = "backoff"
	// ClosedItem: the item was closed.
	ClosedItem = "closed"
	// FailedSpawn: the spawn was given up and nothing new has happened since.
	FailedSpawn = "failed"
	// NotArmed: nobody asked for an agent on this item.
	NotArmed = "not-armed"
	// NotPrompt: control is folded into the record and never shown to an agent.
	NotPrompt = "not-a-prompt"
	// PausedItem: the item was paused, by a person or by the breaker.
	PausedItem = "paused"
	// Quiet: a CI failure waits for others of its commit.
	Quiet = "quiet"
	// StoppedItem: a person ended the session of an open item.
	StoppedItem = "stopped"
)

// Input is everything a decision depends on.
type Input struct {
	Event event.Event
	// Seq is the event's sequence, Published when the stream stored it.
	Seq       uint64
	Published time.Time
	Record    record.Record
	// ArmingAhead says that an arming event of the item waits behind this one.
	ArmingAhead bool
	Now         time.Time
	Routing     config.Routing
}

// Action is the decision.
type Action struct {
	Do     Do
	Reason string
	// Until is when a held event is looked at again at the latest; zero means
	// when something changes.
	Until time.Time
}

// Event decides. It has no side effect and looks at nothing but its input.
func Event(in Input) Action {
	if in.Event.Kind.Control() {
		return Action{Do: Drop, Reason: NotPrompt}
	}
	if a, ended := whenEnded(in); ended {
		return a
	}
	a := whenOpen(in)
	tries := a.Do == Spawn || a.Do == Deliver || a.Reason == Backoff || a.Reason == Quiet
	if in.Record.Want == record.Paused && tries {
		return Action{Do: Hold, Reason: PausedItem}
	}
	return a
}

// TooMany reports whether the breaker trips: the item got as many prompts within
// the hour as it may, so the next is not sent. Prompts is how many that were.
func TooMany(in Input) (prompts int, tripped bool) {
	prompts = in.Record.Pace.Count(in.Now)
	limit := in.Routing.MaxEventsPerHour
	return prompts, limit > 0 && prompts >= limit
}

// whenOpen judges an event of an item that may run, paused or not.
func whenOpen(in Input) Action {
	ev, rec := in.Event, in.Record
	started := rec.Started != nil && rec.Started.EventID == ev.ID && rec.Started.Generation == ev.Generation
	if started && in.Now.Before(rec.Started.NotBefore) {
		return Action{Do: Hold, Reason: Backoff, Until: rec.Started.NotBefore}
	}
	if ev.Kind.Arming() {
		return whenArming(in, started)
	}
	if !rec.Armed {
		if in.ArmingAhead {
			return Action{Do: Spawn}
		}
		if until := in.Published.Add(in.Routing.ArmGrace()); ev.Labeled && in.Now.Before(until) {
			return Action{Do: Hold, Reason: AwaitingLabel, Until: until}
		}
		return Action{Do: Drop, Reason: NotArmed}
	}
	if until := in.Published.Add(in.Routing.Quiet()); ev.Kind == event.CI && in.Now.Before(until) {
		return Action{Do: Hold, Reason: Quiet, Until: until}
	}
	return whenArmed(in, started)
}

// whenArmed judges what is to be a prompt of an item with an agent, running or
// not.
func whenArmed(in Input, started bool) Action {
	ev, rec := in.Event, in.Record
	switch rec.State {
	case record.StateFailed:
		if !started && !replayed(ev) && (ev.Kind == event.CI || !in.Published.After(rec.Since)) {
			return Action{Do: Drop, Reason: FailedSpawn}
		}
		return Action{Do: Spawn}
	case record.StateActive, record.StateStarting, record.StatePaused:
		if rec.Session != nil {
			return Action{Do: Deliver}
		}
	default:
	}
	return Action{Do: Spawn}
}

// whenEnded judges an event of an item that was closed or stopped; ended is
// false when the event is to be judged as on an open item.
func whenEnded(in Input) (a Action, ended bool) {
	ev, rec := in.Event, in.Record
	below := in.Seq < rec.ClosedSeq
	if !below && !rec.Want.Ended() {
		return Action{}, false
	}
	reason := ClosedItem
	if rec.Want == record.Stopped {
		reason = StoppedItem
	}
	drop := Action{Do: Drop, Reason: reason}
	switch {
	case !ev.Kind.Arming():
		return drop, true
	case rec.Want == record.Stopped:
		// A person ended it on an open item: only what came after asks anew,
		// and a listing that merely still shows the item does not ask.
		if below || ev.Kind == event.Presence {
			return drop, true
		}
	case below && !ev.At.After(rec.ClosedAt), !below && ev.At.Before(rec.ClosedAt):
		return drop, true
	}
	return Action{}, false
}

// whenArming judges a label, reopen or presence of an item that may run.
func whenArming(in Input, started bool) Action {
	ev, rec := in.Event, in.Record
	switch {
	case rec.Want.Ended(), !rec.Armed, started:
		return Action{Do: Spawn}
	case rec.State == record.StateFailed && ev.Kind != event.Presence:
		return Action{Do: Spawn}
	case replayed(ev):
		return whenArmed(in, started)
	default:
		return Action{Do: Drop, Reason: Already}
	}
}

// replayed reports whether a person sent the event once more after it was given
// up: the agent is to have it, whatever the event is and whatever failed.
func replayed(ev event.Event) bool { return ev.Source == event.Operator && ev.Generation > 0 }
