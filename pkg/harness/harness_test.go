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
