package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/workitem"
)

// shownOutcomes is how many recent outcomes people see.
const shownOutcomes = 10

func newSessionsShowCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ITEM",
		Short: "Show everything that is recorded of a work item",
		Long: `Show what is recorded of a work item: what is wanted of it, its session, the
event that is being tried, its last outcomes, and how to look into the session.

ITEM is octo/hello#42, github:host/octo/hello#42 or the issue's URL; the name a
repository had before a rename works too.

With --json: the keys of ` + "`sessions list`" + `, delivers (what a pull request
belongs to) and record (all of the registry's record).`,
		Example:           `  loopfleet sessions show octo/hello#42`,
		Args:              exactly("ITEM"),
		ValidArgsFunction: a.completeItem,
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := parseItem(args[0])
			if err != nil {
				return err
			}
			return a.withRegistry(cmd.Context(), func(ctx context.Context, f *fleet, reg *registry.Registry) error {
				s, err := f.find(ctx, reg, named)
				if err != nil {
					return err
				}
				links, err := reg.PRLinks(ctx, s.WorkItem)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(shown{sessionView: s.sessionView, Delivers: append([]workitem.Ref{}, links...), Record: s.rec})
				}
				return a.print(describe(&s, links, time.Now()))
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// shown is the JSON of `sessions show`.
type shown struct {
	sessionView
	Delivers []workitem.Ref `json:"delivers"`
	Record   record.Record  `json:"record"`
}

// page collects the lines of a description: a name and what it is.
type page struct{ b strings.Builder }

// row adds a line. The value is escaped here; an empty one is left out.
func (p *page) row(name, value string) {
	if value != "" {
		fmt.Fprintf(&p.b, "%-14s %s\n", name, eventlog.Escape(value))
	}
}

// head begins a part of the page.
func (p *page) head(text string) { p.b.WriteString("\n" + text + "\n") }

// describe is a record for people.
func describe(s *seen, links []workitem.Ref, now time.Time) string {
	rec := &s.rec
	var p page
	p.row("item", s.WorkItem.String())
	p.row("title", fit(eventlog.Escape(rec.Title), defaultWidth-15))
	p.row("url", rec.URL)
	state := either(string(s.State), "no session: it was never asked for one")
	if s.Reason != "" {
		state += " (" + s.Reason + ")"
	}
	p.row("state", state)
	if s.State != rec.State && rec.State != "" {
		p.row("recorded as", string(rec.State)+", by a worker that is gone")
	}
	p.row("since", moment(now, rec.Since))
	p.row("wanted", want(rec))
	p.row("worker", s.Worker)
	if rec.Owner != s.Worker {
		p.row("owner", either(rec.Owner, "nobody: the next event brings one"))
	}
	if len(links) > 0 {
		p.row("delivers", list(links))
	}
	p.row("incarnation", fmt.Sprint(rec.Incarnation))
	p.row("last event", moment(now, rec.LastEventAt))
	p.row("floor", fmt.Sprintf("%d (every event of the item up to it has an outcome)", rec.Floor))
	if rec.Want.Ended() && rec.End != nil {
		p.head("how it ended, " + moment(now, rec.End.At))
		p.b.WriteString(endText(short(s.WorkItem), rec.End, rec.Session != nil))
	}
	describeSession(&p, s, now)
	describeAttempt(&p, rec, now)
	describeOutcomes(&p, rec)
	return p.b.String()
}

func want(rec *record.Record) string {
	w := string(rec.Want)
	switch {
	case rec.Want == record.Closed && !rec.ClosedAt.IsZero():
		w += ", since " + rec.ClosedAt.Local().Format("2006-01-02 15:04:05")
	case rec.Want == record.Run && !rec.Armed:
		w += ", once it is labelled"
	}
	return w
}

func either(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func describeSession(p *page, s *seen, now time.Time) {
	ses := s.rec.Session
	if ses == nil {
		p.row("session", "none")
		return
	}
	p.head("session")
	p.row("  harness", ses.Harness)
	p.row("  conversation", ses.HarnessSessionID)
	p.row("  started", moment(now, ses.StartedAt))
	p.row("  directory", ses.Cwd)
	p.row("  tmux session", ses.TmuxTarget)
	p.row("  tmux socket", ses.TmuxSocket)
	p.row("  agent pid", fmt.Sprint(ses.PanePID))
	p.row("  look", "loopfleet sessions peek '"+short(s.WorkItem)+"'")
	p.row("  attach", "loopfleet sessions attach '"+short(s.WorkItem)+"'")
}

func describeAttempt(p *page, rec *record.Record, now time.Time) {
	at := rec.Started
	if at == nil {
		return
	}
	p.head("being tried")
	p.row("  event", eventName(at.EventID, at.Generation))
	failed := fmt.Sprintf("%d of %d starts", at.Failures, at.Starts)
	if at.Lost > 0 {
		failed += fmt.Sprintf(", and %d ended in a crash", at.Lost)
	}
	p.row("  failed", failed)
	p.row("  last error", at.Error)
	switch {
	case at.NotBefore.IsZero():
	case at.NotBefore.After(now):
		p.row("  next try", at.NotBefore.Local().Format("2006-01-02 15:04:05"))
	default:
		p.row("  next try", "due now")
	}
}

func describeOutcomes(p *page, rec *record.Record) {
	if len(rec.Recent) == 0 {
		return
	}
	recent := rec.Recent[max(0, len(rec.Recent)-shownOutcomes):]
	p.head(fmt.Sprintf("last outcomes (newest first, %d of %d kept)", len(recent), len(rec.Recent)))
	for _, o := range slices.Backward(recent) {
		line := fmt.Sprintf("  %s  %-7s  %s  %s %s", o.At.Local().Format("01-02 15:04:05"), o.Kind,
			eventName(o.EventID, o.Generation), o.Reason, o.Error)
		p.b.WriteString(fit(eventlog.Escape(strings.TrimRight(line, " ")), defaultWidth) + "\n")
	}
}

// eventName is an event id, with its generation where it has been given up
// before.
func eventName(id string, generation int) string {
	if generation == 0 {
		return id
	}
	return fmt.Sprintf("%s g%d", id, generation)
}
