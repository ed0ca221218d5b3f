package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"loopfleet/pkg/event"
	"loopfleet/pkg/harness"
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

// typingTime bounds the part that no cancelled context interrupts. A lag that a
// test injects counts in it.
const typingTime = 30 * time.Second

// Deliver puts the prompt in front of the agent and waits for its receipt.
//
// Submitted without a receipt and without an error means that none came in time.
// An error after Submitted concerns the receipt alone: *MissingError when the
// agent ended, or the cause of ctx. Any other error means that the prompt was
// not seen to be submitted: *MissingError, *UnreadableError, *WithheldError,
// *FenceError, *NotLandedError, *NotSubmittedError, *InboxError, and what tmux
// refused; Reason has a word for each. A later try goes on where this one ended:
// a line that was pasted is looked for before it is pasted again.
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
		if _, ok := errors.AsType[*MissingError](err); ok {
			// It may have taken the line with its last breath.
			if got, rerr := adapter.Received(ctx, view(s), p.EventID); rerr == nil && got {
				return Delivery{Submitted: true, Receipt: true}, nil
			}
		}
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
		return &UnreadableError{Target: s.TmuxTarget, Why: st.Why}
	}
	done, err := submitted(s, p)
	if err != nil || done {
		return err
	}
	t := typist{d: d, s: s, srv: srv, adapter: adapter, prompt: p}
	if _, err := t.accepts(ctx); err != nil {
		return t.ended(ctx, err)
	}
	taken, err := t.seek(ctx)
	if err != nil {
		return t.ended(ctx, err)
	}
	if taken {
		d.remember(s, p)
		return nil
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
	deadline := time.Now().Add(d.soft.Load().receiptTimeout)
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
		return submittedEver(s, eventID)
	}
	return adapter.Received(context.Background(), view(s), eventID)
}
