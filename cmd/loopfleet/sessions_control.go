package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"loopfleet/pkg/event"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/workitem"
)

const (
	controlHelp = `
The request goes through the queue to the worker that has the session, on whatever
machine. The command waits until it is done and says what happened. Without a
living worker the request is kept, and done when one is there; the exit status is
1 then. --timeout 0 does not wait.

With --json: the object of ` + "`sessions list`" + ` as it is after, with request (the id to look
for in ` + "`loopfleet events`" + `) and end (how the session ended; null if it did not).`

	controlTimeout = time.Minute
)

// controlOptions are the flags of what changes an item.
type controlOptions struct {
	dryRun, json, killTmux, yes bool
	timeout                     time.Duration
}

func (o *controlOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.dryRun, "dry-run", false, "say what would be done, and do nothing")
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.DurationVar(&o.timeout, "timeout", controlTimeout, "how long to wait until it is done; 0 does not wait")
}

func newSessionsCloseCommand(a *app) *cobra.Command {
	var o controlOptions
	cmd := a.controlCommand("close", event.Stop, &o, `End the session of a work item that is still open on the forge, exactly as a close
there would: the agent and everything it started ends, its screen stays readable
where routing.tmux says so, and its directory stays. The item stays closed
(stopped) until it is labelled anew or reopened, or `+"`loopfleet sessions retry`"+`.`)
	cmd.Short = "End a session; it stays ended until a new label"
	cmd.Example = `  loopfleet sessions close octo/hello#42
  loopfleet sessions close octo/hello#42 --kill-tmux`
	cmd.Flags().BoolVar(&o.killTmux, "kill-tmux", false, "end the tmux session too, with its screen; also of an item that is closed already")
	return cmd
}

func newSessionsPauseCommand(a *app) *cobra.Command {
	cmd := a.controlCommand("pause", event.Pause, &controlOptions{}, `Hold what comes for a work item from now on. The agent goes on with what it has. What
is held is kept in order and costs no attempt.`)
	cmd.Short = "Hold the events of an item; the agent goes on"
	return cmd
}

func newSessionsResumeCommand(a *app) *cobra.Command {
	cmd := a.controlCommand("resume", event.Resume, &controlOptions{}, `Deliver what was held since `+"`sessions pause`"+`, in order.`)
	cmd.Short = "Deliver what was held, in order"
	return cmd
}

func newSessionsRetryCommand(a *app) *cobra.Command {
	cmd := a.controlCommand("retry", event.Retry, &controlOptions{}, `Try again: an item that `+"`sessions close`"+` has stopped may run again, the wait before the
next try of a failed event is cut short, and what was given up is sent once more
with a fresh budget of attempts. It starts nothing by itself: without an event to
deliver, the next one starts the session.`)
	cmd.Short = "Try failed events again now, and let a stopped item run"
	return cmd
}

func newSessionsCleanupCommand(a *app) *cobra.Command {
	var o controlOptions
	cmd := a.controlCommand("cleanup", event.Cleanup, &o, `End everything of a work item and forget it: the agent, its screen, its work
directory WITH ALL THAT IS IN IT, saved elsewhere or not, and its record. A later
label or reopen starts afresh. On a terminal you are asked to type the item;
elsewhere --yes is needed.`)
	cmd.Short = "End, remove and forget everything of an item"
	cmd.Example = `  loopfleet sessions cleanup octo/hello#42
  loopfleet sessions cleanup octo/hello#42 --dry-run
  loopfleet sessions cleanup octo/hello#42 --yes`
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask")
	return cmd
}

// controlCommand is a command that asks the worker of an item for something.
func (a *app) controlCommand(name string, kind event.Kind, o *controlOptions, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use:               name + " ITEM",
		Long:              long + "\n" + controlHelp,
		Example:           "  loopfleet sessions " + name + " octo/hello#42",
		Args:              exactly("ITEM"),
		ValidArgsFunction: a.completeItem,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.timeout < 0 {
				return usagef(cmd, "--timeout %s: it cannot be negative", o.timeout)
			}
			named, err := parseItem(args[0])
			if err != nil {
				return err
			}
			return a.withRegistry(cmd.Context(), func(ctx context.Context, f *fleet, reg *registry.Registry) error {
				s, err := f.find(ctx, reg, named)
				if err != nil {
					return err
				}
				c := &controlling{app: a, fleet: f, reg: reg, kind: kind, o: *o, before: s}
				return c.run(ctx, cmd)
			})
		},
	}
	o.register(cmd)
	return cmd
}

// controlling is one request on its way.
type controlling struct {
	*app
	fleet  *fleet
	reg    *registry.Registry
	kind   event.Kind
	o      controlOptions
	before seen

	request string
	seq     uint64
}

func (c *controlling) item() workitem.Ref { return c.before.WorkItem }

func (c *controlling) run(ctx context.Context, cmd *cobra.Command) error {
	if c.o.dryRun {
		return c.preview(ctx)
	}
	if c.kind == event.Cleanup && !c.o.yes {
		if err := c.confirm(ctx, cmd); err != nil {
			return err
		}
	}
	if err := c.publish(ctx); err != nil {
		return err
	}
	if c.o.timeout == 0 {
		if c.o.json {
			return c.printJSON(c.outcome(c.before))
		}
		return c.printf("requested for %s as %s\n", c.item(), c.request)
	}
	after, err := c.await(ctx)
	if err != nil {
		return err
	}
	if err := c.refused(&after.rec); err != nil {
		return err
	}
	if c.kind == event.Retry {
		return c.replay(ctx, after)
	}
	return c.report(after, c.happened(after))
}

// publish sends the request; from here on it will be done, sooner or later.
func (c *controlling) publish(ctx context.Context) error {
	now := time.Now().UTC()
	ev := event.Event{
		ID:   event.NewID(c.kind, c.item().Host, 0, c.item().Number, rand.Text(), now),
		Kind: c.kind, Source: event.Operator, WorkItem: c.item(), Actor: event.Actor{Login: operator()}, At: now,
		KillTmux: c.o.killTmux,
	}
	if c.kind == event.Stop {
		ev.Reason = event.Stopped
	}
	receipt, err := queue.NewPublisher(c.fleet.js).Publish(ctx, ev)
	if err != nil {
		return err
	}
	c.request, c.seq = ev.ID, receipt.Seq
	return nil
}

// operator names who asks, for the event log: a person on a machine.
func operator() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}

// done reports whether the effect is there: the request was read, and what it
// asks for has been done or overtaken.
func (c *controlling) done(r *record.Record) bool {
	if r.ControlSeq < c.seq {
		return false
	}
	switch c.kind {
	case event.Stop:
		if !r.Want.Ended() {
			return true // armed anew meanwhile
		}
		return r.State == record.StateClosed && !c.killPending(r) || !r.ForgottenAt.IsZero()
	case event.Cleanup:
		return !r.Forget
	default:
		return true
	}
}

// killPending reports whether a screen is still to go and can be reached: the
// request stays in the record of a session whose worker is away.
func (c *controlling) killPending(r *record.Record) bool {
	return r.KillTmux && r.Session != nil && (r.End == nil || r.End.Error == "")
}

var (
	errNoWorker = errors.New("no worker is alive to do it")
	errNotYet   = errors.New("it is not done yet")
	errClosed   = errors.New("it is closed")
)

const (
	lookEvery    = 100 * time.Millisecond
	workersEvery = time.Second
)

// await waits until the request has had its effect and returns what is there
// then.
func (c *controlling) await(ctx context.Context) (seen, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.timeout)
	defer cancel()
	p := c.progress()
	defer p.clear()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var looked time.Time
	why := "it waits for a worker to read it"
	for {
		e, err := c.reg.Get(ctx, c.item())
		if err == nil && c.done(&e.Record) {
			ws, _, err := loadWorkers(ctx, c.reg)
			if err != nil {
				return seen{}, err
			}
			return seen{sessionView: view(&e.Record, ws), rec: e.Record}, nil
		}
		if err == nil && time.Since(looked) >= workersEvery {
			looked = time.Now()
			if why, err = c.waitsFor(ctx, &e.Record); err != nil {
				return seen{}, err
			}
			p.say(why)
		}
		if err != nil && ctx.Err() == nil {
			return seen{}, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return seen{}, context.Cause(ctx)
			}
			return seen{}, &hintError{
				err:  fmt.Errorf("%s: %w after %s: %s", c.item(), errNotYet, c.o.timeout, why),
				hint: "the request (" + c.request + ") is kept and will be done; `loopfleet sessions show '" + short(c.item()) + "'` shows when it is",
			}
		}
	}
}

// waitsFor says what the request waits for; it is an error when nobody is there
// to do it.
func (c *controlling) waitsFor(ctx context.Context, r *record.Record) (string, error) {
	ws, list, err := loadWorkers(ctx, c.reg)
	if err != nil {
		return "", err
	}
	holder := holder(r)
	if err := ws.knowing(ctx, c.reg, holder); err != nil {
		return "", err
	}
	anybody := ws.alive[holder]
	for _, w := range list {
		anybody = anybody || ws.alive[w.ID] || ws.state(w.ID) == workerState(registry.WorkerRestarting)
	}
	switch {
	case !anybody:
		return "", &hintError{
			err:  fmt.Errorf("%s: %w", c.item(), errNoWorker),
			hint: "the request (" + c.request + ") is kept and will be done when a worker is there; `loopfleet workers list` shows who was",
		}
	case holder == "":
		return "waiting for a worker to read the request", nil
	case ws.gone(holder):
		return fmt.Sprintf("worker %s, which has the session, is away; waiting for it or for another to take over", holder), nil
	case r.ControlSeq >= c.seq:
		return fmt.Sprintf("waiting for worker %s to end the session", holder), nil
	default:
		return fmt.Sprintf("waiting for worker %s to read the request", holder), nil
	}
}

// refused says why the request could have no effect on the item as it is.
func (c *controlling) refused(r *record.Record) error {
	pointless := c.kind == event.Pause && r.Want != record.Paused || c.kind != event.Stop && c.kind != event.Cleanup && r.Want.Ended()
	if !pointless || !r.Want.Ended() {
		return nil
	}
	hint := "reopen it on the forge"
	if r.Want == record.Stopped {
		hint = "`loopfleet sessions retry '" + short(c.item()) + "'` lets it run again"
	}
	return &hintError{err: fmt.Errorf("%s: %w (%s)", c.item(), errClosed, r.CloseReason), hint: hint}
}

// replay sends what was given up once more; the item may run now.
func (c *controlling) replay(ctx context.Context, after seen) error {
	sent := 0
	err := c.fleet.withLetters(ctx, c.reg, func(ctx context.Context, l *letters) error {
		found, err := l.find(ctx, []string{c.item().String()})
		if errors.Is(err, errNoLetter) {
			return nil
		}
		if err != nil {
			return err
		}
		var errs []error
		newest := found.newest()
		for i := range newest {
			switch ch := l.replay(ctx, &newest[i], false); {
			case ch.err != nil:
				errs = append(errs, ch.err)
			case ch.Action == "replayed":
				sent++
			}
		}
		return errors.Join(errs...)
	})
	return errors.Join(c.report(after, c.retried(after, sent)), err)
}

// outcome is the JSON of a request.
func (c *controlling) outcome(s seen) controlled {
	out := controlled{sessionView: s.sessionView, Request: c.request}
	if ended(&c.before.rec, &s.rec) {
		out.End = s.rec.End
	}
	return out
}

type controlled struct {
	sessionView
	// Request is the event id of the request.
	Request string      `json:"request"`
	End     *record.End `json:"end"`
}

func (c *controlling) report(s seen, text string) error {
	if c.o.json {
		return c.printJSON(c.outcome(s))
	}
	return c.print(text)
}

// ended reports whether a session was ended between two looks.
func ended(before, after *record.Record) bool {
	return after.End != nil && (before.End == nil || !after.End.At.Equal(before.End.At))
}
