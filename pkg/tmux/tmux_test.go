package tmux_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"loopfleet/pkg/testutil/tmuxtest"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/tmux"
	"loopfleet/pkg/workitem"
)

const name = "loop-a-1-0000"

func start(t *testing.T, s *tmux.Server, spec tmux.Spec) {
	t.Helper()
	if spec.Name == "" {
		spec.Name = name
	}
	if spec.Dir == "" {
		spec.Dir = "/"
	}
	if spec.Environ == nil {
		spec.Environ = []string{"PATH=/usr/bin:/bin"}
	}
	if err := s.NewSession(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
}

func sh(script string) []string { return []string{"/bin/sh", "-c", script} }

func pane(t *testing.T, s *tmux.Server) tmux.Pane {
	t.Helper()
	panes, err := s.Panes(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if len(panes) != 1 {
		t.Fatalf("%d panes, want 1", len(panes))
	}
	return panes[0]
}

func waitDead(t *testing.T, s *tmux.Server) tmux.Pane {
	t.Helper()
	return waitfor.Value(t, "the program to end", func() (tmux.Pane, bool) {
		p := pane(t, s)
		return p, p.Dead
	})
}

func waitScreen(t *testing.T, s *tmux.Server, session, want string) {
	t.Helper()
	waitfor.Value(t, fmt.Sprintf("%q on the screen", want), func() (string, bool) {
		out, err := s.Capture(t.Context(), session, 0)
		if err != nil {
			t.Fatal(err)
		}
		return out, strings.Contains(out, want)
	})
}

// received waits until file has n lines and returns it.
func received(t *testing.T, file string, n int) string {
	t.Helper()
	return waitfor.Value(t, fmt.Sprintf("%d lines in %s", n, filepath.Base(file)), func() (string, bool) {
		b, _ := os.ReadFile(file) // may not be there yet
		return string(b), strings.Count(string(b), "\n") >= n
	})
}

func TestNewSession_KeepsTheSessionOfAProgramThatExitsAtOnce(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name           string
		argv           []string
		status, signal int
	}{
		{"status", sh("exit 7"), 7, 0},
		{"one word", []string{"/bin/false"}, 1, 0},
		{"signal", sh("kill -9 $$"), -1, 9},
		{"missing", []string{"/nonexistent/agent", "x"}, 1, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := tmuxtest.Server(t)
			start(t, s, tmux.Spec{Argv: tc.argv})
			p := waitDead(t, s)
			if p.Status != tc.status || p.Signal != tc.signal {
				t.Errorf("status %d, signal %d; want %d, %d", p.Status, p.Signal, tc.status, tc.signal)
			}
		})
	}
}

func TestCapture_OutlivesTheProgram(t *testing.T) {
	t.Parallel()
	s := tmuxtest.Server(t)
	start(t, s, tmux.Spec{Argv: sh("seq 100; echo bye; read -r l; exit 0")})
	waitScreen(t, s, name, "bye")
	if err := s.Enter(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	waitDead(t, s)
	screen, err := s.Capture(t.Context(), name, 0)
	if err != nil || !strings.Contains(screen, "bye") || strings.Contains(screen, "\n7\n") {
		t.Errorf("screen %q, %v", screen, err)
	}
	all, err := s.Capture(t.Context(), name, 100)
	if err != nil || !strings.Contains(all, "\n7\n") || !strings.Contains(all, "bye") {
		t.Errorf("with scrollback %q, %v", all, err)
	}
}

func TestNewSession_PassesArgumentsUnchanged(t *testing.T) {
	t.Parallel()
	// bug report 21: a leading dash is no flag, here as an argument.
	args := []string{"--help me", "-bar", "a;", ";", `b\;`, "$(touch pwn)", "#(touch pwn)", "#{pid}", "kill-server ;", "", "é🙂", "x\ny", `"'`, "~", "*"}
	dir := t.TempDir()
	out := filepath.Join(dir, "args")
	s := tmuxtest.Server(t)
	argv := append([]string{"/bin/sh", "-c", `for a; do printf '<%s>' "$a"; done > args; echo >> args; exec cat`, "sh"}, args...)
	start(t, s, tmux.Spec{Argv: argv, Dir: dir, Env: []string{"A=1;"}})
	got := received(t, out, 2) // one argument has a line feed
	if want := "<" + strings.Join(args, "><") + ">\n"; got != want {
		t.Errorf("the program got\n%s, want\n%s", got, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "pwn")); err == nil {
		t.Error("an argument was executed")
	}
}

func TestNewSession_RunsAOneWordProgramWithoutAShell(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "pro$(touch pwn)gram")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho started; exec cat\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := tmuxtest.Server(t)
	start(t, s, tmux.Spec{Argv: []string{program}, Dir: dir})
	waitScreen(t, s, name, "started")
}

func TestNewSession_Environment(t *testing.T) {
	t.Parallel()
	s := tmuxtest.Server(t)
	dir := t.TempDir()
	// bug report 29: a worker inside tmux must not reach that tmux.
	start(t, s, tmux.Spec{
		Argv: sh("env > env; exec cat"), Dir: dir,
		Environ: []string{"PATH=/usr/bin:/bin", "HOME=/h", "TMUX=/tmp/other,1,0", "TMUX_PANE=%9"},
		Env:     []string{"LOOPFLEET_X=y z"},
		Hidden:  map[string]string{"LOOPFLEET_TOKEN": "s3cret"},
	})
	env := "\n" + received(t, filepath.Join(dir, "env"), 8)
	for _, want := range []string{"HOME=/h", "LOOPFLEET_X=y z", "LC_ALL=C.UTF-8", "TMUX=" + s.Socket()} {
		if !strings.Contains(env, "\n"+want) {
			t.Errorf("environment lacks %q:%s", want, env)
		}
	}
	if strings.Contains(env, "s3cret") || strings.Contains(env, "/tmp/other") {
		t.Errorf("environment has what it must not have:%s", env)
	}
	if got, err := s.Hidden(t.Context(), "LOOPFLEET_TOKEN"); err != nil || got != "s3cret" {
		t.Errorf("Hidden = %q, %v", got, err)
	}
	if got, err := s.Hidden(t.Context(), "NOPE"); err != nil || got != "" {
		t.Errorf("Hidden of nothing = %q, %v", got, err)
	}
}

func TestNewSession_RefusesWhatTmuxWouldInterpret(t *testing.T) {
	t.Parallel()
	ok := tmux.Spec{Name: name, Argv: []string{"/bin/cat"}, Dir: "/"}
	for label, edit := range map[string]func(*tmux.Spec){
		"another's name":   func(s *tmux.Spec) { s.Name = "work" },
		"command in name":  func(s *tmux.Spec) { s.Name = "loop-#(touch f)" },
		"dot in name":      func(s *tmux.Spec) { s.Name = "loop-next.js-1" },
		"colon in name":    func(s *tmux.Spec) { s.Name = "loop-a:b" },
		"command in dir":   func(s *tmux.Spec) { s.Dir = "/tmp/#(touch f)" },
		"relative dir":     func(s *tmux.Spec) { s.Dir = "x" },
		"relative program": func(s *tmux.Spec) { s.Argv = []string{"cat"} },
		"assignment":       func(s *tmux.Spec) { s.Argv = []string{"/bin/a=b"} },
		"no program":       func(s *tmux.Spec) { s.Argv = nil },
		"zero byte":        func(s *tmux.Spec) { s.Argv = []string{"/bin/cat", "a\x00b"} },
		"bad variable":     func(s *tmux.Spec) { s.Env = []string{"A B=1"} },
		"too long":         func(s *tmux.Spec) { s.Argv = []string{"/bin/cat", strings.Repeat("x", 16<<10)} },
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			s := tmuxtest.Server(t)
			spec := ok
			edit(&spec)
			if err := s.NewSession(t.Context(), spec); !errors.Is(err, tmux.ErrInvalid) {
				t.Errorf("error %v, want ErrInvalid", err)
			}
			if s.Listening(t.Context()) {
				t.Error("a server was started")
			}
		})
	}
}

func TestNew_RefusesASocketPathTooLong(t *testing.T) {
	t.Parallel()
	long := "/" + strings.Repeat("x", tmux.MaxSocketPath)
	if _, err := tmux.New(tmux.Config{Socket: long}); !errors.Is(err, tmux.ErrInvalid) {
		t.Errorf("error %v, want ErrInvalid", err)
	}
	if _, err := tmux.New(tmux.Config{Socket: "relative"}); !errors.Is(err, tmux.ErrInvalid) {
		t.Errorf("error %v, want ErrInvalid", err)
	}
}

// bug report 25: tmux rewrites names; ours survive as they are.
func TestNames_SurviveTmux(t *testing.T) {
	t.Parallel()
	s := tmuxtest.Server(t)
	for _, item := range []string{"vercel/next.js#1", "a/b_c#22", "github:git.example.com:8443/o/r.r.r#3", "o/日本#4"} {
		ref, err := workitem.Parse(item)
		if err != nil {
			t.Fatal(err)
		}
		start(t, s, tmux.Spec{Name: ref.TmuxName(), Argv: []string{"/bin/cat"}})
		if ok, err := s.Has(t.Context(), ref.TmuxName()); !ok || err != nil {
			t.Errorf("%s: session %s not found under its name: %v", item, ref.TmuxName(), err)
		}
	}
}

// bug report 24: a prefix of a sibling's name is not its name.
func TestExactNames_SpareASibling(t *testing.T) {
	t.Parallel()
	s := tmuxtest.Server(t)
	const sibling = name + "0"
	start(t, s, tmux.Spec{Name: sibling, Argv: []string{"/bin/cat"}})
	ctx := t.Context()
	for what, err := range map[string]error{
		"kill":  s.KillSession(ctx, name),
		"paste": s.Paste(ctx, name, "hello"),
		"enter": s.Enter(ctx, name),
		"set":   s.SetRemainOnExit(ctx, name),
	} {
		if !errors.Is(err, tmux.ErrNoSession) {
			t.Errorf("%s: error %v, want ErrNoSession", what, err)
		}
	}
	if _, err := s.Panes(ctx, name); !errors.Is(err, tmux.ErrNoSession) {
		t.Errorf("panes: error %v, want ErrNoSession", err)
	}
	if out, err := s.Capture(ctx, sibling, 0); err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("the sibling's screen: %q, %v", out, err)
	}
}

func TestDestructive_RefuseOtherNames(t *testing.T) {
	t.Parallel()
	s := tmuxtest.Server(t)
	ctx := t.Context()
	for what, err := range map[string]error{
		"kill": s.KillSession(ctx, "work"), "paste": s.Paste(ctx, "work", "x"), "enter": s.Enter(ctx, "work"),
	} {
		if !errors.Is(err, tmux.ErrForeign) {
			t.Errorf("%s: error %v, want ErrForeign", what, err)
		}
	}
}

func TestErrors_NoServer(t *testing.T) {
	t.Parallel()
	s := tmuxtest.Server(t)
	ctx := t.Context()
	_, panesErr := s.Panes(ctx, name)
	_, procErr := s.ServerProcess(ctx)
	for what, err := range map[string]error{
		"panes": panesErr, "process": procErr, "paste": s.Paste(ctx, name, "x"), "kill": s.KillServer(ctx),
	} {
		if !errors.Is(err, tmux.ErrNoServer) {
			t.Errorf("%s: error %v, want ErrNoServer", what, err)
		}
	}
	if ok, err := s.Has(ctx, name); ok || err != nil {
		t.Errorf("Has = %v, %v", ok, err)
	}
}

func TestCancelledCall_SaysNothingOfTheSession(t *testing.T) {
	t.Parallel()
	s := tmuxtest.Server(t)
	start(t, s, tmux.Spec{Argv: []string{"/bin/cat"}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Panes(ctx, name)
	if !errors.Is(err, context.Canceled) || errors.Is(err, tmux.ErrNoSession) || errors.Is(err, tmux.ErrNoServer) {
		t.Errorf("error %v, want the context's", err)
	}
}

// bug report 27: pasting into a dead pane crashes tmux 3.3a, and its siblings.
func TestPaste_IntoADeadPaneSparesTheServer(t *testing.T) {
	t.Parallel()
	s := tmuxtest.Server(t)
	start(t, s, tmux.Spec{Argv: sh("exit 1")})
	start(t, s, tmux.Spec{Name: "loop-sibling", Argv: []string{"/bin/cat"}})
	waitDead(t, s)
	if err := s.Paste(t.Context(), name, "x"); !errors.Is(err, tmux.ErrDead) {
		t.Errorf("paste: error %v, want ErrDead", err)
	}
	if err := s.Enter(t.Context(), name); !errors.Is(err, tmux.ErrDead) {
		t.Errorf("enter: error %v, want ErrDead", err)
	}
	if ok, err := s.Has(t.Context(), "loop-sibling"); !ok || err != nil {
		t.Errorf("the sibling is gone: %v", err)
	}
}

// bug report 27, racing: the program ends while we paste.
func TestPaste_RacingWithTheEndSparesTheServer(t *testing.T) {
	t.Parallel()
	for range 20 {
		s := tmuxtest.Server(t)
		start(t, s, tmux.Spec{Argv: sh("exit 0")})
		if err := s.Paste(t.Context(), name, "x"); err != nil && !errors.Is(err, tmux.ErrDead) {
			t.Fatalf("error %v, want none or ErrDead", err)
		}
		if !s.Listening(t.Context()) {
			t.Fatal("the server has crashed")
		}
	}
}

// bug report 21: a leading dash is no flag, here as a prompt.
func TestPaste_IsVerbatim(t *testing.T) {
	t.Parallel()
	for i, text := range []string{"--help me", "-t", "!ls", "a;", ";", `\`, "é🙂", "#{pid} #(touch x) $HOME `id`", strings.Repeat("x", 3000)} {
		t.Run(fmt.Sprintf("case %d", i), func(t *testing.T) {
			t.Parallel()
			s := tmuxtest.Server(t)
			dir := t.TempDir()
			start(t, s, tmux.Spec{Argv: sh("stty -echo; echo ready; exec cat > got"), Dir: dir})
			waitScreen(t, s, name, "ready")
			if err := s.Paste(t.Context(), name, text); err != nil {
				t.Fatal(err)
			}
			if err := s.Enter(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			if got := received(t, filepath.Join(dir, "got"), 1); got != text+"\n" {
				t.Errorf("got %q, want %q", got, text)
			}
		})
	}
}

// bug report 19: an escape could end the frame of a bracketed paste.
func TestPaste_RefusesEscapes(t *testing.T) {
	t.Parallel()
	s := tmuxtest.Server(t)
	if err := s.Paste(t.Context(), name, "a\x1b[201~\rtouch pwn"); !errors.Is(err, tmux.ErrInvalid) {
		t.Errorf("error %v, want ErrInvalid", err)
	}
}

// bug report 18: copy mode swallows keys; a submit must get through it.
func TestEnter_LeavesCopyMode(t *testing.T) {
	t.Parallel()
	s := tmuxtest.Server(t)
	dir := t.TempDir()
	ctx := t.Context()
	start(t, s, tmux.Spec{Argv: sh("stty -echo; echo ready; exec cat > got"), Dir: dir})
	waitScreen(t, s, name, "ready")
	for _, step := range []func() error{
		func() error { return s.CopyMode(ctx, name) },
		func() error { return s.Paste(ctx, name, "once") },
		func() error { return s.CopyMode(ctx, name) },
		func() error { return s.Enter(ctx, name) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if got := received(t, filepath.Join(dir, "got"), 1); got != "once\n" {
		t.Errorf("got %q", got)
	}
	if pane(t, s).InMode {
		t.Error("still in copy mode")
	}
}

// bug report 23: parallel sends through one server never swap their texts.
func TestPaste_ParallelSendsNeverCross(t *testing.T) {
	t.Parallel()
	s := tmuxtest.Server(t)
	const panes, sends = 4, 5
	dir := t.TempDir()
	var wg sync.WaitGroup
	for p := range panes {
		n := fmt.Sprintf("loop-p-%d", p)
		start(t, s, tmux.Spec{Name: n, Argv: sh(fmt.Sprintf("stty -echo; echo ready; exec cat > got%d", p)), Dir: dir})
		waitScreen(t, s, n, "ready")
	}
	for p := range panes {
		wg.Go(func() {
			n := fmt.Sprintf("loop-p-%d", p)
			for i := range sends {
				if err := errors.Join(s.Paste(t.Context(), n, fmt.Sprintf("pane %d send %d", p, i)), s.Enter(t.Context(), n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for p := range panes {
		var want strings.Builder
		for i := range sends {
			fmt.Fprintf(&want, "pane %d send %d\n", p, i)
		}
		if got := received(t, filepath.Join(dir, fmt.Sprintf("got%d", p)), sends); got != want.String() {
			t.Errorf("pane %d got %q", p, got)
		}
	}
}

// bug report 30: without a locale, tmux turns a spinner into underscores.
func TestTitle_KeepsMoreThanASCII(t *testing.T) {
	t.Parallel()
	s := tmuxtest.Server(t)
	start(t, s, tmux.Spec{Argv: sh(`printf '\033]2;⠋ working | é\033\\⠋'; exec cat`)})
	got := waitfor.Value(t, "the title", func() (string, bool) {
		p := pane(t, s)
		return p.Title, strings.Contains(p.Title, "working")
	})
	if got != "⠋ working | é" {
		t.Errorf("title %q", got)
	}
	waitScreen(t, s, name, "⠋")
}

func TestSize(t *testing.T) {
	t.Parallel()
	s := tmuxtest.Server(t)
	start(t, s, tmux.Spec{Argv: sh("stty size; exec cat")})
	waitScreen(t, s, name, fmt.Sprintf("%d %d", tmux.Rows, tmux.Columns))
}

func TestRecreateSocket(t *testing.T) {
	t.Parallel()
	s := tmuxtest.Server(t)
	ctx := t.Context()
	start(t, s, tmux.Spec{Argv: []string{"/bin/cat"}})
	server, err := s.ServerProcess(ctx)
	if err != nil {
		t.Fatal(err)
	}
	before := pane(t, s)
	if err := os.Remove(s.Socket()); err != nil {
		t.Fatal(err)
	}
	if s.Listening(ctx) {
		t.Fatal("still listening")
	}
	if err := s.RecreateSocket(ctx, server); err != nil {
		t.Fatal(err)
	}
	if got := pane(t, s); got.PID != before.PID || got.Dead {
		t.Errorf("pane %+v, want %+v", got, before)
	}
	if err := s.KillServer(ctx); err != nil {
		t.Fatal(err)
	}
	waitfor.Until(t, "the server to end", func() bool { return !server.Alive() })
	if err := s.RecreateSocket(ctx, server); !errors.Is(err, tmux.ErrGone) {
		t.Errorf("error %v, want ErrGone", err)
	}
}

func TestKillServer_RefusesToEndOtherPeoplesSessions(t *testing.T) {
	t.Parallel()
	s := tmuxtest.Server(t)
	start(t, s, tmux.Spec{Argv: []string{"/bin/cat"}})
	// Somebody renames the session, or starts one of their own beside it.
	tmuxtest.Command(t, s, "rename-session", "-t", "="+name, "mine")
	if err := s.KillServer(t.Context()); !errors.Is(err, tmux.ErrForeign) {
		t.Errorf("error %v, want ErrForeign", err)
	}
	if !s.Listening(t.Context()) {
		t.Error("the server has ended")
	}
	tmuxtest.Command(t, s, "kill-server")
}

func TestProcess_GuardsPids(t *testing.T) {
	t.Parallel()
	for _, pid := range []int{0, -1, 1} {
		p := tmux.Process{PID: pid}
		if err := p.Signal(syscall.Signal(0)); !errors.Is(err, tmux.ErrInvalid) {
			t.Errorf("signal %d: error %v, want ErrInvalid", pid, err)
		}
		if p.Alive() {
			t.Errorf("process %d counts as alive", pid)
		}
	}
	me, err := tmux.Identify(os.Getpid())
	if err != nil || !me.Alive() {
		t.Fatalf("we are not alive: %v", err)
	}
	other := tmux.Process{PID: me.PID, Start: me.Start + 1}
	if err := other.Signal(syscall.SIGTERM); !errors.Is(err, tmux.ErrGone) {
		t.Errorf("error %v, want ErrGone: the pid belongs to another process", err)
	}
}

func TestTree_FindsWhatLeftTheFamily(t *testing.T) {
	t.Parallel()
	s := tmuxtest.Server(t)
	dir := t.TempDir()
	mark := "LOOPFLEET_SESSION_DIR=" + dir
	// A child, a child in a session of its own, and a daemon whose parent is gone.
	start(t, s, tmux.Spec{
		Dir: dir, Env: []string{mark},
		Argv: sh(`sleep 600 & echo $! >> pids; setsid sh -c 'echo $$ >> pids; exec sleep 600' & (setsid sh -c 'echo $$ >> pids; exec sleep 600' &) ; echo $$ >> pids; exec sleep 600`),
	})
	want := map[int]bool{}
	for line := range strings.Lines(received(t, filepath.Join(dir, "pids"), 4)) {
		var pid int
		if _, err := fmt.Sscan(line, &pid); err != nil {
			t.Fatal(err)
		}
		want[pid] = true
	}
	root, err := tmux.Identify(pane(t, s).PID)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := tmux.Tree(root, mark)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range tree {
		delete(want, p.PID)
		t.Cleanup(func() { tmuxtest.KillProcess(context.WithoutCancel(t.Context()), t, p) })
	}
	if len(want) > 0 {
		t.Errorf("not found: %v in %v", want, tree)
	}
	server, err := s.ServerProcess(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range tree {
		if p == server {
			t.Error("the tmux server counts as part of the tree: ending it would lose the screen")
		}
	}
	root.Start++
	if tree, err := tmux.Tree(root, ""); err != nil || len(tree) != 0 {
		t.Errorf("a pid that changed hands has relatives: %v, %v", tree, err)
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain é 🙂\n":    "plain é 🙂\n",
		"\x1b[31m":       `\x1b[31m`,
		"a\rb\tc":        `a\rb\tc`,
		"\u202eevil":     `\u202eevil`,
		"\u200bx":        `\u200bx`,
		"\xffx":          `\xffx`,
		"\u009b31m":      `\u009b31m`,
		"\ufffd":         "\ufffd",
		"back\\slash %s": "back\\slash %s",
	} {
		if got := tmux.Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
}
