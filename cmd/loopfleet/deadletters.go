package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"loopfleet/pkg/deadletter"
	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/workitem"
)

const lettersArgs = `ITEM is octo/hello#42, github:host/octo/hello#42 or the issue's URL. EVENT_ID may be
cut short as long as only one event begins with it.`

func newDeadLettersCommand(a *app) *cobra.Command {
	return newGroup("dead-letters", "See what was given up, and try it again",
		newLettersListCommand(a), newLettersShowCommand(a), newLettersReplayCommand(a), newLettersDropCommand(a))
}

func newLettersListCommand(a *app) *cobra.Command {
	var all, asJSON, wideRows bool
	cmd := &cobra.Command{
		Use:   "list [ITEM|EVENT_ID...]",
		Short: "List the events that were given up",
		Long: `List the events that were given up and of which nothing has become since, oldest
first. One that was replayed is listed until it has an outcome.

` + lettersArgs + `

With --json: an array of objects with event_id, generation, work_item, kind, state,
reason, attempts, last_error, worker, at. States: open, in-flight (replayed, no
outcome yet), settled (replayed to a good end), superseded (given up again, as a
letter of its own), forgotten (too old to tell whether it was replayed).`,
		Example: `  loopfleet dead-letters list
  loopfleet dead-letters list octo/hello#42 --all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withLetters(cmd.Context(), func(ctx context.Context, l *letters) error {
				found, err := l.find(ctx, args)
				if err != nil {
					return err
				}
				if !all {
					found = found.pending()
				}
				if asJSON {
					return a.printJSON(found.views())
				}
				return a.listLetters(found, wideRows)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "also those that were replayed to a good end or given up again")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.BoolVar(&wideRows, "wide", false, "cut nothing to fit the screen")
	return cmd
}

func newLettersShowCommand(a *app) *cobra.Command {
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "show ITEM|EVENT_ID...",
		Short: "Show all that is kept of events that were given up",
		Long: `Show all that is kept of events that were given up: the whole event, why and after
how many attempts it was given up, the last error, and what to do.

` + lettersArgs + `

With --json: the keys of ` + "`dead-letters list`" + `, and event (the whole of it).`,
		Example: `  loopfleet dead-letters show comment-mzxw6ytboi3a4qwerty23456`,
		Args:    namedOrAll(&all),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withLetters(cmd.Context(), func(ctx context.Context, l *letters) error {
				found, err := l.find(ctx, args)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(found.shown())
				}
				pages := make([]string, len(found))
				for i := range found {
					pages[i] = describeLetter(&found[i], time.Now())
				}
				return a.print(strings.Join(pages, "\n"))
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every letter")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newLettersReplayCommand(a *app) *cobra.Command {
	var o changeOptions
	cmd := &cobra.Command{
		Use:   "replay ITEM|EVENT_ID...",
		Short: "Send events that were given up once more, with a fresh budget",
		Long: `Send events that were given up once more, each with a fresh budget of attempts. The
letter stays until the event has ended well. What was replayed already is not sent
again before it has been given up again, so running this twice does no harm.

An ITEM, or --all, means its letters that are open. One that is too old to tell
whether it was replayed ("forgotten") is only sent when its EVENT_ID is given.

` + lettersArgs + `

With --json: an array of objects with event_id, work_item, action (replayed,
would-replay, skipped, failed), generation, reason.`,
		Example: `  loopfleet dead-letters replay comment-mzxw6ytboi3a4qwerty23456
  loopfleet dead-letters replay octo/hello#42 --dry-run
  loopfleet dead-letters replay --all`,
		Args: namedOrAll(&o.all),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withLetters(cmd.Context(), func(ctx context.Context, l *letters) error {
				found, err := l.find(ctx, args)
				if err != nil {
					return err
				}
				return a.change(o, found.newest(), func(e *letterEntry) change { return l.replay(ctx, e, o.dryRun) })
			})
		},
	}
	o.register(cmd, "every open letter", "say what would be sent, and send nothing")
	return cmd
}

func newLettersDropCommand(a *app) *cobra.Command {
	var o changeOptions
	cmd := &cobra.Command{
		Use:   "drop ITEM|EVENT_ID...",
		Short: "Throw dead letters away for good",
		Long: `Throw dead letters away for good: the events in them cannot be replayed any more.
The event log keeps that they were given up and dropped.

` + lettersArgs + `

With --json: an array of objects with event_id, work_item, action (dropped,
would-drop, failed), letters, reason.`,
		Example: `  loopfleet dead-letters drop comment-mzxw6ytboi3a4qwerty23456
  loopfleet dead-letters drop --all --dry-run`,
		Args: namedOrAll(&o.all),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withLetters(cmd.Context(), func(ctx context.Context, l *letters) error {
				found, err := l.find(ctx, args)
				if err != nil {
					return err
				}
				return a.change(o, found.newest(), func(e *letterEntry) change { return l.drop(ctx, e, found, o.dryRun) })
			})
		},
	}
	o.register(cmd, "every letter, also those that were replayed", "say what would be dropped, and drop nothing")
	return cmd
}

// changeOptions are the flags of what changes letters.
type changeOptions struct{ all, dryRun, json bool }

func (o *changeOptions) register(cmd *cobra.Command, all, dryRun string) {
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, all)
	f.BoolVar(&o.dryRun, "dry-run", false, dryRun)
	f.BoolVar(&o.json, "json", false, "print JSON")
}

// namedOrAll wants arguments or --all, not both.
func namedOrAll(all *bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 && !*all:
			return usagef(cmd, "%s needs an ITEM, an EVENT_ID or --all", cmd.CommandPath())
		case len(args) > 0 && *all:
			return usagef(cmd, "%s takes --all or %q, not both", cmd.CommandPath(), args[0])
		}
		return nil
	}
}

// letters is the open box of a fleet.
type letters struct {
	box *deadletter.Box
	reg *registry.Registry
}

// withLetters opens the box; what was changed is in the event log when it
// returns.
func (a *app) withLetters(ctx context.Context, fn func(context.Context, *letters) error) error {
	return a.withRegistry(ctx, func(ctx context.Context, f *fleet, reg *registry.Registry) error {
		return f.withLetters(ctx, reg, fn)
	})
}

func (f *fleet) withLetters(ctx context.Context, reg *registry.Registry, fn func(context.Context, *letters) error) (err error) {
	reader, err := queue.NewReader(ctx, f.js)
	if err != nil {
		return err
	}
	log, err := eventlog.New(f.js, eventlog.Options{Source: "operator", Log: zerolog.Nop()})
	if err != nil {
		return err
	}
	defer func() {
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, log.Close(cctx))
	}()
	return fn(ctx, &letters{reg: reg, box: deadletter.New(deadletter.Deps{
		JS: f.js, Registry: reg, Events: reader, Publisher: queue.NewPublisher(f.js), Log: log,
	})})
}

// letterEntry is a letter with how it was asked for.
type letterEntry struct {
	deadletter.Entry
	// named says that its own id was given, not only its item.
	named bool
}

func (e *letterEntry) item() workitem.Ref { return e.Event.WorkItem }

type letterEntries []letterEntry

// errNoLetter says that an argument matches nothing.
var errNoLetter = errors.New("no dead letter matches")

// find returns the letters that the arguments mean, all of them without any. An
// argument that means none is an error, before anything is done.
func (l *letters) find(ctx context.Context, args []string) (letterEntries, error) {
	all, err := l.box.List(ctx, workitem.Ref{})
	if err != nil {
		return nil, err
	}
	match := make([]int, len(all)) // 0 not meant, 1 by its item, 2 by its id
	for _, arg := range args {
		if err := l.match(ctx, arg, all, match); err != nil {
			return nil, err
		}
	}
	out := letterEntries{}
	for i := range all {
		if match[i] > 0 || len(args) == 0 {
			out = append(out, letterEntry{Entry: all[i], named: match[i] > 1})
		}
	}
	return out, nil
}

func (l *letters) match(ctx context.Context, arg string, all []deadletter.Entry, match []int) error {
	arg = strings.TrimSuffix(arg, "…") // as a list shows an id that it has cut
	none := &hintError{err: fmt.Errorf("%w %q", errNoLetter, arg), hint: "`loopfleet dead-letters list --all` shows every letter"}
	found := 0
	mark := func(i, how int) {
		match[i] = max(match[i], how)
		found++
	}
	if event.ValidID(arg) {
		ids := map[string]bool{}
		for i := range all {
			if all[i].Event.ID == arg {
				mark(i, 2)
			}
			if strings.HasPrefix(all[i].Event.ID, arg) {
				ids[all[i].Event.ID] = true
			}
		}
		if found > 0 {
			return nil
		}
		if len(ids) > 1 {
			return &hintError{err: fmt.Errorf("%d dead letters begin with %q", len(ids), arg), hint: "give more of the id; `loopfleet dead-letters list --wide` shows all of it"}
		}
		for i := range all {
			if ids[all[i].Event.ID] {
				mark(i, 2)
			}
		}
		if found == 0 {
			none.hint += "; `loopfleet deliveries status " + arg + "` tells what became of an event"
			return none
		}
		return nil
	}
	named, err := parseItem(arg)
	if err != nil {
		return err
	}
	item, err := l.reg.Resolve(ctx, named)
	if err != nil {
		return err
	}
	for i := range all {
		if all[i].Event.WorkItem == item {
			mark(i, 1)
		}
	}
	if found == 0 {
		return none
	}
	return nil
}

// pending leaves out what needs nobody any more, unless its id was given.
func (es letterEntries) pending() letterEntries {
	out := letterEntries{}
	for i := range es {
		if es[i].named || es[i].State.Pending() {
			out = append(out, es[i])
		}
	}
	return out
}

// newest keeps one letter for each event of an item: that of the newest
// generation.
func (es letterEntries) newest() letterEntries {
	out := letterEntries{}
	for i := range es {
		at := -1
		for k := range out {
			if out[k].Event.ID == es[i].Event.ID && out[k].item() == es[i].item() {
				at = k
			}
		}
		switch {
		case at < 0:
			out = append(out, es[i])
		case es[i].Event.Generation > out[at].Event.Generation:
			out[at] = es[i]
		}
	}
	return out
}

// change is what became of one letter.
type change struct {
	EventID    string       `json:"event_id"`
	WorkItem   workitem.Ref `json:"work_item"`
	Action     string       `json:"action"`
	Generation int          `json:"generation,omitempty"`
	Letters    int          `json:"letters,omitempty"`
	// Reason says why nothing was done, or what failed.
	Reason string `json:"reason"`

	text string
	err  error
}

func (l *letters) replay(ctx context.Context, e *letterEntry, dryRun bool) change {
	c := change{EventID: e.Event.ID, WorkItem: e.item(), Generation: e.Event.Generation + 1}
	skip := func(why string) change {
		c.Action, c.Reason = "skipped", why
		c.text = fmt.Sprintf("skipped   %s for %s: %s", c.EventID, short(c.WorkItem), why)
		return c
	}
	switch {
	case e.State == deadletter.Forgotten && !e.named:
		return skip("too old to tell whether it was replayed before; give its id to send it all the same")
	case dryRun && !e.replayable():
		return skip("its message could not be read, so there is nothing to send")
	case dryRun && (e.State == deadletter.Open || e.State == deadletter.Forgotten):
		c.Action = "would-replay"
		c.text = fmt.Sprintf("would replay %s for %s (generation %d)", c.EventID, short(c.WorkItem), c.Generation)
		return c
	case dryRun:
		return skip(became(e.State, e.Outcome.Generation, string(e.Outcome.Kind)))
	}
	r, err := l.box.Replay(ctx, e.Letter)
	switch {
	case err != nil:
		c.Action, c.Reason, c.err = "failed", err.Error(), err
	case !r.Sent:
		c.Generation = r.Generation
		return skip(became(r.State, r.Generation, string(r.Outcome.Kind)))
	default:
		c.Action, c.Generation = "replayed", r.Generation
		c.text = fmt.Sprintf("replayed  %s for %s (generation %d)", c.EventID, short(c.WorkItem), r.Generation)
	}
	return c
}

func (e *letterEntry) replayable() bool {
	return e.Reason != deadletter.ReasonUndecodable && e.Event.Kind != ""
}

// became is what became of the event since its letter was kept.
func became(s deadletter.State, generation int, outcome string) string {
	switch s {
	case deadletter.InFlight:
		return "it was replayed and has no outcome yet"
	case deadletter.Settled:
		return fmt.Sprintf("it was replayed and ended %s (generation %d)", outcome, generation)
	case deadletter.Superseded:
		return fmt.Sprintf("it was given up again, and the letter of that (generation %d) was dropped", generation)
	default:
		return string(s)
	}
}

func (l *letters) drop(ctx context.Context, e *letterEntry, all letterEntries, dryRun bool) change {
	c := change{EventID: e.Event.ID, WorkItem: e.item()}
	if dryRun {
		for i := range all {
			if all[i].Event.ID == c.EventID && all[i].item() == c.WorkItem {
				c.Letters++
			}
		}
		c.Action = "would-drop"
		c.text = fmt.Sprintf("would drop %s for %s (%s)", c.EventID, short(c.WorkItem), count(c.Letters, "letter"))
		return c
	}
	n, err := l.box.Drop(ctx, e.Letter)
	c.Letters = n
	if err != nil {
		c.Action, c.Reason, c.err = "failed", err.Error(), err
		return c
	}
	c.Action = "dropped"
	c.text = fmt.Sprintf("dropped   %s for %s (%s)", c.EventID, short(c.WorkItem), count(n, "letter"))
	return c
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// change does something with each letter and says what, also of those after one
// that failed.
func (a *app) change(o changeOptions, found letterEntries, do func(*letterEntry) change) error {
	done := []change{}
	var errs []error
	for i := range found {
		c := do(&found[i])
		done = append(done, c)
		if c.err != nil {
			errs = append(errs, c.err)
			continue
		}
		if !o.json {
			if err := a.print(eventlog.Escape(c.text) + "\n"); err != nil {
				return err
			}
		}
	}
	if o.json {
		if err := a.printJSON(done); err != nil {
			return err
		}
	} else if len(done) == 0 {
		if err := a.print("no dead letters\n"); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}
