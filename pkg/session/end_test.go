package session_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"loopfleet/pkg/config"
	"loopfleet/pkg/record"
	"loopfleet/pkg/session"
	"loopfleet/pkg/testutil/tmuxtest"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/tmux"
)

func serverProcess(s record.Session) tmux.Process {
	return tmux.Process{PID: s.ServerPID, Start: s.ServerStart}
}

func agentProcess(s record.Session) tmux.Process {
	return tmux.Process{PID: s.PanePID, Start: s.PaneStart}
}

func (e *env) end(s record.Session, opt session.EndOptions) session.EndReport {
	e.t.Helper()
	rep, err := e.End(e.t.Context(), e.item, s, opt)
	if err != nil {
		e.t.Fatal(err)
	}
	if len(rep.Survivors) > 0 {
		e.t.Errorf("survivors %v", rep.Survivors)
	}
	return rep
}

// rule: CL-13
// rule: CL-22
func TestEnd_KeepsTheScreen(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"demo", "lines"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := setup(t, func(_ *session.Config, h map[string]config.Harness) {
				h["lines"] = sh("echo boot text; read -r l", "none")
			})
			s := e.spawn(e.request(name))
			waitScreen(t, e, s, "boot text")
			rep := e.end(s, e.EndOptions())
			if rep.Missing || rep.SessionKilled || rep.Ended == 0 || rep.Killed > 0 {
				t.Errorf("report %+v", rep)
			}
			if agentProcess(s).Alive() {
				t.Error("the agent is alive")
			}
			waitfor.Until(t, "the pane to be dead", func() bool { return e.inspect(s).State == session.Dead })
			if screen, err := e.Screen(t.Context(), s, 50); err != nil || !strings.Contains(screen, "boot text") {
				t.Errorf("screen %v\n%s", err, screen)
			}
			// Again is a success that finds nothing.
			if rep := e.end(s, e.EndOptions()); rep.Ended != 0 {
				t.Errorf("second report %+v", rep)
			}
		})
	}
}

// rule: CL-13
func TestEnd_Options(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	s := e.spawn(e.request("demo"))
	e.end(s, session.EndOptions{KeepHarness: true})
	if st := e.inspect(s); st.State != session.Live {
		t.Errorf("kept harness: %s", st)
	}
	rep := e.end(s, session.EndOptions{KillSession: true, Grace: time.Second})
	if !rep.SessionKilled || serverProcess(s).Alive() || agentProcess(s).Alive() {
		t.Errorf("report %+v, server alive %v, agent alive %v", rep, serverProcess(s).Alive(), agentProcess(s).Alive())
	}
	if found, err := e.Local(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("still found: %v, %v", found, err)
	}
	// rule: CL-14, a vanished session is success
	if rep := e.end(s, session.EndOptions{KillSession: true}); !rep.Missing {
		t.Errorf("report %+v, want missing", rep)
	}
}

// rule: CL-14
func TestEnd_ReachesWhatLeftTheFamily(t *testing.T) {
	t.Parallel()
	e := setup(t, func(_ *session.Config, h map[string]config.Harness) {
		// A child, one in a process group and session of its own, a daemon
		// whose parent is gone, and one that ignores TERM.
		h["family"] = sh(`
			sleep 600 & echo $! >> pids
			setsid sh -c 'echo $$ >> pids; exec sleep 600' &
			(setsid sh -c 'echo $$ >> pids; exec sleep 600' &)
			setsid sh -c 'trap "" TERM HUP; echo $$ >> pids; while :; do sleep 0.2; done' &
			echo $$ >> pids; while read -r l; do :; done`, "none")
	})
	s := e.spawn(e.request("family"))
	var family []tmux.Process
	for _, l := range lines(t, filepath.Join(s.Cwd, "pids"), 5) {
		pid, err := strconv.Atoi(l)
		if err != nil {
			t.Fatal(err)
		}
		p, err := tmux.Identify(pid)
		if err != nil {
			t.Fatal(err)
		}
		family = append(family, p)
	}
	rep := e.end(s, session.EndOptions{Grace: 300 * time.Millisecond})
	if rep.Killed == 0 || rep.Ended < len(family) {
		t.Errorf("report %+v, want at least %d ended and one killed", rep, len(family))
	}
	for _, p := range family {
		if p.Alive() {
			t.Errorf("process %d is alive", p.PID)
		}
	}
	if !serverProcess(s).Alive() {
		t.Error("the tmux server has ended, and the screen with it")
	}
}

// rule: CL-14
func TestEnd_WithoutGraceKillsAtOnce(t *testing.T) {
	t.Parallel()
	e := setup(t, func(_ *session.Config, h map[string]config.Harness) {
		h["stubborn"] = sh(`trap "" TERM; while :; do sleep 0.2; done`, "none")
	})
	s := e.spawn(e.request("stubborn"))
	start := time.Now()
	rep := e.end(s, session.EndOptions{})
	if rep.Killed == 0 || agentProcess(s).Alive() {
		t.Errorf("report %+v", rep)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %s", d)
	}
}

// rule: CL-14
func TestEnd_GuardsNamesAndPids(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	s := e.spawn(e.request("demo"))
	other := s
	other.TmuxTarget = "my-own-work"
	if _, err := e.End(t.Context(), e.item, other, session.EndOptions{KillSession: true}); !errors.Is(err, tmux.ErrForeign) {
		t.Errorf("error %v, want ErrForeign", err)
	}
	other.TmuxTarget = "loop-somebody-else-1-0000"
	if _, err := e.End(t.Context(), e.item, other, session.EndOptions{KillSession: true}); !errors.Is(err, tmux.ErrForeign) {
		t.Errorf("error %v, want ErrForeign", err)
	}
	// A record with impossible pids reaches nobody: not our group, not init.
	for _, pid := range []int{0, -1, 1, os.Getpid()} {
		bad := record.Session{TmuxTarget: s.TmuxTarget, TmuxSocket: filepath.Join(e.dir, "none"), PanePID: pid}
		item := ref(t, "octo/hello#42")
		d := setup(t, nil)
		if rep, err := d.End(t.Context(), item, bad, session.EndOptions{KillSession: true}); err != nil || !rep.Missing || rep.Ended != 0 {
			t.Errorf("pid %d: %+v, %v", pid, rep, err)
		}
	}
	if st := e.inspect(s); st.State != session.Live {
		t.Errorf("the session is %s", st)
	}
}

// rule: CL-14
func TestEnd_LeavesASessionThatIsNotTheRecordedOne(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	s := e.spawn(e.request("demo"))
	other := s
	other.Token, other.PanePID, other.ServerPID = "another", 0, 0
	other.Dir = t.TempDir()
	srv := tmuxtest.On(t, s.TmuxSocket)
	// The mark still finds the agent, as its directory is the item's; the
	// tmux session, which does not carry the token, stays.
	rep := e.end(other, session.EndOptions{KillSession: true, Grace: time.Second})
	if rep.SessionKilled || !srv.Listening(t.Context()) {
		t.Errorf("report %+v", rep)
	}
}

func TestEnd_WhenTheSocketIsGone(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	s := e.spawn(e.request("demo"))
	if err := os.RemoveAll(filepath.Dir(s.TmuxSocket)); err != nil {
		t.Fatal(err)
	}
	rep := e.end(s, session.EndOptions{KillSession: true, Grace: time.Second})
	if !rep.SessionKilled || serverProcess(s).Alive() || agentProcess(s).Alive() {
		t.Errorf("report %+v", rep)
	}
}
