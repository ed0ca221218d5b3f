package session_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"loopfleet/pkg/config"
	"loopfleet/pkg/harness"
	"loopfleet/pkg/session"
	"loopfleet/pkg/testutil/tmuxtest"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/tmux"
)

func TestSpawn_FillsTheHandle(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	req := e.request("demo")
	s := e.spawn(req)
	if s.Token == "" || s.Host != "w1" || s.Harness != "demo" || s.TmuxTarget != e.item.TmuxName() ||
		s.Cwd != e.PlainDir(e.item) || s.Dir != e.sessionDir(e.item) || s.BootEvent != "label-1" || s.StartedAt.IsZero() {
		t.Errorf("session %+v", s)
	}
	if !serverProcess(s).Alive() || !agentProcess(s).Alive() {
		t.Errorf("processes %+v are not alive", s)
	}
	wantTranscript(t, s, req.Boot)
	found, err := e.Local(t.Context())
	if err != nil || len(found) != 1 || found[0].Item != e.item || found[0].Incarnation != 1 || found[0].Session.PanePID != s.PanePID {
		t.Errorf("found %+v, %v", found, err)
	}
	for _, dir := range []string{s.Dir, s.Cwd, filepath.Dir(s.TmuxSocket), filepath.Join(s.Cwd, ".loopfleet/inbox")} {
		if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v; want 0700", dir, fi.Mode(), err)
		}
	}
}

// bug report 29: a worker inside tmux. bug report 30: no locale.
func TestSpawn_Environment(t *testing.T) {
	t.Parallel()
	e := setup(t, func(c *session.Config, h map[string]config.Harness) {
		c.Environ = []string{
			"PATH=/usr/bin:/bin", "HOME=/h", "TMUX=/tmp/other,1,0", "TMUX_PANE=%1",
			"LOOPFLEET_WEBHOOK_SECRET=one", "LOOPFLEET_ANYTHING=two", "GITHUB_TOKEN=three", "OTHER=kept",
		}
		c.SecretNames = []string{"GITHUB_TOKEN"}
		c.PathPrefix = []string{"/opt/shim"}
		h["env"] = sh(`env > env; printf '\033]2;⠋ working\033\\⠋\n'; read -r l`, "none")
	})
	s := e.spawn(e.request("env"))
	env := lines(t, filepath.Join(s.Cwd, "env"), 8)
	for _, want := range []string{
		"HOME=/h", "OTHER=kept", "PATH=/opt/shim:/usr/bin:/bin", "LC_ALL=C.UTF-8", "LOOPFLEET_SESSION_DIR=" + s.Dir,
		"LOOPFLEET_WORK_ITEM=github:octo/hello#42", "LOOPFLEET_INCARNATION=1",
	} {
		if !slices.Contains(env, want) {
			t.Errorf("the environment lacks %s: %q", want, env)
		}
	}
	for _, v := range env {
		for _, bad := range []string{"one", "two", "three", s.Token, "/tmp/other"} {
			if strings.HasSuffix(v, "="+bad) || strings.Contains(v, "/tmp/other") {
				t.Errorf("the environment has %s", v)
			}
		}
	}
	st := waitfor.Value(t, "the title", func() (session.Status, bool) {
		st := e.inspect(s)
		return st, strings.Contains(st.Title, "working")
	})
	if st.Title != "⠋ working" {
		t.Errorf("title %q", st.Title)
	}
}

func TestSpawn_ProgramThatExitsAtOnce(t *testing.T) {
	t.Parallel()
	e := setup(t, func(_ *session.Config, h map[string]config.Harness) {
		h["fails"] = sh(`printf 'not logged in \033[31m\n'; sleep 0.2; exit 3`, "file")
	})
	_, err := e.Spawn(t.Context(), e.request("fails"))
	se, ok := errors.AsType[*session.SpawnError](err)
	if !ok || se.Status.Exit != 3 || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "not logged in") {
		t.Fatalf("error %v, want SpawnError with status 3 and the screen", err)
	}
	// The name is free again.
	s := e.spawn(e.request("demo"))
	if st := e.inspect(s); st.State != session.Live {
		t.Errorf("status %s", st)
	}
}

func TestSpawn_ProgramThatTakesItsPromptAndEnds(t *testing.T) {
	t.Parallel()
	e := setup(t, func(_ *session.Config, h map[string]config.Harness) {
		h["oneshot"] = sh(`echo label-1 >> "$LOOPFLEET_SESSION_DIR/receipts"`, "file")
	})
	s := e.spawn(e.request("oneshot"))
	if got, err := e.AwaitReceipt(t.Context(), s, "label-1"); !got || err != nil {
		t.Errorf("receipt %v, %v", got, err)
	}
}

func TestSpawn_AnOldReceiptIsNoSignOfLife(t *testing.T) {
	t.Parallel()
	e := setup(t, func(_ *session.Config, h map[string]config.Harness) {
		h["fails"] = sh(`exit 3`, "file")
	})
	s := e.spawn(e.request("demo"))
	e.kill(s)
	_, err := e.Spawn(t.Context(), e.request("fails"))
	if _, ok := errors.AsType[*session.SpawnError](err); !ok {
		t.Errorf("error %v, want SpawnError", err)
	}
}

func TestSpawn_Refusals(t *testing.T) {
	t.Parallel()
	e := setup(t, func(_ *session.Config, h map[string]config.Harness) {
		h["missing"] = config.Harness{Command: []string{"/nonexistent/agent"}}
	})
	_, err := e.Spawn(t.Context(), e.request("missing"))
	if nf, ok := errors.AsType[*harness.NotFoundError](err); !ok || nf.Hint == "" {
		t.Errorf("error %v, want NotFoundError", err)
	}
	if _, err = e.Spawn(t.Context(), e.request("unheard-of")); !errors.Is(err, harness.ErrUnknown) {
		t.Errorf("error %v, want ErrUnknown", err)
	}
	req := e.request("demo")
	req.Cwd = filepath.Join(e.dir, "gone")
	if _, err = e.Spawn(t.Context(), req); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want ErrNotExist", err)
	}
	req = e.request("demo")
	req.Boot.EventID = "../../x"
	if _, err = e.Spawn(t.Context(), req); err == nil {
		t.Error("an event id that is a path was accepted")
	}
	if found, err := e.Local(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("found %v, %v", found, err)
	}
}

// rule: RR-06
func TestSpawn_ClearsADeadSession(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	s := e.spawn(e.request("demo"))
	e.kill(s)
	req := e.request("demo")
	req.Incarnation, req.Cwd, req.Boot = 2, s.Cwd, prompt("comment-1", "again\n")
	next := e.spawn(req)
	if next.TmuxTarget != s.TmuxTarget || next.TmuxSocket != s.TmuxSocket || next.Dir != s.Dir || next.Token == s.Token || next.PanePID == s.PanePID {
		t.Errorf("session %+v after %+v", next, s)
	}
	if serverProcess(s).Alive() {
		t.Error("the dead session's server is still there")
	}
	wantTranscript(t, next, prompt("label-1", "boot text\n"), req.Boot)
}

// rule: RR-06
func TestSpawn_AdoptsALiveSessionOfOurs(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	s := e.spawn(e.request("demo"))
	req := e.request("demo")
	req.Incarnation, req.Boot = 2, prompt("comment-1", "x\n")
	res, err := e.Spawn(t.Context(), req)
	if err != nil || !res.Adopted || res.Session.PanePID != s.PanePID || res.Session.Token != s.Token || res.Incarnation != 1 {
		t.Fatalf("%+v, %v; want the first session adopted", res, err)
	}
	wantTranscript(t, s, prompt("label-1", "boot text\n"))
}

// rule: RR-06
func TestSpawn_NeverKillsALiveSessionOfOthers(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(e *env, handle string){
		"no handle":     func(_ *env, handle string) { _ = os.Remove(handle) },
		"broken handle": func(e *env, handle string) { write(e.t, handle, "{") },
		"other session": func(e *env, _ string) {
			srv := tmuxtest.On(e.t, e.socket())
			tmuxtest.Command(e.t, srv, "rename-session", "work")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := setup(t, nil)
			s := e.spawn(e.request("demo"))
			t.Cleanup(func() { tmuxtest.KillProcess(context.WithoutCancel(t.Context()), t, serverProcess(s)) })
			edit(e, filepath.Join(s.Dir, "handle.json"))
			_, err := e.Spawn(t.Context(), e.request("demo"))
			if _, ok := errors.AsType[*session.NameHeldError](err); !ok || !session.Permanent(err) {
				t.Errorf("error %v, want NameHeldError, for good", err)
			}
			if !agentProcess(s).Alive() {
				t.Error("the live session was killed")
			}
		})
	}
}

// socket is where the item's session is.
func (e *env) socket() string {
	e.t.Helper()
	found, err := e.Local(e.t.Context())
	if err != nil || len(found) != 1 {
		e.t.Fatalf("found %v, %v", found, err)
	}
	return found[0].Session.TmuxSocket
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSpawn_EndsWhatTheLastSessionLeftBehind(t *testing.T) {
	t.Parallel()
	e := setup(t, func(_ *session.Config, h map[string]config.Harness) {
		// It survives the hang-up that the end of its terminal sends.
		h["sturdy"] = sh(`trap "" HUP; echo $$ > pid; while :; do sleep 0.2; done`, "none")
	})
	s := e.spawn(e.request("sturdy"))
	lines(t, filepath.Join(s.Cwd, "pid"), 1)
	tmuxtest.KillProcess(t.Context(), t, serverProcess(s))
	waitfor.Until(t, "the session to be missing", func() bool { return e.inspect(s).State == session.Missing })
	if !agentProcess(s).Alive() {
		t.Fatal("the agent has not survived its terminal: the test shows nothing")
	}
	next := e.spawn(e.request("demo"))
	if agentProcess(s).Alive() {
		t.Error("two agents work on one item")
	}
	if st := e.inspect(next); st.State != session.Live {
		t.Errorf("status %s", st)
	}
}

// Acceptance scenario 2: the conversation that was recorded is not known any
// more, so the same event begins a fresh one, and the result says why.
func TestSpawn_ResumesOrBeginsAnew(t *testing.T) {
	dir := t.TempDir()
	// A stand-in for the CLI that knows the one conversation.
	const known, unknown = "8c7f5f0e-0000-4000-8000-000000000001", "8c7f5f0e-0000-4000-8000-000000000002"
	write(t, filepath.Join(dir, "claude"), `#!/bin/sh
echo "$*" >> args
cat .loopfleet/inbox/label-1.md >> texts
[ "$1" = --resume ] && [ "$2" != `+known+` ] && { echo "No conversation found with session ID: $2"; exit 1; }
while read -r l; do echo "$l" >> typed; done
`)
	if err := os.Chmod(filepath.Join(dir, "claude"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/local/bin:/usr/bin:/bin")
	for _, tc := range []struct {
		name, resume, reason string
		starts               int
	}{
		{"known", known, "", 1},
		{"unknown", unknown, "the recorded conversation could not be resumed: exit status 1", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := setup(t, func(c *session.Config, h map[string]config.Harness) {
				h["claude"] = config.Harness{}
				c.ProbeWindow = 3 * time.Second
			})
			req := e.request("claude")
			req.Resume, req.Incarnation = tc.resume, 2
			t.Cleanup(func() { e.clean(e.item) })
			res, err := e.Spawn(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			s, resumed := res.Session, tc.starts == 1
			if res.Resumed != resumed || res.Reason != tc.reason || res.Incarnation != 2 || res.Adopted || (s.HarnessSessionID == tc.resume) != resumed {
				t.Errorf("result %+v", res)
			}
			if st := e.inspect(s); st.State != session.Live {
				t.Errorf("status %s", st)
			}
			// Both starts were for the same event and found its text.
			args := lines(t, filepath.Join(s.Cwd, "args"), tc.starts)
			last := "--session-id " + s.HarnessSessionID
			if resumed {
				last = "--resume " + known
			}
			if len(args) != tc.starts || args[len(args)-1] != last+" "+session.Pointer("label-1") {
				t.Errorf("it was started with %q", args)
			}
			if texts := lines(t, filepath.Join(s.Cwd, "texts"), tc.starts); len(texts) != tc.starts || texts[len(texts)-1] != "boot text" {
				t.Errorf("it read %q", texts)
			}
			// The event is delivered by that: it is not typed in as well.
			if got, err := e.Deliver(t.Context(), s, req.Boot); err != nil || !got.Submitted {
				t.Errorf("%+v, %v", got, err)
			}
			if b, err := os.ReadFile(filepath.Join(s.Cwd, "typed")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it was typed %q, %v", b, err)
			}
			e.deliver(s, prompt("comment-1", "x\n"))
			if got := lines(t, filepath.Join(s.Cwd, "typed"), 1); len(got) != 1 || got[0] != session.Pointer("comment-1") {
				t.Errorf("it was typed %q", got)
			}
		})
	}
}

func TestSpawn_LongStateDirectoriesGetAShortSocket(t *testing.T) {
	t.Parallel()
	e := setup(t, func(c *session.Config, _ map[string]config.Harness) {
		c.Dir = filepath.Join(c.Dir, strings.Repeat("long", 30))
	})
	s := e.spawn(e.request("demo"))
	t.Cleanup(func() {
		tmuxtest.KillProcess(context.WithoutCancel(t.Context()), t, serverProcess(s))
		_ = os.RemoveAll(filepath.Dir(s.TmuxSocket))
	})
	if len(s.TmuxSocket) > tmux.MaxSocketPath {
		t.Errorf("socket %s", s.TmuxSocket)
	}
	if st := e.inspect(s); st.State != session.Live {
		t.Errorf("status %s", st)
	}
}

func TestSpawn_CancelledWhileWatched(t *testing.T) {
	t.Parallel()
	e := setup(t, func(c *session.Config, _ map[string]config.Harness) { c.ProbeWindow = time.Hour })
	t.Cleanup(func() { e.clean(e.item) })
	cause := errors.New("closed")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		_, err := e.Spawn(ctx, e.request("lines"))
		done <- err
	}()
	lines(t, filepath.Join(e.PlainDir(e.item), "got"), 1)
	cancel(cause)
	if err := <-done; !errors.Is(err, cause) {
		t.Errorf("error %v, want the cause", err)
	}
	// What was started is found, and can be ended.
	found, err := e.Local(t.Context())
	if err != nil || len(found) != 1 {
		t.Fatalf("found %v, %v", found, err)
	}
	rep := e.end(found[0].Session, session.EndOptions{KillSession: true, Grace: time.Second})
	if rep.Missing || rep.Ended == 0 {
		t.Errorf("report %+v", rep)
	}
}
