package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/process"
	"loopfleet/pkg/record"
	"loopfleet/pkg/tmux"
)

// happened tells a person what became of the request.
func (c *controlling) happened(s seen) string {
	rec, was := &s.rec, &c.before.rec
	name := short(c.item())
	switch c.kind {
	case event.Pause:
		if was.Want == record.Paused {
			return fmt.Sprintf("%s was paused already\n", name)
		}
		return fmt.Sprintf("paused %s: what comes for it is held, in order, until `loopfleet sessions resume '%s'`\n", name, name)
	case event.Resume:
		if was.Want != record.Paused {
			return fmt.Sprintf("%s was not paused\n", name)
		}
		return fmt.Sprintf("resumed %s: what was held is delivered now, in order\n", name)
	case event.Cleanup:
		return fmt.Sprintf("cleaned up %s: it is forgotten, and a new label starts it afresh\n", name) + endText(name, rec.End, c.before.TmuxTarget != "")
	default:
		return c.closed(s)
	}
}

func (c *controlling) closed(s seen) string {
	rec, was := &s.rec, &c.before.rec
	name := short(c.item())
	var head string
	switch {
	case !rec.Want.Ended():
		return fmt.Sprintf("%s was closed, and armed anew since: it is %s\n", name, either(string(s.State), "idle"))
	case was.Want.Ended() && was.State == record.StateClosed:
		head = fmt.Sprintf("%s was closed already (%s)\n", name, rec.CloseReason)
	default:
		head = fmt.Sprintf("closed %s (%s): it stays so until it is labelled or reopened, or `loopfleet sessions retry '%s'`\n", name, rec.CloseReason, name)
	}
	switch {
	case ended(was, rec):
		return head + endText(name, rec.End, was.Session != nil)
	case was.Session == nil:
		return head + "  there was no session to end\n"
	case running(was.State) || was.State == record.StateLost:
		return head + eventlog.Escape("  its session was on worker "+was.Session.Host+", which is away; it ends there when that worker comes back") + "\n"
	default:
		return head
	}
}

// endText is how a session ended, a line for each part of it.
func endText(name string, e *record.End, had bool) string {
	if e == nil {
		return ""
	}
	var p page
	switch {
	case e.KeptHarness:
		p.row("  agent", fmt.Sprintf("pid %d is left running (routing.tmux.killHarnessOnClose is false)", e.PanePID))
	case e.PanePID > 0:
		p.row("  agent", agentText(e))
	case !had:
		p.row("  agent", "there was none")
	}
	switch {
	case e.PanePID == 0:
	case e.Retained:
		p.row("  screen", "kept: loopfleet sessions peek '"+name+"'")
	case e.Missing:
		p.row("  screen", "was gone already")
	default:
		p.row("  screen", "gone, with the tmux session")
	}
	switch {
	case e.DirRemoved:
		p.row("  directory", e.Dir+" was removed")
	case e.DirKept != "":
		p.row("  directory", e.Dir+" stays: "+e.DirKept)
	case e.Dir != "":
		p.row("  directory", e.Dir+" is left")
	}
	p.row("  worker", e.Worker)
	p.row("  not done", e.Error)
	return p.b.String()
}

func agentText(e *record.End) string {
	text := fmt.Sprintf("pid %d ended", e.PanePID)
	switch {
	case e.Ended == 0 && e.Survivors == 0:
		text = fmt.Sprintf("pid %d had ended before", e.PanePID)
	case e.Ended > 1:
		text += fmt.Sprintf(", %d processes in all", e.Ended)
	}
	if e.Killed > 0 {
		text += fmt.Sprintf(", %d had to be killed", e.Killed)
	}
	if e.Survivors > 0 {
		text += fmt.Sprintf("; %d could NOT be ended", e.Survivors)
	}
	return text
}

// retried tells what a retry did.
func (c *controlling) retried(s seen, sent int) string {
	was := &c.before.rec
	name := short(c.item())
	var did []string
	if was.Want == record.Stopped && s.rec.Want == record.Run {
		did = append(did, "it may run again")
	}
	if was.Started != nil && !was.Started.NotBefore.IsZero() {
		did = append(did, "its failed event is tried now")
	}
	if sent > 0 {
		did = append(did, count(sent, "dead letter")+" sent once more")
	}
	if len(did) == 0 {
		return fmt.Sprintf("nothing to retry for %s: it is %s, no event waits for another try and none was given up\n", name, either(string(s.State), "idle"))
	}
	text := fmt.Sprintf("retried %s: %s\n", name, strings.Join(did, "; "))
	if sent == 0 && was.Want == record.Stopped {
		text += "  nothing is left to deliver: its next comment or review starts the session\n"
	}
	return text
}

// preview says what the request would do.
func (c *controlling) preview(ctx context.Context) error {
	if c.o.json {
		return c.printJSON(c.outcome(c.before))
	}
	s := &c.before
	name := short(c.item())
	state := either(string(s.State), "idle")
	session := "it has no session"
	if s.rec.Session != nil {
		session = fmt.Sprintf("its agent is pid %d on worker %s", s.rec.Session.PanePID, s.rec.Session.Host)
	}
	var would string
	switch c.kind {
	case event.Pause:
		would = "hold what comes for " + name
	case event.Resume:
		would = "deliver what is held for " + name
	case event.Retry:
		var n int
		err := c.fleet.withLetters(ctx, c.reg, func(ctx context.Context, l *letters) error {
			found, err := l.find(ctx, []string{c.item().String()})
			if errors.Is(err, errNoLetter) {
				return nil
			}
			n = len(found.newest().pending())
			return err
		})
		if err != nil {
			return err
		}
		would = fmt.Sprintf("try %s again, and send %s once more", name, count(n, "dead letter"))
	case event.Cleanup:
		would = "end everything of " + name + ", remove " + c.directory() + " and forget it"
	default:
		would = "end the session of " + name + " and keep its screen as configured"
		if c.o.killTmux {
			would = "end the session of " + name + " with its screen"
		}
	}
	return c.print(eventlog.Escape(fmt.Sprintf("would %s: it is %s, %s", would, state, session)) + "\n")
}

func (c *controlling) directory() string {
	if s := c.before.rec.Session; s != nil && s.Cwd != "" {
		return s.Cwd
	}
	return "its work directory"
}

var errNotConfirmed = errors.New("it was not confirmed; nothing was done")

// confirm has a person type the item.
func (c *controlling) confirm(ctx context.Context, cmd *cobra.Command) error {
	if !process.Terminal(c.stdin) {
		return usagef(cmd, "%s removes work for good: give --yes where nobody can be asked", cmd.CommandPath())
	}
	name := short(c.item())
	fmt.Fprintf(c.stderr, "This ends everything of %s, removes %s WITH ALL THAT IS IN IT, and forgets it.\nType %s to go on: ",
		name, tmux.Printable(c.directory()), name)
	line := make(chan string, 1)
	go func() {
		text, err := bufio.NewReader(c.stdin).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			text = ""
		}
		line <- strings.TrimSpace(text)
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(c.stderr)
		return context.Cause(ctx)
	case text := <-line:
		if !strings.EqualFold(text, name) && !strings.EqualFold(text, c.item().String()) {
			return fmt.Errorf("%s: %w", c.item(), errNotConfirmed)
		}
		return nil
	}
}

// progressLine is a line on a terminal that says what is waited for.
type progressLine struct {
	w     io.Writer // nil where there is no terminal
	shown string
	width int
}

func (a *app) progress() *progressLine {
	p := &progressLine{width: a.width()}
	if a.colour(a.stderr) {
		p.w = a.stderr
	}
	return p
}

func (p *progressLine) say(text string) {
	if p.w == nil || text == p.shown {
		return
	}
	p.shown = text
	fmt.Fprintf(p.w, "\r%s%s\x1b[K%s", dim, fit(eventlog.Escape(text), p.width-1), reset)
}

func (p *progressLine) clear() {
	if p.w != nil && p.shown != "" {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
