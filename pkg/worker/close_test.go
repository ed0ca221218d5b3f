package worker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"loopfleet/pkg/config"
	"loopfleet/pkg/decide"
	"loopfleet/pkg/event"
	"loopfleet/pkg/record"
	"loopfleet/pkg/testutil/tmuxtest"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/workitem"
)

// asked is what an operator's command publishes.
func asked(kind event.Kind, ref workitem.Ref, n int) event.Event {
	when := clock.Add(time.Duration(n) * time.Second)
	return event.Event{
		ID:   event.NewID(kind, ref.Host, 1, ref.Number, fmt.Sprint("op-", n), when),
		Kind: kind, Source: event.Operator, WorkItem: ref, Actor: event.Actor{Login: "alice@desk"}, At: when,
	}
}

// screen is what the session shows, and whether it is there at all.
func screen(t *testing.T, s *record.Session) (string, bool) {
	t.Helper()
	srv := tmuxtest.On(t, s.TmuxSocket)
	if !srv.Listening(t.Context()) {
		return "", false
	}
	text, err := srv.Capture(t.Context(), s.TmuxTarget, 100)
	return text, err == nil
}

// running publishes the label and returns the session that came of it.
func (f *fleet) running(ref workitem.Ref) *record.Session {
	f.t.Helper()
	f.publish(label(ref, 0))
	f.want(label(ref, 0), record.Done, "")
	return f.state(ref, record.StateActive).Session
}

// stubborn ignores TERM, and so does what it starts.
var stubborn = config.Harness{Command: []string{"/bin/sh", "-c", `trap "" TERM; echo begun; while :; do sleep 1; done`, "sh"}, Receipt: "none"}

// quiet says nothing of what it takes.
var quiet = config.Harness{Command: []string{"/bin/sh", "-c", `echo "got $1"; while read -r l; do echo "got $l"; done`, "sh"}, Receipt: "none"}

// What a close does depends on the configuration alone: not on the harness, and
// not on whether the forge or a person closes.
//
// rule: CL-13, rule: CL-16, rule: CL-22, rule: CL-12 (record, agent and screen
// go together; a plain directory stays)
func TestClose_AsConfigured(t *testing.T) {
	t.Parallel()
	ways := map[string]func(workitem.Ref) event.Event{
		"forge":    func(r workitem.Ref) event.Event { return closing(r, 100) },
		"operator": func(r workitem.Ref) event.Event { return asked(event.Stop, r, 100) },
	}
	for _, tt := range []struct {
		keep, kill, killTmux        bool
		agentLives, screenIs, ended bool
	}{
		{keep: true, kill: true, screenIs: true, ended: true},
		{keep: true, kill: false, screenIs: true, agentLives: true},
		{keep: false, kill: true, ended: true},
		{keep: false, kill: false, ended: true},
		{keep: true, kill: false, killTmux: true, ended: true},
	} {
		t.Run(fmt.Sprintf("keep=%t kill=%t kill-tmux=%t", tt.keep, tt.kill, tt.killTmux), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, func(c *config.Config) {
				c.Routing.Tmux.KeepSessionOnClose, c.Routing.Tmux.KillHarnessOnClose = tt.keep, tt.kill
				c.Harnesses["quiet"] = quiet
			})
			n := 200
			for _, h := range []string{"demo", "quiet"} {
				w := f.start("w-"+h, func(c *config.Config) { c.Routing.DefaultHarness = h })
				for way, how := range ways {
					if tt.killTmux && way == "forge" {
						continue // only a person can wish for that
					}
					n++
					ref := item(t, n)
					s := f.running(ref)
					ev := how(ref)
					ev.KillTmux = tt.killTmux
					f.publish(ev)
					r := f.state(ref, record.StateClosed)
					if got := alive(s.PanePID); got != tt.agentLives {
						t.Errorf("%s, %s: the agent lives: %t, want %t", h, way, got, tt.agentLives)
					}
					if _, got := screen(t, s); got != tt.screenIs {
						t.Errorf("%s, %s: the screen is there: %t, want %t", h, way, got, tt.screenIs)
					}
					if e := r.End; e == nil || e.PanePID != s.PanePID || e.Retained != tt.screenIs || e.KeptHarness != tt.agentLives || e.Error != "" {
						t.Errorf("%s, %s: recorded end %+v", h, way, e)
					}
					if r.KillTmux {
						t.Errorf("%s, %s: the wish is still recorded", h, way)
					}
					if _, err := os.Stat(s.Cwd); err != nil {
						t.Errorf("%s, %s: the plain directory: %v", h, way, err)
					}
					f.wantLogged(event.SessionEnded, ref, count(tt.ended))
					f.wantLogged(event.SessionRetained, ref, count(tt.screenIs))
					f.wantLogged(event.SessionAutoclosed, ref, count(way == "forge"))
				}
				w.end()
			}
		})
	}
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// rule: CL-14: TERM, the grace, KILL; 0 is at once.
func TestClose_AgentIgnoresTERM(t *testing.T) {
	t.Parallel()
	for _, grace := range []float64{0, 1} {
		t.Run(fmt.Sprint("grace ", grace), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, func(c *config.Config) {
				c.Harnesses["stubborn"] = stubborn
				c.Routing.DefaultHarness = "stubborn"
				c.Routing.Tmux.HarnessKillGraceSeconds = grace
			})
			f.start("w1")
			ref := item(t, 71)
			s := f.running(ref)
			f.publish(closing(ref, 100))
			r := f.state(ref, record.StateClosed)
			if alive(s.PanePID) {
				t.Error("the agent lives")
			}
			if r.End.Killed == 0 || r.End.Survivors != 0 {
				t.Errorf("end %+v: nothing had to be killed", r.End)
			}
			if _, ok := screen(t, s); !ok {
				t.Error("the screen is gone")
			}
			lines := f.wantLogged(event.SessionEnded, ref, 1)
			if len(lines) == 1 && !strings.Contains(raw(lines[0]), `"killed":`) {
				t.Errorf("not told of the KILL: %s", raw(lines[0]))
			}
		})
	}
}

// rule: CL-14: a session that has vanished is success, whatever took it away.
func TestClose_SessionIsGone(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]struct {
		take    func(t *testing.T, s *record.Session)
		missing bool
	}{
		"tmux server killed": {func(t *testing.T, s *record.Session) {
			t.Helper()
			kill(t, s.ServerPID)
			waitfor.Until(t, "the tmux server to be gone", func() bool { return !alive(s.ServerPID) })
		}, true},
		"agent ended":          {func(t *testing.T, s *record.Session) { t.Helper(); kill(t, s.PanePID) }, false},
		"session ended tmux's": {func(t *testing.T, s *record.Session) { t.Helper(); killServer(t, s) }, true},
		"socket removed": {func(t *testing.T, s *record.Session) {
			t.Helper()
			if err := os.Remove(s.TmuxSocket); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.start("w1")
			ref := item(t, 72)
			s := f.running(ref)
			what.take(t, s)
			f.publish(closing(ref, 100))
			r := f.state(ref, record.StateClosed)
			if r.End == nil || r.End.Missing != what.missing || r.End.Error != "" || r.End.Survivors != 0 {
				t.Errorf("end %+v, want missing %t", r.End, what.missing)
			}
			if alive(s.PanePID) {
				t.Error("the agent lives")
			}
		})
	}
}

func killServer(t *testing.T, s *record.Session) {
	t.Helper()
	if err := tmuxtest.On(t, s.TmuxSocket).KillServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitfor.Until(t, "the tmux server to be gone", func() bool { return !alive(s.ServerPID) })
}

// rule: CL-15: a tmux that does not answer counts as one with a live agent, and
// what is recorded of it is ended all the same.
func TestClose_TmuxDoesNotAnswer(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.start("w1")
	ref := item(t, 73)
	s := f.running(ref)
	if err := syscall.Kill(s.ServerPID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(s.ServerPID, syscall.SIGCONT) }()
	f.publish(closing(ref, 100))
	f.state(ref, record.StateClosed)
	if alive(s.PanePID) {
		t.Error("the agent lives")
	}
}

// rule: CL-14: the record is data: a name, a pid or a socket that somebody wrote
// into it leads no signal to what is not ours, and the item closes all the same.
func TestClose_RecordEditedByHand(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(s *record.Session, foreign *record.Session){
		"foreign name": func(s, _ *record.Session) { s.TmuxTarget = "work" },
		"foreign socket": func(s, o *record.Session) {
			s.TmuxSocket, s.ServerPID, s.ServerStart = o.TmuxSocket, o.ServerPID, o.ServerStart
		},
		"pid 0":          func(s, _ *record.Session) { s.PanePID, s.PaneStart = 0, 0 },
		"pid -1":         func(s, _ *record.Session) { s.PanePID, s.PaneStart = -1, 0 },
		"pid of another": func(s, o *record.Session) { s.PanePID = o.PanePID },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			w := f.start("w1")
			victim, ref := item(t, 74), item(t, 75)
			o, s := f.running(victim), f.running(ref)
			w.end()
			e, err := f.reg.Get(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			edit(e.Record.Session, o)
			if _, err := f.reg.Put(t.Context(), e.Record, e.Revision); err != nil {
				t.Fatal(err)
			}
			f.start("w1")
			f.publish(closing(ref, 100))
			f.state(ref, record.StateClosed)
			if !alive(o.PanePID) || !alive(o.ServerPID) {
				t.Error("another item's agent or server was ended")
			}
			c := comment(victim, 1)
			f.publish(c)
			f.want(c, record.Done, "")
			kill(t, s.ServerPID) // may be left: nothing proves any more that it is the item's
		})
	}
}

// Scenario 15: a paused item closes like any other.
func TestClose_Paused(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.start("w1")
	ref := item(t, 76)
	s := f.running(ref)
	f.publish(asked(event.Pause, ref, 10))
	f.state(ref, record.StatePaused)
	c := comment(ref, 1)
	f.publish(c, closing(ref, 100))
	f.state(ref, record.StateClosed)
	f.want(c, record.Dropped, decide.ClosedItem)
	if alive(s.PanePID) {
		t.Error("the agent lives")
	}
	f.wantLogged(event.SessionAutoclosed, ref, 1)
	f.wantReceived(ref, label(ref, 0))
}

// A close does not wait behind an event that cannot be delivered.
func TestClose_WhileWithheld(t *testing.T) {
	t.Parallel()
	f := newFleet(t, func(c *config.Config) {
		c.Harnesses["asks"] = config.Harness{Command: append(c.Harnesses["demo"].Command, "--ask"), Receipt: "file"}
		c.Routing.DefaultHarness = "asks"
	})
	f.start("w1")
	ref := item(t, 77)
	s := f.running(ref)
	c := comment(ref, 1)
	f.publish(c)
	waitfor.Until(t, "the comment to be withheld", func() bool { return len(f.logged(event.DispatchWithheld, ref)) > 0 })
	f.publish(closing(ref, 100))
	f.state(ref, record.StateClosed)
	o := f.want(c, record.Dropped, decide.ClosedItem)
	if o.Attempts != 0 {
		t.Errorf("the withheld comment was charged: %d attempts", o.Attempts)
	}
	if alive(s.PanePID) {
		t.Error("the agent lives")
	}
}

// Scenario 23, to the letter: the program of a closed spawn has ended before the
// event is done with.
func TestClose_DuringSpawnEndsFirst(t *testing.T) {
	t.Parallel()
	f := newFleet(t, func(c *config.Config) {
		h := stubborn // takes its time to end, too
		h.Receipt = "file"
		c.Harnesses["mute"] = h
		c.Routing.DefaultHarness = "mute"
	})
	f.start("w1")
	ref := item(t, 78)
	l := label(ref, 0)
	f.publish(l)
	s := waitfor.Value(t, "the agent to run", func() (*record.Session, bool) {
		s := f.record(ref).Session
		return s, s != nil
	})
	f.publish(closing(ref, 100))
	f.want(l, record.Dropped, decide.ClosedItem)
	if alive(s.PanePID) {
		t.Error("the event is done with, and the agent lives")
	}
	f.state(ref, record.StateClosed)
}

// gated is an agent that gives each receipt only while the gate is open.
func gated(t *testing.T) (h config.Harness, open, shut func()) {
	t.Helper()
	gate := filepath.Join(t.TempDir(), "gate")
	script := `take() {
  id=$(printf '%s\n' "$1" | sed -n 's/^Loopfleet event \([a-z0-9-]*\): .*/\1/p')
  [ -n "$id" ] || return 0
  while [ ! -e ` + gate + ` ]; do sleep 0.05; done
  echo "$id" >> "$LOOPFLEET_SESSION_DIR/receipts"
}
take "$1"
while read -r line; do take "$line"; done`
	open = func() {
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	shut = func() {
		if err := os.Remove(gate); err != nil {
			t.Error(err)
		}
	}
	open()
	return config.Harness{Command: []string{"/bin/sh", "-c", script, "sh"}, Receipt: "file"}, open, shut
}

func (f *fleet) started(e event.Event) {
	f.t.Helper()
	waitfor.Until(f.t, "the try to begin", func() bool {
		for _, l := range f.logged(event.DispatchStarted, e.WorkItem) {
			if l.EventID == e.ID {
				return true
			}
		}
		return false
	})
}

// Scenario 21: a close between the prompt and its outcome wins, and the outcome
// tells that the prompt went in.
func TestClose_DuringDelivery(t *testing.T) {
	t.Parallel()
	h, _, shut := gated(t)
	f := newFleet(t, func(c *config.Config) {
		c.Harnesses["gated"] = h
		c.Routing.DefaultHarness = "gated"
	})
	f.start("w1")
	ref := item(t, 79)
	s := f.running(ref)
	shut()
	c := comment(ref, 1)
	f.publish(c)
	waitfor.Until(t, "the prompt to be on the screen", func() bool {
		text, _ := screen(t, s)
		return strings.Contains(strings.Join(strings.Fields(text), ""), c.ID)
	})
	f.publish(closing(ref, 100))
	f.want(c, record.Dropped, decide.ClosedItem)
	r := f.state(ref, record.StateClosed)
	if alive(s.PanePID) {
		t.Error("the agent lives")
	}
	if r.Started != nil {
		t.Errorf("a start is left in the record: %+v", r.Started)
	}
}

// Scenario 22: a pause between the prompt and its outcome lets it finish, and
// holds the next.
func TestPause_DuringDelivery(t *testing.T) {
	t.Parallel()
	h, open, shut := gated(t)
	f := newFleet(t, func(c *config.Config) {
		c.Harnesses["gated"] = h
		c.Routing.DefaultHarness = "gated"
	})
	f.start("w1")
	ref := item(t, 80)
	f.running(ref)
	shut()
	c1, c2 := comment(ref, 1), comment(ref, 2)
	f.publish(c1)
	f.started(c1)
	p := asked(event.Pause, ref, 10)
	f.publish(p, c2)
	waitfor.Until(t, "the pause to be read", func() bool { return f.record(ref).Want == record.Paused })
	open()
	f.want(c1, record.Done, "")
	f.state(ref, record.StatePaused)
	waitfor.Until(t, "the next to be withheld", func() bool {
		for _, l := range f.logged(event.DispatchWithheld, ref) {
			if l.EventID == c2.ID && strings.Contains(raw(l), decide.PausedItem) {
				return true
			}
		}
		return false
	})
	f.publish(asked(event.Resume, ref, 20))
	if o := f.want(c2, record.Done, ""); o.Attempts != 1 {
		t.Errorf("%d attempts, want 1", o.Attempts)
	}
}

// Scenario 16, as fast as it can be: a reopen right behind its close does not
// save what ran.
//
// rule: CL-08
func TestClose_ReopenedAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.start("w1")
	ref := item(t, 81)
	s := f.running(ref)
	again := label(ref, 200)
	again.Kind, again.Action = event.Reopen, "reopened"
	again.ID = event.NewID(event.Reopen, ref.Host, 1, ref.Number, "reopened", again.At)
	f.publish(closing(ref, 100), again)
	f.want(again, record.Done, "")
	if r := f.state(ref, record.StateActive); r.Incarnation != 2 || r.Session.PanePID == s.PanePID {
		t.Errorf("incarnation %d, agent %d; before it was %d", r.Incarnation, r.Session.PanePID, s.PanePID)
	}
	if alive(s.PanePID) {
		t.Error("the agent from before the close lives")
	}
	f.publish(closing(ref, 300))
	f.state(ref, record.StateClosed)
	f.wantLogged(event.SessionAutoclosed, ref, 2)
	f.wantReceived(ref, label(ref, 0), again)
}

// rule: CL-20: the retained screen of a closed item makes room for its respawn,
// which goes on in the same place.
func TestClose_RespawnsAfterReopen(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.start("w1")
	ref := item(t, 82)
	s := f.running(ref)
	f.publish(closing(ref, 100))
	f.state(ref, record.StateClosed)
	if text, ok := screen(t, s); !ok || !strings.Contains(text, "Loopfleet event") {
		t.Fatalf("no screen was kept: %q", text)
	}
	again := label(ref, 200)
	c := comment(ref, 201)
	f.publish(again, c)
	f.want(again, record.Done, "")
	f.want(c, record.Done, "")
	r := f.state(ref, record.StateActive)
	if r.Incarnation != 2 || r.Session.TmuxTarget != s.TmuxTarget || r.Session.Cwd != s.Cwd || r.End != nil {
		t.Errorf("incarnation %d, %s in %s, end %+v; want 2, %s in %s, none", r.Incarnation, r.Session.TmuxTarget, r.Session.Cwd, r.End, s.TmuxTarget, s.Cwd)
	}
	f.wantLogged(event.SessionRespawned, ref, 1)
	f.wantReceived(ref, label(ref, 0), again, c)
}

// Scenario 17, bug of a neighbour: helpers that went into process groups and
// sessions of their own end with the item, whoever closes it.
func TestClose_WholeTree(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	script := `setsid sh -c 'echo $$ >> ` + pids + `; exec sleep 1000' &
setsid -f sh -c 'echo $$ >> ` + pids + `; exec sleep 1000'
while read -r l; do :; done`
	f := newFleet(t, func(c *config.Config) {
		c.Harnesses["family"] = config.Harness{Command: []string{"/bin/sh", "-c", script, "sh"}, Receipt: "none"}
		c.Routing.DefaultHarness = "family"
	})
	f.start("w1")
	ref := item(t, 93)
	f.running(ref)
	var helpers []string
	waitfor.Until(t, "the helpers to run", func() bool {
		b, err := os.ReadFile(pids)
		helpers = strings.Fields(string(b))
		return err == nil && len(helpers) == 2
	})
	f.publish(asked(event.Stop, ref, 100))
	r := f.state(ref, record.StateClosed)
	for _, h := range helpers {
		if pid, err := strconv.Atoi(h); err != nil || alive(pid) {
			t.Errorf("helper %s lives (%v)", h, err)
		}
	}
	if r.End.Ended < 3 {
		t.Errorf("end %+v: want the agent and both helpers counted", r.End)
	}
}
