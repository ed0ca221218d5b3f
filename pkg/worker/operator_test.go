package worker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loopfleet/pkg/config"
	"loopfleet/pkg/decide"
	"loopfleet/pkg/event"
	"loopfleet/pkg/record"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/workitem"
)

// What a person has stopped stays so for whatever merely still is there, and a
// label starts it again.
func TestStop(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.start("w1")
	ref := item(t, 83)
	s := f.running(ref)
	f.publish(asked(event.Stop, ref, 100))
	r := f.state(ref, record.StateClosed)
	if r.Want != record.Stopped || r.Reason != event.Stopped || alive(s.PanePID) {
		t.Errorf("want %s, reason %q, the agent lives: %t", r.Want, r.Reason, alive(s.PanePID))
	}
	present := label(ref, 150)
	present.Kind, present.Source = event.Presence, event.Poll
	present.ID = event.NewID(event.Presence, ref.Host, 1, ref.Number, "present", present.At)
	c := comment(ref, 151)
	f.publish(present, c)
	f.want(present, record.Dropped, decide.StoppedItem)
	f.want(c, record.Dropped, decide.StoppedItem)
	f.publish(label(ref, 200))
	f.want(label(ref, 200), record.Done, "")
	if r := f.state(ref, record.StateActive); r.Incarnation != 2 {
		t.Errorf("incarnation %d, want 2", r.Incarnation)
	}
	lines := f.wantLogged(event.ControlApplied, ref, 1)
	if len(lines) == 1 && !strings.Contains(raw(lines[0]), `"actor":"alice@desk"`) {
		t.Errorf("who stopped it is not told: %s", raw(lines[0]))
	}
}

// Retry lets a stopped item run: not by itself, but with its next event.
func TestRetry_ClearsStopped(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.start("w1")
	ref := item(t, 84)
	f.running(ref)
	f.publish(asked(event.Stop, ref, 100))
	f.state(ref, record.StateClosed)
	f.publish(asked(event.Retry, ref, 110))
	r := f.state(ref, record.StateSleeping)
	if r.Want != record.Run || r.Incarnation != 1 {
		t.Errorf("want %s, incarnation %d", r.Want, r.Incarnation)
	}
	c := comment(ref, 120)
	f.publish(c)
	f.want(c, record.Done, "")
	if r := f.state(ref, record.StateActive); r.Incarnation != 2 {
		t.Errorf("incarnation %d, want 2", r.Incarnation)
	}
}

// A screen that was kept can be done away with later, wherever the request is
// read: the worker that has the session does it.
func TestStop_KillsARetainedScreen(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.start("w1")
	refs := make([]workitem.Ref, 4)
	sessions := make([]*record.Session, len(refs))
	for i := range refs {
		refs[i] = item(t, 85+i)
		sessions[i] = f.running(refs[i])
		f.publish(closing(refs[i], 100))
		f.state(refs[i], record.StateClosed)
	}
	f.start("w2")
	for i, ref := range refs {
		if _, ok := screen(t, sessions[i]); !ok {
			t.Fatal("no screen was kept")
		}
		waitfor.Until(t, "the item to be nobody's", func() bool { return f.record(ref).Owner == "" })
		ev := asked(event.Stop, ref, 110)
		ev.KillTmux = true
		f.publish(ev)
	}
	for i, ref := range refs {
		waitfor.Until(t, "the screen to be gone", func() bool { _, ok := screen(t, sessions[i]); return !ok })
		waitfor.Until(t, "the wish to be done", func() bool { return !f.record(ref).KillTmux })
		r := f.record(ref)
		if r.State != record.StateClosed || r.CloseReason != event.IssueClosed || r.End.Worker != "w1" {
			t.Errorf("%s: state %s (%s), ended by %s", ref, r.State, r.CloseReason, r.End.Worker)
		}
	}
}

// Cleanup ends everything, removes the plain directory also where it was made
// read-only, and forgets the item: of a running one, of a closed one that nobody
// owns, wherever the request is read.
func TestCleanup(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.start("w1")
	refs := make([]workitem.Ref, 4)
	sessions := make([]*record.Session, len(refs))
	for i := range refs {
		refs[i] = item(t, 300+i)
		sessions[i] = f.running(refs[i])
		deep := filepath.Join(sessions[i].Cwd, "cache", "pkg")
		if err := os.MkdirAll(deep, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(deep, "f"), nil, 0o400); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(deep, 0o500); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			f.publish(closing(refs[i], 100))
			f.state(refs[i], record.StateClosed)
			waitfor.Until(t, "the item to be nobody's", func() bool { return f.record(refs[i]).Owner == "" })
		}
	}
	f.start("w2")
	for i, ref := range refs {
		f.publish(asked(event.Cleanup, ref, 110+i))
	}
	for i, ref := range refs {
		s := sessions[i]
		waitfor.Until(t, "the item to be forgotten", func() bool { return !f.record(ref).ForgottenAt.IsZero() })
		r := f.record(ref)
		if r.Session != nil || r.State != "" || r.Armed || r.Forget || r.Incarnation != 1 || r.End == nil || !r.End.DirRemoved || r.End.Dir != s.Cwd || r.End.Error != "" {
			t.Errorf("%s: record %+v, end %+v", ref, r, r.End)
		}
		if alive(s.PanePID) || alive(s.ServerPID) {
			t.Errorf("%s: agent lives: %t, tmux lives: %t", ref, alive(s.PanePID), alive(s.ServerPID))
		}
		for _, dir := range []string{s.Cwd, s.Dir} {
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("%s: %s is left: %v", ref, dir, err)
			}
		}
		f.wantLogged(event.ItemForgotten, ref, 1)
	}

	// Old news starts nothing; a new label starts afresh, and counts on.
	ref := refs[1]
	f.publish(label(ref, 0), comment(ref, 120))
	f.want(comment(ref, 120), record.Dropped, decide.StoppedItem)
	f.publish(label(ref, 200))
	f.want(label(ref, 200), record.Done, "")
	r := f.state(ref, record.StateActive)
	if r.Incarnation != 2 || !r.ForgottenAt.IsZero() {
		t.Errorf("incarnation %d, forgotten at %s", r.Incarnation, r.ForgottenAt)
	}
	f.wantReceived(ref, label(ref, 200))
}

// A cleanup that is asked for while its worker is away is done when it is back.
func TestCleanup_WorkerAway(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.start("w1")
	ref := item(t, 320)
	s := f.running(ref)
	w.end()
	f.publish(asked(event.Cleanup, ref, 100))
	if !alive(s.PanePID) {
		t.Fatal("onStop keep ended the agent")
	}
	f.start("w1")
	waitfor.Until(t, "the item to be forgotten", func() bool { return !f.record(ref).ForgottenAt.IsZero() })
	if alive(s.PanePID) {
		t.Error("the agent lives")
	}
}

// rule: CL-19: what the configuration says of a close is that of the moment, for
// sessions that run already too; a bad edit changes nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	f := newFleet(t, func(c *config.Config) { c.Harnesses["stubborn"] = stubborn })
	live := config.NewLive(f.cfg)
	f.live = live
	f.start("w1")
	kept, gone, left := item(t, 90), item(t, 91), item(t, 92)
	ks, gs, ls := f.running(kept), f.running(gone), f.running(left)
	f.publish(closing(kept, 100))
	f.state(kept, record.StateClosed)
	if _, ok := screen(t, ks); !ok {
		t.Error("the screen is gone before the edit")
	}

	bad := f.cfg
	bad.Routing.Tmux.KeepSessionOnClose = false
	live.Reload(bad, fmt.Errorf("line 3: routing.tmux.keepSessionOnClose: %w", os.ErrInvalid), false)
	next := f.cfg
	next.Routing.Tmux.KillHarnessOnClose = false
	next.Worker.Capacity++
	live.Reload(next, nil, false)
	f.publish(closing(left, 100))
	f.state(left, record.StateClosed)
	if !alive(ls.PanePID) {
		t.Error("killHarnessOnClose false ended the agent")
	}

	next.Routing.Tmux.KeepSessionOnClose = false
	live.Reload(next, nil, false)
	f.publish(closing(gone, 100))
	f.state(gone, record.StateClosed)
	if _, ok := screen(t, gs); ok {
		t.Error("the screen is there after the edit")
	}
	lines := f.wantLogged(event.ConfigReloaded, workitem.Ref{}, 2)
	for i, want := range []string{`"applied":["routing.tmux.killHarnessOnClose"]`, `"applied":["routing.tmux.keepSessionOnClose"]`} {
		if i < len(lines) && (!strings.Contains(raw(lines[i]), want) || !strings.Contains(raw(lines[i]), `"needs_restart":["worker.capacity"]`)) {
			t.Errorf("line %d: %s; want %s", i, raw(lines[i]), want)
		}
	}
	f.wantLogged(event.ConfigRejected, workitem.Ref{}, 1)
}
