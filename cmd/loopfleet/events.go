package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
)

// eventsFlags are the flags of `events`.
type eventsFlags struct {
	follow, json, wide  bool
	typeGlob            string
	item, event, dlvery string
	since               string
	limit               int
}

func newEventsCommand(a *app) *cobra.Command {
	var fl eventsFlags
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print the event log: every decision, and why",
		Long: `Print the event log, oldest first: what arrived, where it was routed, what was
tried, and why something was dropped or given up. ! marks what somebody may have
to look at, !! work that is lost or stuck.

With --json: one object per line: ts, type, level, work_item, event_id, worker, ...
The plain NATS CLI shows the same: nats sub 'loop.log.>'`,
		Example: `  loopfleet events --since 1h
  loopfleet events --follow --work-item octo/hello#42
  loopfleet events --type 'dispatch.*' --limit 20
  loopfleet events --delivery-id 72d3162e-cc78-11e3-81ab-4c9367dc0958 --json`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.events(cmd, fl) },
	}
	f := cmd.Flags()
	f.BoolVarP(&fl.follow, "follow", "f", false, "go on with new lines until interrupted")
	f.StringVar(&fl.typeGlob, "type", "", "only types that match `GLOB`, as in dispatch.* or *.failed")
	f.StringVar(&fl.item, "work-item", "", "only what concerns this `ITEM`")
	f.StringVar(&fl.event, "event-id", "", "only what concerns this event `ID`")
	f.StringVar(&fl.dlvery, "delivery-id", "", "only what concerns this delivery `GUID`")
	f.StringVar(&fl.since, "since", "", "only what is younger than `AGE`, as in 90s, 1h, 2d, or a time as in 2026-01-31T15:04:05Z")
	f.IntVar(&fl.limit, "limit", 0, "only the newest `N` of those that are there (default: all)")
	f.BoolVar(&fl.json, "json", false, "print JSON, one object per line")
	f.BoolVar(&fl.wide, "wide", false, "cut nothing to fit the screen")
	_ = cmd.RegisterFlagCompletionFunc("type", completeType)
	_ = cmd.RegisterFlagCompletionFunc("work-item", func(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return a.completeItem(cmd, nil, word)
	})
	return cmd
}

func completeType(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var types []string
	for t, what := range event.Catalogue {
		types = append(types, string(t)+"\t"+what)
	}
	return types, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) events(cmd *cobra.Command, fl eventsFlags) error {
	q := eventlog.Query{TypeGlob: fl.typeGlob, EventID: fl.event, Delivery: fl.dlvery, Limit: fl.limit, Follow: fl.follow}
	if fl.limit < 0 {
		return usagef(cmd, "--limit %d: it cannot be negative", fl.limit)
	}
	if fl.since != "" {
		var err error
		if q.Since, err = since(fl.since, time.Now()); err != nil {
			return usagef(cmd, "--since %w", err)
		}
	}
	if err := checkGlob(fl.typeGlob); err != nil {
		return usagef(cmd, "--type %w", err)
	}
	if fl.item != "" {
		var err error
		if q.WorkItem, err = parseItem(fl.item); err != nil {
			return err
		}
	}
	ctx := cmd.Context()
	f, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	if !q.WorkItem.Zero() {
		reg, err := f.registry(ctx)
		if err != nil {
			return err
		}
		if q.WorkItem, err = reg.Resolve(ctx, q.WorkItem); err != nil {
			return err
		}
	}
	return a.printEvents(ctx, f, q, fl)
}

func (a *app) printEvents(ctx context.Context, f *fleet, q eventlog.Query, fl eventsFlags) error {
	width := a.width()
	if fl.wide {
		width = 0
	}
	colour := a.colour(a.stdout)
	err := eventlog.Read(ctx, f.js, q, func(l eventlog.Line) error {
		if fl.json {
			return a.print(plainJSON(l.Raw) + "\n")
		}
		text := l.TextWidth(width)
		if colour {
			text = paintLevel(l.Level, text)
		}
		return a.print(text + "\n")
	})
	if errors.Is(err, eventlog.ErrNoSuchType) {
		return &usageError{err: err}
	}
	return err
}

func paintLevel(level event.Level, text string) string {
	switch level {
	case event.Warn:
		return yellow + text + reset
	case event.Error:
		return red + text + reset
	default:
		return text
	}
}

// checkGlob says beforehand what Read would refuse.
func checkGlob(glob string) error {
	if glob == "" {
		return nil
	}
	for t := range event.Catalogue {
		ok, err := path.Match(glob, string(t))
		if err != nil {
			return fmt.Errorf("%q: %w", glob, err)
		}
		if ok {
			return nil
		}
	}
	return fmt.Errorf("%q: no log type matches: write a type such as dispatch.failed, or * for any part of it, as in session.*", glob)
}

// since reads an age or a time.
func since(text string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	age, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok && err != nil {
		var n int
		if n, err = strconv.Atoi(days); err == nil {
			age = time.Duration(n) * 24 * time.Hour
		}
	}
	if err != nil || age < 0 {
		return time.Time{}, fmt.Errorf("%q: it is an age as in 90s, 1h or 2d, or a time as in 2026-01-31T15:04:05Z", text)
	}
	return now.Add(-age), nil
}
