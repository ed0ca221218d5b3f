package main

import (
	"fmt"
	"strings"
	"time"

	"loopfleet/pkg/deadletter"
	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/workitem"
)

// letterView is one letter in the JSON of `dead-letters list`.
type letterView struct {
	EventID    string           `json:"event_id"`
	Generation int              `json:"generation"`
	WorkItem   workitem.Ref     `json:"work_item"`
	Kind       event.Kind       `json:"kind"`
	State      deadletter.State `json:"state"`
	Reason     string           `json:"reason"`
	Attempts   int              `json:"attempts"`
	LastError  string           `json:"last_error"`
	Worker     string           `json:"worker"`
	At         time.Time        `json:"at"`
}

// letterShown is one letter in the JSON of `dead-letters show`.
type letterShown struct {
	letterView
	Event event.Event `json:"event"`
}

func (e *letterEntry) view() letterView {
	return letterView{
		EventID: e.Event.ID, Generation: e.Event.Generation, WorkItem: e.item(), Kind: e.Event.Kind, State: e.State,
		Reason: e.Reason, Attempts: e.Attempts, LastError: e.Error, Worker: e.Worker, At: e.At.UTC(),
	}
}

func (es letterEntries) views() []letterView {
	out := make([]letterView, len(es))
	for i := range es {
		out[i] = es[i].view()
	}
	return out
}

func (es letterEntries) shown() []letterShown {
	out := make([]letterShown, len(es))
	for i := range es {
		out[i] = letterShown{letterView: es[i].view(), Event: es[i].Event}
	}
	return out
}

func (a *app) listLetters(es letterEntries, wideRows bool) error {
	if len(es) == 0 {
		return a.print("no dead letters\n")
	}
	now := time.Now()
	rows := make([][]string, len(es))
	for i := range es {
		e := &es[i]
		reason := e.Reason
		if e.State != deadletter.Open {
			reason = string(e.State) + ": " + reason
		}
		rows[i] = []string{e.Event.ID, short(e.item()), string(e.Event.Kind), reason, fmt.Sprint(e.Attempts), ago(now, e.At)}
	}
	width := a.width()
	if wideRows {
		width = 0
	}
	return a.table([]column{
		{head: "EVENT", least: 20, rank: 2},
		{head: "ITEM", least: 12, rank: 4, keepEnd: true},
		{head: "KIND", least: 7, rank: 1},
		{head: "REASON", least: 14, rank: 3},
		{head: "ATTEMPTS", right: true},
		{head: "AGE"},
	}, rows, width)
}

// describeLetter is a letter for people. Everything in it may be hostile.
func describeLetter(e *letterEntry, now time.Time) string {
	ev := &e.Event
	var p page
	p.row("event", ev.ID)
	p.row("item", e.item().String())
	if !ev.Via.Zero() {
		p.row("happened on", ev.Via.String())
	}
	p.row("kind", strings.TrimSpace(string(ev.Kind)+" "+bracketed(strings.TrimSpace(ev.Name+" "+ev.Action))))
	p.row("happened", moment(now, ev.At))
	p.row("by", actor(ev.Actor))
	p.row("delivery", ev.DeliveryID)
	p.row("generation", fmt.Sprint(ev.Generation))
	p.row("given up", moment(now, e.At)+" by "+either(e.Worker, "nobody"))
	p.row("reason", e.Reason)
	p.row("attempts", fmt.Sprint(e.Attempts))
	p.row("last error", e.Error)
	p.row("state", stateText(e))
	p.row("title", ev.Title)
	p.row("url", ev.URL)
	p.row("review", ev.ReviewState)
	if ev.Path != "" {
		p.row("path", fmt.Sprintf("%s:%d", ev.Path, ev.Line))
	}
	p.row("commit", ev.SHA)
	for _, c := range ev.Checks {
		p.row("failed check", c)
	}
	if body := strings.TrimRight(ev.Body, "\r\n"); body != "" {
		p.head("text" + map[bool]string{true: " (cut; the url has all of it)"}[ev.Truncated])
		for line := range strings.Lines(body) {
			p.b.WriteString("  | " + eventlog.Escape(strings.TrimRight(line, "\r\n")) + "\n")
		}
	}
	return p.b.String()
}

func bracketed(s string) string {
	if s == "" {
		return ""
	}
	return "(" + s + ")"
}

func actor(a event.Actor) string {
	if a.Bot && a.Login != "" {
		return a.Login + " (bot)"
	}
	return a.Login
}

// stateText says what the letter means now, and what to do.
func stateText(e *letterEntry) string {
	id := e.Event.ID
	switch {
	case !e.replayable():
		return "open; its message could not be read, so it cannot be replayed: look at the forge, then `loopfleet dead-letters drop " + id + "`"
	case e.State == deadletter.Open:
		return "open; `loopfleet dead-letters replay " + id + "` sends it once more, with a fresh budget"
	case e.State == deadletter.Forgotten:
		return "too old to tell whether it was replayed; `loopfleet dead-letters replay " + id + "` sends it all the same"
	default:
		return string(e.State) + ": " + became(e.State, e.Outcome.Generation, string(e.Outcome.Kind))
	}
}
