package harness_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"loopfleet/pkg/config"
	"loopfleet/pkg/harness"
	"loopfleet/pkg/harness/demoagent"
)

func program(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func adapter(t *testing.T, cfg map[string]config.Harness, self, name string) harness.Adapter {
	t.Helper()
	set, err := harness.NewSet(cfg, self)
	if err != nil {
		t.Fatal(err)
	}
	a, err := set.Adapter(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var input = harness.StartInput{Prompt: "boot me", Item: "github:o/r#1", Incarnation: 3, SessionDir: "/s", Cwd: "/c"}

func TestCommand_Start(t *testing.T) {
	t.Parallel()
	path := program(t, "agent")
	a := adapter(t, map[string]config.Harness{"mine": {Command: []string{path, "-x"}, Args: []string{"-y"}, Receipt: "file"}}, "", "mine")
	l, err := a.Start(input)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{path, "-x", "-y", "boot me"}; !slices.Equal(l.Argv, want) {
		t.Errorf("argv %q, want %q", l.Argv, want)
	}
	want := []string{"LOOPFLEET_SESSION_DIR=/s", "LOOPFLEET_WORK_ITEM=github:o/r#1", "LOOPFLEET_INCARNATION=3"}
	if !slices.Equal(l.Env, want) {
		t.Errorf("env %q, want %q", l.Env, want)
	}
	if a.Receipt() != harness.ReceiptFile || a.CanResume() || l.SessionID != "" {
		t.Errorf("receipt %s, can resume %v, id %q", a.Receipt(), a.CanResume(), l.SessionID)
	}
}

func TestDemo_IsOurOwnBinaryWhenPathHasNone(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	self := program(t, "some-binary")
	demo := config.Default().Harnesses["demo"]
	a := adapter(t, map[string]config.Harness{"demo": demo}, self, "demo")
	l, err := a.Start(input)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{self, "demo-agent", "boot me"}; !slices.Equal(l.Argv, want) {
		t.Errorf("argv %q, want %q", l.Argv, want)
	}
}

func TestClaude_Argv(t *testing.T) {
	path := program(t, "claude")
	t.Setenv("PATH", filepath.Dir(path))
	a := adapter(t, map[string]config.Harness{"claude": {Args: []string{"--model", "opus"}}}, "", "claude")
	l, err := a.Start(input)
	if err != nil {
		t.Fatal(err)
	}
	if uuid.Validate(l.SessionID) != nil || l.Resumed {
		t.Errorf("id %q, resumed %v", l.SessionID, l.Resumed)
	}
	if want := []string{path, "--session-id", l.SessionID, "--model", "opus", "boot me"}; !slices.Equal(l.Argv, want) {
		t.Errorf("argv %q, want %q", l.Argv, want)
	}
	again := input
	again.Resume = l.SessionID
	r, err := a.Start(again)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{path, "--resume", l.SessionID, "--model", "opus", "boot me"}; !slices.Equal(r.Argv, want) || !r.Resumed || r.SessionID != l.SessionID {
		t.Errorf("resume %+v, want %q", r, want)
	}
	again.Resume = "--dangerously-skip-permissions"
	if r, err = a.Start(again); err != nil || r.Resumed || r.Argv[1] != "--session-id" {
		t.Errorf("a recorded id that is none: %+v, %v", r, err)
	}
}

func TestFind_Missing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	cfg := map[string]config.Harness{
		"claude": {}, "mine": {Command: []string{"no-such-agent"}}, "here": {Command: []string{program(t, "x")}},
	}
	set, err := harness.NewSet(cfg, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"claude", "mine"} {
		a, err := set.Adapter(name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.Start(input)
		nf, ok := errors.AsType[*harness.NotFoundError](err)
		if !ok || nf.Harness != name || nf.Hint == "" {
			t.Errorf("%s: error %v, want NotFoundError with a hint", name, err)
		}
	}
	if got := set.Available(); !slices.Equal(got, []string{"here"}) {
		t.Errorf("available %q, want here", got)
	}
	if _, err := set.Adapter("nope"); !errors.Is(err, harness.ErrUnknown) {
		t.Errorf("error %v, want ErrUnknown", err)
	}
}

func TestNewSet_ReportsAllMistakes(t *testing.T) {
	t.Parallel()
	_, err := harness.NewSet(map[string]config.Harness{"codex": {}, "a": {Command: []string{"x"}, Receipt: "maybe"}, "b": {Command: []string{""}}}, "")
	for _, want := range []string{"harnesses.codex", "harnesses.a.receipt", "harnesses.b.command"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %s", err, want)
		}
	}
}

func TestReceived(t *testing.T) {
	t.Parallel()
	path := program(t, "agent")
	a := adapter(t, map[string]config.Harness{"m": {Command: []string{path}, Receipt: "file"}, "n": {Command: []string{path}}}, "", "m")
	for _, tc := range []struct {
		name, file string
		want       bool
	}{
		{"whole line", "a\nid-1\nb\n", true},
		{"crlf", "id-1\r\n", true},
		{"still being written", "a\nid-1", false},
		{"longer id", "id-10\n", false},
		{"empty", "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "receipts"), []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := a.Received(t.Context(), harness.View{SessionDir: dir}, "id-1")
			if err != nil || got != tc.want {
				t.Errorf("got %v, %v; want %v", got, err, tc.want)
			}
		})
	}
	if got, err := a.Received(t.Context(), harness.View{SessionDir: t.TempDir()}, "id-1"); got || err != nil {
		t.Errorf("no file: %v, %v", got, err)
	}
}

func TestReceived_IsBoundedAndFindsTheNewest(t *testing.T) {
	t.Parallel()
	a := adapter(t, map[string]config.Harness{"m": {Command: []string{program(t, "agent")}, Receipt: "file"}}, "", "m")
	const window = 1 << 20
	fill := func(n int) string { return strings.Repeat("0123456789abcde\n", n/16) }
	for _, tc := range []struct {
		name, file string
		want       bool
	}{
		{"at the end", fill(4*window) + "id-1\n", true},
		{"in the window", fill(4*window) + "id-1\n" + fill(window/2), true},
		{"long ago", "id-1\n" + fill(4*window), false},
		// The window begins within a line whose end looks like a receipt.
		{"cut", "xxxid-1\n" + fill(window-16) + "0123456789\n", false},
		{"one line", strings.Repeat("x", 2*window), false},
		{"just the window", "id-1\n" + fill(window-16) + "0123456789\n", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "receipts"), []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := a.Received(t.Context(), harness.View{SessionDir: dir}, "id-1")
			if err != nil || got != tc.want {
				t.Errorf("got %v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

func TestReceived_TrustsNoOddFile(t *testing.T) {
	t.Parallel()
	a := adapter(t, map[string]config.Harness{"m": {Command: []string{program(t, "agent")}, Receipt: "file"}}, "", "m")
	for name, plant := range map[string]func(path string) error{
		"link":      func(path string) error { return os.Symlink("/etc/passwd", path) },
		"pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		dir := t.TempDir()
		if err := plant(filepath.Join(dir, "receipts")); err != nil {
			t.Fatal(err)
		}
		if got, err := a.Received(t.Context(), harness.View{SessionDir: dir}, "id-1"); got || err == nil {
			t.Errorf("%s: %v, %v; want an error", name, got, err)
		}
	}
}

func TestScreen(t *testing.T) {
	t.Parallel()
	const line = "Loopfleet event a-1: read it."
	long := strings.Repeat("x", 20)
	for _, tc := range []struct {
		name  string
		rows  []string
		x, y  int
		typed bool
		seen  bool
	}{
		{"in a composer", []string{"out", "> " + line, "? help"}, 31, 1, true, true},
		{"boxed", []string{"╭──╮", "│ > " + line + "   │", "╰──╯"}, 33, 1, true, true},
		{"wrapped", []string{long + " Loopfleet event", " a-1: read it."}, 14, 1, true, true},
		{"submitted", []string{"you: " + line, "> "}, 2, 1, false, true},
		{"submitted, cooked", []string{line, ""}, 0, 1, false, true},
		{"behind the cursor", []string{"> " + line}, 0, 0, false, true},
		{"absent", []string{"> "}, 2, 0, false, false},
		{"off the screen", []string{"> "}, 2, 7, false, false},
	} {
		s := harness.Screen{Rows: tc.rows, CursorX: tc.x, CursorY: tc.y}
		if got := strings.HasSuffix(s.Typed(), harness.Squash(line)); got != tc.typed {
			t.Errorf("%s: typed %v, want %v (%q)", tc.name, got, tc.typed, s.Typed())
		}
		if got := s.Contains(line); got != tc.seen {
			t.Errorf("%s: seen %v, want %v", tc.name, got, tc.seen)
		}
	}
}

func TestClaude_Composer(t *testing.T) {
	t.Parallel()
	a := adapter(t, map[string]config.Harness{"claude": {}}, "", "claude")
	s := harness.Screen{Rows: []string{"❯ old prompt", "● answer", "────", "❯ new", "  prompt", "────", "? for shortcuts"}}
	if got, ok := a.Composer(s); !ok || got != "❯newprompt" {
		t.Errorf("composer %q, %v", got, ok)
	}
	if got, ok := a.Composer(harness.Screen{Rows: []string{"starting"}}); ok {
		t.Errorf("composer %q without one", got)
	}
}

// Screens of Claude Code 2.1.197, as tmux captures them.
func TestClaude_Draft(t *testing.T) {
	t.Parallel()
	a := adapter(t, map[string]config.Harness{"claude": {}}, "", "claude")
	const rule = "────────"
	above := []string{"❯ Loopfleet event a-1: read it.", "● Done.", rule}
	long := strings.Repeat("x", 198)
	for _, tc := range []struct {
		name  string
		rows  []string
		x, y  int
		want  string
		known bool
	}{
		{"empty", []string{"❯\u00a0", rule, "  ? for shortcuts"}, 2, 3, "", true},
		{"draft", []string{"❯\u00a0hello world", rule}, 13, 3, "helloworld", true},
		{"cursor moved back", []string{"❯\u00a0hello world", rule}, 5, 3, "helloworld", true},
		{"suggestion", []string{"❯\u00a0Try \"fix the tests\"", rule}, 2, 3, "", true},
		{"white space", []string{"❯\u00a0", rule}, 4, 3, " ", true},
		{"two lines", []string{"❯\u00a0hello", "  second", rule}, 8, 4, "hellosecond", true},
		{"wrapped", []string{"❯\u00a0" + long, "  xx", rule}, 4, 4, long + "xx", true},
		{"shell", []string{"!\u00a0ls", rule, "  ! for shell mode"}, 4, 3, "!ls", true},
		{"empty shell", []string{"!\u00a0", rule}, 2, 3, "!", true},
		{"a dialog has the cursor", []string{"❯\u00a0draft", rule, " Do you want to proceed?", " ❯ 1. Yes"}, 1, 6, "", false},
		{"a dialog instead", []string{" Do you want to proceed?", " ❯ 1. Yes"}, 1, 4, "", false},
		{"no end", []string{"❯\u00a0hello"}, 7, 3, "", false},
	} {
		s := harness.Screen{Rows: append(slices.Clone(above), tc.rows...), CursorX: tc.x, CursorY: tc.y}
		if got, known := a.Draft(s); got != tc.want || known != tc.known {
			t.Errorf("%s: draft %q, %v; want %q, %v", tc.name, got, known, tc.want, tc.known)
		}
	}
	if got, known := a.Draft(harness.Screen{Rows: []string{"❯\u00a0not in its box", rule}, CursorX: 5}); known {
		t.Errorf("draft %q without a composer", got)
	}
}

func TestDemo_DraftAndState(t *testing.T) {
	t.Parallel()
	path := program(t, "any-binary")
	cfg := map[string]config.Harness{"demo": {Command: []string{path, "demo-agent", "--ask"}}, "other": {Command: []string{path, "-x"}}}
	demo, other := adapter(t, cfg, "", "demo"), adapter(t, cfg, "", "other")
	full := strings.Repeat("w", 198)
	for _, tc := range []struct {
		name  string
		rows  []string
		x, y  int
		want  string
		known bool
		state harness.State
	}{
		{"empty", []string{"done a-1", ">"}, 2, 1, "", true, harness.Unknown},
		{"draft", []string{"> quoted text of a prompt", "> hello you"}, 11, 1, "helloyou", true, harness.Unknown},
		{"white space", []string{">"}, 3, 0, " ", true, harness.Unknown},
		{"wrapped", []string{"> " + full, "rest"}, 4, 1, full + "rest", true, harness.Unknown},
		{"printing", []string{"> quoted text of a prompt", ""}, 0, 1, "", false, harness.Unknown},
		{"not there yet", []string{""}, 0, 0, "", false, harness.Unknown},
		{"asks", []string{"done", demoagent.Question}, len(demoagent.Question) + 1, 1, "", false, harness.Dialog},
		{"has asked", []string{demoagent.Question, ">"}, 2, 1, "", true, harness.Unknown},
		{"off the screen", []string{">"}, 2, 9, "", false, harness.Unknown},
	} {
		s := harness.Screen{Rows: tc.rows, CursorX: tc.x, CursorY: tc.y}
		if got, known := demo.Draft(s); got != tc.want || known != tc.known {
			t.Errorf("%s: draft %q, %v; want %q, %v", tc.name, got, known, tc.want, tc.known)
		}
		if got, err := demo.State(t.Context(), harness.View{Screen: s}); got != tc.state || err != nil {
			t.Errorf("%s: state %s, %v; want %s", tc.name, got, err, tc.state)
		}
		if got, known := other.Draft(s); known {
			t.Errorf("%s: draft %q of a program that nobody knows", tc.name, got)
		}
		if got, err := other.State(t.Context(), harness.View{Screen: s}); got != harness.Unknown || err != nil {
			t.Errorf("%s: state %s, %v of a program that nobody knows", tc.name, got, err)
		}
	}
}
