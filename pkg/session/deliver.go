package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"loopfleet/pkg/event"
	"loopfleet/pkg/fault"
	"loopfleet/pkg/harness"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/record"
	"loopfleet/pkg/tmux"
)

// Delivery is how far a prompt came.
type Delivery struct {
	// Submitted: the line was seen to leave the composer, now or in an
	// earlier try; it is not sent again by itself.
	Submitted bool
	// Receipt: the agent has taken it. A harness with `receipt: none` never
	// says so; for it, submitted is enough.
	Receipt bool
}

const (
	// landTime is how long a pasted line may take to be seen.
	landTime = 2 * time.Second
	// leaveTime is how long a submitted line may take to leave, per Enter.
	leaveTime = 700 * time.Millisecond
	maxEnters = 4
	// typingTime bounds the part that no cancelled context interrupts. A
	// lag that a test injects counts in it.
	typingTime = 30 * time.Second
	look       = 15 * time.Millisecond
	maxMarks   = 4 << 20
)

// Deliver puts the prompt in front of the agent and waits for its receipt.
//
// Submitted without a receipt and without an error means that none came in time.
// An error after Submitted concerns the receipt alone: *MissingError when the
// agent ended, or the cause of ctx. Any other error means that the prompt was
// not submitted: *MissingError, *WithheldError and *FenceError before anything
// was typed, *NotLandedError, *NotSubmittedError and *InboxError; a later try
// goes on where this one ended.
func (d *Driver) Deliver(ctx context.Context, s record.Session, p Prompt) (Delivery, error) {
	fail := func(dl Delivery, err error) (Delivery, error) {
		return dl, fmt.Errorf("deliver %s to %s: %w", p.EventID, s.TmuxTarget, err)
	}
	if !event.ValidID(p.EventID) {
		return Delivery{}, fmt.Errorf("deliver to %s: %q is no event id", s.TmuxTarget, tmux.Printable(p.EventID))
	}
	adapter, err := d.set.Adapter(s.Harness)
	if err != nil {
		return fail(Delivery{}, err)
	}
	got, err := adapter.Received(ctx, view(s), p.EventID)
	if err != nil {
		return fail(Delivery{}, err)
	}
	if got {
		return Delivery{Submitted: true, Receipt: true}, nil
	}
	if err := d.submit(ctx, s, adapter, p); err != nil {
		return fail(Delivery{}, err)
	}
	got, err = d.await(ctx, s, adapter, p.EventID)
	if err != nil {
		return fail(Delivery{Submitted: true}, err)
	}
	return Delivery{Submitted: true, Receipt: got}, nil
}

// submit types the prompt, unless an earlier try has submitted it to this very
// process.
func (d *Driver) submit(ctx context.Context, s record.Session, adapter harness.Adapter, p Prompt) error {
	unlock, err := d.lock(ctx, s.TmuxSocket)
	if err != nil {
		return err
	}
	defer unlock()
	st, srv, err := d.inspect(ctx, s)
	switch {
	case err != nil:
		return err
	case st.Ended():
		return &MissingError{Target: s.TmuxTarget, Status: st}
	case st.State != Live:
		return errors.New("its session cannot be read: " + st.Why)
	}
	done, err := submitted(s, p)
	if err != nil || done {
		return err
	}
	t := typist{d: d, s: s, srv: srv, adapter: adapter, prompt: p}
	if err := t.ready(ctx); err != nil {
		return t.ended(ctx, err)
	}
	if err := d.stage(ctx, s.Cwd, p); err != nil {
		return err
	}
	if d.cfg.Fence != nil {
		if left := d.cfg.Fence(); left < MinLease {
			return &FenceError{Left: left}
		}
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	// From here to the submit nothing of ours stops half-way: a line without
	// its Enter would join the next one.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), typingTime)
	defer cancel()
	if err := t.typeLine(ctx); err != nil {
		return t.ended(ctx, err)
	}
	d.remember(s, p)
	return nil
}

// remember notes that the prompt was submitted. That it cannot be noted does not
// undo the submit.
func (d *Driver) remember(s record.Session, p Prompt) {
	if err := markSubmitted(s, p); err != nil {
		d.cfg.Log.Warn().Err(err).Str(logkey.Session, s.TmuxTarget).Str(logkey.EventID, p.EventID).
			Msg("a crash before the outcome is recorded may send this prompt again")
	}
}

// typist types one prompt into one session.
type typist struct {
	d       *Driver
	s       record.Session
	srv     *tmux.Server
	adapter harness.Adapter
	prompt  Prompt
}

// ended turns tmux's word that the program is gone into a *MissingError.
func (t typist) ended(ctx context.Context, err error) error {
	if !errors.Is(err, tmux.ErrDead) && !gone(err) {
		return err
	}
	st, _, ierr := t.d.inspect(ctx, t.s)
	if ierr != nil || !st.Ended() {
		return err
	}
	return &MissingError{Target: t.s.TmuxTarget, Status: st}
}

func (t typist) screen(ctx context.Context) (harness.Screen, error) {
	text, pane, err := t.srv.Screen(ctx, t.s.TmuxTarget)
	if err != nil {
		return harness.Screen{}, err
	}
	if pane.Dead {
		return harness.Screen{}, fmt.Errorf("look at %s: %w", t.s.TmuxTarget, tmux.ErrDead)
	}
	return harness.NewScreen(text, pane.CursorX, pane.CursorY), nil
}

// ready refuses an agent that would take the prompt for something else.
func (t typist) ready(ctx context.Context) error {
	v := view(t.s)
	var err error
	if v.Screen, err = t.screen(ctx); err != nil {
		return err
	}
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

// pointerAtEnd matches a pointer line of ours, squashed, where a person types.
var pointerAtEnd = regexp.MustCompile(`Loopfleetevent([a-z0-9-]{1,40}):read\.loopfleet/inbox/([a-z0-9-]{1,40})\.mdandactonit\.$`)

// composed returns the event whose pointer stands in the composer, or "".
func (t typist) composed(s harness.Screen) string {
	text, known := t.adapter.Composer(s)
	m := pointerAtEnd.FindStringSubmatch(text)
	if !known || m == nil || m[1] != m[2] {
		return ""
	}
	return m[1]
}

// typeLine pastes the pointer, sees it land, and submits it.
func (t typist) typeLine(ctx context.Context) error {
	name, id := t.s.TmuxTarget, t.prompt.EventID
	before, err := t.screen(ctx)
	if err != nil {
		return err
	}
	composed := t.composed(before) == id
	if !composed {
		if before, err = t.erase(ctx, before); err != nil {
			return err
		}
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
	for n := 1; ; n++ {
		if err := t.srv.Enter(ctx, name); err != nil {
			return err
		}
		if !composed {
			return nil // it cannot be seen to leave, so one Enter it is
		}
		left, err := t.left(ctx)
		if err != nil || left {
			return err
		}
		if n == maxEnters {
			return &NotSubmittedError{Target: name, EventID: id, Enters: n}
		}
	}
}

// erase clears the line of a delivery that was given up between paste and Enter;
// it would become one with ours.
func (t typist) erase(ctx context.Context, s harness.Screen) (harness.Screen, error) {
	other := t.composed(s)
	if other == "" {
		return s, nil
	}
	t.d.cfg.Log.Info().Str(logkey.Session, t.s.TmuxTarget).Str(logkey.EventID, other).Msg("a line that was never submitted is cleared")
	if err := t.srv.EraseLine(ctx, t.s.TmuxTarget); err != nil {
		return s, err
	}
	deadline := time.Now().Add(leaveTime)
	for t.composed(s) == other && time.Now().Before(deadline) {
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
	line := harness.Squash(Pointer(t.prompt.EventID))
	count := func(s harness.Screen) int {
		return strings.Count(harness.Squash(strings.Join(s.Rows, "\n")), line)
	}
	had, start := count(before), time.Now()
	for {
		s, err := t.screen(ctx)
		if err != nil {
			return false, err
		}
		if t.composed(s) == t.prompt.EventID {
			return true, nil
		}
		late := time.Since(start) > landTime
		// A program with its composer elsewhere gets some time to show that
		// it has none at the cursor.
		if count(s) > had && (late || time.Since(start) > landTime/4) {
			return false, nil
		}
		if late {
			return false, &NotLandedError{Target: t.s.TmuxTarget, EventID: t.prompt.EventID, Waited: landTime}
		}
		if err := sleep(ctx, look); err != nil {
			return false, err
		}
	}
}

// left reports whether the line has left the composer, or been taken.
func (t typist) left(ctx context.Context) (bool, error) {
	deadline := time.Now().Add(leaveTime)
	for {
		s, err := t.screen(ctx)
		if err != nil {
			return false, err
		}
		if t.composed(s) != t.prompt.EventID {
			return true, nil
		}
		if got, err := t.adapter.Received(ctx, view(t.s), t.prompt.EventID); err != nil || got {
			return got, err
		}
		if time.Now().After(deadline) {
			return false, nil
		}
		if err := sleep(ctx, look); err != nil {
			return false, err
		}
	}
}

// AwaitReceipt waits until the agent says that it has taken the event, which may
// be the boot prompt: false when it has not within the receipt timeout. A
// harness that is known to be busy is waited for. With `receipt: none` the
// answer is true at once. A *MissingError says that the agent ended without it.
func (d *Driver) AwaitReceipt(ctx context.Context, s record.Session, eventID string) (bool, error) {
	adapter, err := d.set.Adapter(s.Harness)
	if err != nil {
		return false, fmt.Errorf("wait for the receipt of %s: %w", eventID, err)
	}
	got, err := d.await(ctx, s, adapter, eventID)
	if err != nil {
		return false, fmt.Errorf("wait for the receipt of %s from %s: %w", eventID, s.TmuxTarget, err)
	}
	return got, nil
}

func (d *Driver) await(ctx context.Context, s record.Session, adapter harness.Adapter, eventID string) (bool, error) {
	if adapter.Receipt() == harness.ReceiptNone {
		return true, nil
	}
	agent := tmux.Process{PID: s.PanePID, Start: s.PaneStart}
	deadline := time.Now().Add(d.cfg.ReceiptTimeout)
	for {
		alive := agent.Alive() // before the look, which then sees its last word
		got, err := adapter.Received(ctx, view(s), eventID)
		if err != nil || got {
			return got, err
		}
		if !alive {
			st, err := d.Inspect(ctx, s)
			if err != nil {
				return false, err
			}
			if st.Ended() {
				return false, &MissingError{Target: s.TmuxTarget, Status: st}
			}
		}
		if time.Now().After(deadline) {
			state, err := adapter.State(ctx, view(s))
			if err != nil || state != harness.Busy {
				return false, err
			}
		}
		if err := sleep(ctx, poll); err != nil {
			return false, err
		}
	}
}

// HasReceipt looks, without waiting, whether the agent has taken the event. With
// `receipt: none` it tells whether it was submitted to this very process.
func (d *Driver) HasReceipt(s record.Session, eventID string) (bool, error) {
	adapter, err := d.set.Adapter(s.Harness)
	if err != nil {
		return false, fmt.Errorf("look for the receipt of %s: %w", eventID, err)
	}
	if adapter.Receipt() == harness.ReceiptNone {
		return marks(s, func(id string, _ int) bool { return id == eventID })
	}
	return adapter.Received(context.Background(), view(s), eventID)
}

// submittedFile remembers what was submitted to which process: a crash after the
// submit and before the record must not type the prompt a second time.
const submittedFile = "submitted"

func markSubmitted(s record.Session, p Prompt) error {
	path := filepath.Join(s.Dir, submittedFile)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, 0o600) //nolint:gosec // in the worker's own directory
	if err == nil {
		_, err = f.WriteString(s.Token + " " + p.EventID + " " + strconv.Itoa(p.Generation) + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("remember that %s was submitted: %w", p.EventID, err)
	}
	return nil
}

// submitted reports whether this or a later generation of the event was
// submitted to this very process.
func submitted(s record.Session, p Prompt) (bool, error) {
	return marks(s, func(id string, generation int) bool { return id == p.EventID && generation >= p.Generation })
}

func marks(s record.Session, match func(id string, generation int) bool) (bool, error) {
	f, err := os.OpenFile(filepath.Join(s.Dir, submittedFile), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read what was submitted: %w", err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxMarks))
	if err != nil {
		return false, fmt.Errorf("read what was submitted: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		w := strings.Fields(line)
		if len(w) != 3 || w[0] != s.Token || !strings.HasSuffix(line, "\n") {
			continue
		}
		if n, err := strconv.Atoi(w[2]); err == nil && match(w[1], n) {
			return true, nil
		}
	}
	return false, nil
}
