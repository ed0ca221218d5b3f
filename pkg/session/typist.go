package session

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"loopfleet/pkg/fault"
	"loopfleet/pkg/harness"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/record"
	"loopfleet/pkg/tmux"
)

const (
	// landTime is how long a pasted line may take to be seen.
	landTime = 2 * time.Second
	// leaveTime is how long a submitted line may take to leave, per Enter.
	leaveTime = 700 * time.Millisecond
	maxEnters = 4
	look      = 15 * time.Millisecond
	// history is how many lines of scrollback are searched for a line that was
	// submitted.
	history = 2000
)

// typist types one prompt into one session.
type typist struct {
	d       *Driver
	s       record.Session
	srv     *tmux.Server
	adapter harness.Adapter
	prompt  Prompt
}

// ended turns tmux's word that the program is gone into a *MissingError. Tmux may
// learn of the end a little later than we, and a server that shuts down refuses
// commands in its own words.
func (t typist) ended(ctx context.Context, err error) error {
	_, refused := errors.AsType[*tmux.CommandError](err)
	if !refused && !errors.Is(err, tmux.ErrDead) && !gone(err) {
		return err
	}
	const tries, patience = 100, 10
	for n := range tries {
		st, _, ierr := t.d.inspect(ctx, t.s)
		switch {
		case ierr != nil:
			return err
		case st.Ended():
			return &MissingError{Target: t.s.TmuxTarget, Status: st}
		case n >= patience && t.d.Alive(t.s), sleep(ctx, poll) != nil:
			return err
		}
	}
	return err
}

// screen looks at the agent's terminal.
func (t typist) screen(ctx context.Context) (harness.Screen, error) {
	s, _, err := t.pane(ctx)
	return s, err
}

func (t typist) pane(ctx context.Context) (harness.Screen, tmux.Pane, error) {
	text, pane, err := t.srv.Screen(ctx, t.s.TmuxTarget)
	switch {
	case err != nil:
		return harness.Screen{}, pane, err
	case pane.Dead:
		return harness.Screen{}, pane, fmt.Errorf("look at %s: %w", t.s.TmuxTarget, tmux.ErrDead)
	case t.s.PanePID != 0 && pane.PID != t.s.PanePID:
		// A person has split the window and works in the other half: that is
		// where a paste would go.
		return harness.Screen{}, pane, &WithheldError{Reason: ReasonAttached}
	}
	return harness.NewScreen(text, pane.CursorX, pane.CursorY), pane, nil
}

// accepts refuses, with a *WithheldError, a session in which the prompt would be
// taken for something else or get in a person's way.
func (t typist) accepts(ctx context.Context) (harness.Screen, error) {
	s, err := t.screen(ctx)
	if err != nil {
		return s, err
	}
	if err := t.asks(ctx, s); err != nil {
		return s, err
	}
	clients, err := t.srv.Clients(ctx, t.s.TmuxTarget)
	if err != nil {
		return s, err
	}
	for _, c := range clients {
		// A clock that was set back makes nobody type for ever.
		rested := time.Since(c.Active).Abs()
		if !c.ReadOnly && rested < t.d.cfg.TypingPause {
			return s, &WithheldError{Reason: ReasonAttached}
		}
	}
	if draft, known := t.adapter.Draft(s); known && draft != "" && !ours.MatchString(draft) {
		return s, &WithheldError{Reason: ReasonDraft}
	}
	return s, nil
}

// asks refuses an agent that its adapter knows to take no prompt now.
func (t typist) asks(ctx context.Context, s harness.Screen) error {
	v := view(t.s)
	v.Screen = s
	state, err := t.adapter.State(ctx, v)
	switch {
	case err != nil:
		return err
	case state == harness.Dialog:
		return &WithheldError{Reason: ReasonDialog}
	case state == harness.Starting:
		return &WithheldError{Reason: ReasonNotReady}
	}
	return nil
}

// A pointer line of ours, squashed.
const pointerPattern = `Loopfleetevent([a-z0-9-]{1,40}):read\.loopfleet/inbox/([a-z0-9-]{1,40})\.mdandactonit\.`

var (
	// pointerAtEnd matches one where a person types, whatever is before it.
	pointerAtEnd = regexp.MustCompile(pointerPattern + `$`)
	// pointerAlone matches a draft that is one.
	pointerAlone = regexp.MustCompile(`^` + pointerPattern + `$`)
	// ours matches a draft of which no person has typed a letter.
	ours = regexp.MustCompile(`^(?:` + pointerPattern + `)+$`)
)

// composed returns the event whose pointer stands in the composer, or "". Where
// the draft is known, nothing else may stand there.
func (t typist) composed(s harness.Screen) string {
	text, known := t.adapter.Draft(s)
	pattern := pointerAlone
	if !known {
		text, known = t.adapter.Composer(s)
		pattern = pointerAtEnd
	}
	m := pattern.FindStringSubmatch(text)
	if !known || m == nil || m[1] != m[2] {
		return ""
	}
	return m[1]
}

// count is how often the prompt's line is on the screen.
func (t typist) count(rows ...string) int {
	return strings.Count(harness.Squash(strings.Join(rows, "\n")), harness.Squash(Pointer(t.prompt.EventID)))
}

// seek looks for a line of an earlier try that was pasted into this very process
// and not seen: it may stand in the composer by now, or have been taken. While
// the program has not read it, nothing may be pasted behind it.
func (t typist) seek(ctx context.Context) (taken bool, err error) {
	m, pending, err := unsettled(t.s)
	if err != nil || !pending {
		return false, err
	}
	for start := time.Now(); ; {
		s, pane, err := t.pane(ctx)
		if err != nil {
			return false, err
		}
		if t.composed(s) != "" {
			return false, nil // typeLine deals with it
		}
		if m.eventID == t.prompt.EventID && m.generation == t.prompt.Generation {
			if taken, err := t.taken(ctx, s); err != nil || taken {
				return taken, err
			}
		}
		if waited := time.Since(start); waited > landTime {
			// When the terminal cannot be asked, its program is taken to
			// have read it.
			if n, err := pane.Unread(); err == nil && n > 0 {
				return false, &NotLandedError{Target: t.s.TmuxTarget, EventID: m.eventID, Waited: landTime, Unread: true}
			}
			return false, nil
		}
		if err := sleep(ctx, look); err != nil {
			return false, err
		}
	}
}

// taken reports whether a line that was pasted has been submitted, by whomever:
// there is its receipt, or the composer is empty and the program shows the line
// above it. An earlier generation's line would look the same, so of a later one
// only the composer tells.
func (t typist) taken(ctx context.Context, s harness.Screen) (bool, error) {
	if got, err := t.adapter.Received(ctx, view(t.s), t.prompt.EventID); err != nil || got {
		return got, err
	}
	if draft, known := t.adapter.Draft(s); !known || draft != "" || t.prompt.Generation > 0 {
		return false, nil
	}
	text, err := t.srv.Capture(ctx, t.s.TmuxTarget, history)
	return t.count(text) > 0, err
}

// typeLine pastes the pointer, sees it land, and submits it.
func (t typist) typeLine(ctx context.Context) error {
	name, id := t.s.TmuxTarget, t.prompt.EventID
	before, err := t.accepts(ctx) // again, as much can have happened since
	if err != nil {
		return err
	}
	composed := t.composed(before) == id
	if !composed {
		if before, err = t.erase(ctx, before); err != nil {
			return err
		}
		t.d.rememberPaste(t.s, t.prompt)
		if err := t.srv.Paste(ctx, name, Pointer(id)); err != nil {
			return err
		}
		if composed, err = t.landed(ctx, before); err != nil {
			return err
		}
	}
	fault.Pass(ctx, fault.SubmitEnter)
	if err := sleep(ctx, t.adapter.SubmitDelay()); err != nil {
		return err
	}
	// The file may have gone since, with everything that git does not know.
	if err := writeInbox(t.s.Cwd, t.prompt); err != nil {
		return &InboxError{Path: inboxPath(id), Err: err}
	}
	tells, err := t.stands(ctx, composed)
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		if err := t.srv.Enter(ctx, name); err != nil {
			return err
		}
		left := !composed // it cannot be seen to leave, so one Enter it is
		if composed {
			if left, err = t.left(ctx, tells); err != nil {
				return err
			}
		}
		switch {
		case left && !t.d.Alive(t.s):
			// What a program paints in its last moment is no submit.
			return fmt.Errorf("submit to %s: %w", name, tmux.ErrDead)
		case left:
			return nil
		case n == maxEnters:
			return &NotSubmittedError{Target: name, EventID: id, Enters: n}
		}
	}
}

// erase clears lines of deliveries that were given up between paste and Enter;
// they would become one with ours.
func (t typist) erase(ctx context.Context, s harness.Screen) (harness.Screen, error) {
	stands := func(s harness.Screen) bool {
		draft, known := t.adapter.Draft(s)
		return known && ours.MatchString(draft) || t.composed(s) != ""
	}
	if !stands(s) {
		return s, nil
	}
	t.d.cfg.Log.Info().Str(logkey.Session, t.s.TmuxTarget).Str(logkey.EventID, t.composed(s)).Msg("a line that was never submitted is cleared")
	if err := t.srv.EraseLine(ctx, t.s.TmuxTarget); err != nil {
		return s, err
	}
	deadline := time.Now().Add(leaveTime)
	for stands(s) && time.Now().Before(deadline) {
		if err := sleep(ctx, look); err != nil {
			return s, err
		}
		var err error
		if s, err = t.screen(ctx); err != nil {
			return s, err
		}
	}
	return s, nil
}

// landed waits until the line is on the screen, and reports whether it stands in
// the composer.
func (t typist) landed(ctx context.Context, before harness.Screen) (composed bool, err error) {
	had, start := t.count(before.Rows...), time.Now()
	for {
		s, pane, err := t.pane(ctx)
		if err != nil {
			return false, err
		}
		if t.composed(s) == t.prompt.EventID {
			return true, nil
		}
		late := time.Since(start) > landTime
		draft, known := t.adapter.Draft(s)
		switch seen := t.count(s.Rows...) > had; {
		case known && late && seen && draft != "":
			return false, &WithheldError{Reason: ReasonDraft} // a person was faster
		case !known && seen && (late || time.Since(start) > landTime/4):
			// A program with its composer elsewhere got some time to show
			// that it has none at the cursor.
			return false, nil
		case late:
			unread, uerr := pane.Unread()
			return false, &NotLandedError{
				Target: t.s.TmuxTarget, EventID: t.prompt.EventID, Waited: landTime, Unread: uerr == nil && unread > 0,
			}
		}
		if err := sleep(ctx, look); err != nil {
			return false, err
		}
	}
}

// stands makes sure, right before the Enter, that it still is the line's: a
// dialog may have opened over it, or a person have typed into it. It reports
// whether the composer's draft is known.
func (t typist) stands(ctx context.Context, composed bool) (tells bool, err error) {
	for start := time.Now(); ; {
		s, err := t.screen(ctx)
		if err != nil {
			return false, err
		}
		if err := t.asks(ctx, s); err != nil {
			return false, err
		}
		draft, known := t.adapter.Draft(s)
		if composed && t.composed(s) == t.prompt.EventID || !composed && t.count(s.Rows...) > 0 {
			return known, nil
		}
		if time.Since(start) > leaveTime {
			if known && draft != "" {
				return known, &WithheldError{Reason: ReasonDraft}
			}
			return known, &NotLandedError{Target: t.s.TmuxTarget, EventID: t.prompt.EventID, Waited: leaveTime}
		}
		if err := sleep(ctx, look); err != nil {
			return false, err
		}
	}
}

// left reports whether the line has left the composer, or been taken. Where the
// draft can be told, the composer must be seen without the line; only when it
// does not come back is it taken to be covered by what the line has led to.
func (t typist) left(ctx context.Context, tells bool) (bool, error) {
	deadline := time.Now().Add(leaveTime)
	for {
		s, err := t.screen(ctx)
		if err != nil {
			return false, err
		}
		away := t.composed(s) != t.prompt.EventID
		if _, known := t.adapter.Draft(s); away && (known || !tells) {
			return true, nil
		}
		if got, err := t.adapter.Received(ctx, view(t.s), t.prompt.EventID); err != nil || got {
			return got, err
		}
		if time.Now().After(deadline) {
			return away, nil
		}
		if err := sleep(ctx, look); err != nil {
			return false, err
		}
	}
}
