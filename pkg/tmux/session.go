package tmux

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Spec is a session to start.
type Spec struct {
	// Name is the session's name; ValidName, and without dots, which tmux
	// rewrites.
	Name string
	// Argv is the program, as an absolute path, and its arguments. It is
	// executed as it is, never by a shell.
	Argv []string
	// Dir is the absolute directory to start in. It must exist (tmux starts
	// in another one otherwise) and hold no '#', which tmux would expand.
	Dir string
	// Environ is the whole environment that the server, when this call
	// starts it, and the program inherit.
	Environ []string
	// Env is added for the program alone; the server's own process does not
	// carry it.
	Env []string
	// Hidden is stored in the server before the program starts, for Hidden
	// to read. The program does not inherit it. It is no place for secrets:
	// the process list shows it.
	Hidden map[string]string
}

// Size of every screen. A person who attaches does not change it.
const (
	Columns = 200
	Rows    = 50
	// historyLimit bounds the scrollback, in lines: about 5 MB of memory
	// when full.
	historyLimit = 5000
)

var (
	newNamePattern = regexp.MustCompile(`^loop-[A-Za-z0-9_-]+$`)
	envNamePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// NewSession starts the server when need be, and in it a session that runs
// spec.Argv. It returns when the program has been forked: a program that is
// missing or exits at once is a session with a dead pane, not an error. The
// screen of a program that ends is kept; what it printed in its very last moment
// may be missing from it.
func (s *Server) NewSession(ctx context.Context, spec Spec) error {
	if err := spec.check(); err != nil {
		return fmt.Errorf("start session %q: %w", spec.Name, err)
	}
	args := []string{"start-server"}
	for k, v := range spec.Hidden {
		args = append(args, ";", "set-environment", "-gh", k, protect(v))
	}
	// Options that the session needs from its first moment come before it:
	// a second client would be too late for a program that exits at once.
	args = append(
		args,
		";", "set-option", "-g", "remain-on-exit", "on",
		";", "set-option", "-g", "remain-on-exit-format", "",
		";", "set-option", "-g", "history-limit", strconv.Itoa(historyLimit),
		";", "set-option", "-g", "default-terminal", "screen-256color",
		";", "set-option", "-g", "status", "off",
		";", "new-session", "-d", "-s", spec.Name, "-c", spec.Dir,
		"-x", strconv.Itoa(Columns), "-y", strconv.Itoa(Rows),
	)
	for _, e := range spec.Env {
		args = append(args, "-e", protect(e))
	}
	args = append(args, "--")
	argv := spec.Argv
	if len(argv) == 1 {
		// tmux hands a single word to a shell. env executes it in its place.
		argv = []string{"/usr/bin/env", argv[0]}
	}
	for _, a := range argv {
		args = append(args, protect(a))
	}
	// For this window alone: as a global option it crashes tmux 3.3a at the next
	// new-session.
	args = append(args, ";", "set-option", "-w", "-t", "="+spec.Name+":", "window-size", "manual")
	if _, err := s.run(ctx, call{args: args, env: serverEnv(spec.Environ)}); err != nil {
		return fmt.Errorf("start session %s on %s: %w", spec.Name, s.socket, err)
	}
	return nil
}

func (spec Spec) check() error {
	switch {
	case !newNamePattern.MatchString(spec.Name) || !ValidName(spec.Name):
		return fmt.Errorf("%w: the name must match %s", ErrInvalid, newNamePattern)
	case len(spec.Argv) == 0:
		return fmt.Errorf("%w: no program", ErrInvalid)
	case !filepath.IsAbs(spec.Argv[0]) || strings.Contains(spec.Argv[0], "="):
		return fmt.Errorf("%w: program %q must be an absolute path without '='", ErrInvalid, spec.Argv[0])
	case !filepath.IsAbs(spec.Dir):
		return fmt.Errorf("%w: directory %q is not absolute", ErrInvalid, spec.Dir)
	case strings.Contains(spec.Dir, "#"):
		return fmt.Errorf("%w: tmux would expand the '#' in directory %q; choose another state directory", ErrInvalid, spec.Dir)
	}
	for _, e := range spec.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || !envNamePattern.MatchString(name) {
			return fmt.Errorf("%w: %q is no NAME=value", ErrInvalid, name)
		}
	}
	for k := range spec.Hidden {
		if !envNamePattern.MatchString(k) {
			return fmt.Errorf("%w: hidden name %q", ErrInvalid, k)
		}
	}
	for _, a := range append(append([]string{spec.Dir}, spec.Argv...), spec.Env...) {
		if strings.ContainsRune(a, 0) {
			return fmt.Errorf("%w: an argument contains a zero byte", ErrInvalid)
		}
	}
	return nil
}

// protect keeps a final semicolon of an argument, which tmux takes for the end
// of its command.
func protect(arg string) string {
	if before, ok := strings.CutSuffix(arg, ";"); ok {
		return before + `\;`
	}
	return arg
}

// serverEnv is environ without what ties it to another tmux, and with a locale
// that can print more than ASCII when it has none.
func serverEnv(environ []string) []string {
	var out []string
	locale := map[string]string{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		switch name {
		case "TMUX", "TMUX_PANE", "TMUX_TMPDIR", "TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION":
			continue
		case "LC_ALL", "LC_CTYPE", "LANG":
			locale[name] = value
		}
		out = append(out, e)
	}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(locale[name]); v != "" {
			if strings.Contains(v, "utf-8") || strings.Contains(v, "utf8") {
				return out
			}
			break
		}
	}
	return append(out, "LC_ALL=C.UTF-8")
}

// Pane is what tmux says of a session's pane.
type Pane struct {
	// ID is tmux's own name of the pane, as in %0.
	ID string
	// PID is the program's process; it may be gone when Dead.
	PID int
	// Dead says that the program has ended and the screen is kept.
	Dead bool
	// Status is the exit status of a dead program; -1 when it was ended by a
	// signal or when nobody knows.
	Status int
	// Signal is the number of the signal that ended it, or 0.
	Signal int
	// InMode says that the pane is in copy mode: a person scrolls.
	InMode bool
	// Attached counts the clients that look at the session.
	Attached int
	// CursorX and CursorY are the cursor's column and row, from 0.
	CursorX, CursorY int
	// TTY is the path of the program's terminal.
	TTY string
	// Title is what the program set as its title; from a stranger.
	Title string
}

const paneFormat = "#{pane_id}|#{pane_pid}|#{pane_dead}|#{pane_dead_status}|#{pane_dead_signal}|#{pane_in_mode}|" +
	"#{session_attached}|#{cursor_x}|#{cursor_y}|#{pane_tty}|#{pane_title}"

// Panes lists the panes of the session: one, unless somebody split it.
func (s *Server) Panes(ctx context.Context, name string) ([]Pane, error) {
	panes, err := s.panes(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, p := range panes {
		if p.Dead && p.Status < 0 && p.Signal == 0 {
			// The program is a zombie that tmux has not reaped: a command
			// of its own makes it look.
			if _, err := s.run(ctx, call{args: []string{"run-shell", "true"}}); err == nil {
				return s.panes(ctx, name)
			}
		}
	}
	return panes, nil
}

func (s *Server) panes(ctx context.Context, name string) ([]Pane, error) {
	if !ValidName(name) {
		return nil, fmt.Errorf("list panes of %q: %w", name, ErrForeign)
	}
	out, err := s.run(ctx, call{args: []string{"list-panes", "-s", "-t", "=" + name + ":", "-F", paneFormat}})
	if err != nil {
		return nil, s.explain(ctx, "list panes of", name, err)
	}
	var panes []Pane
	for line := range strings.Lines(out) {
		p, err := parsePane(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("list panes of %s: %w", name, err)
		}
		panes = append(panes, p)
	}
	return panes, nil
}

func parsePane(line string) (Pane, error) {
	const fields = 11
	f := strings.SplitN(line, "|", fields)
	if len(f) != fields {
		return Pane{}, fmt.Errorf("tmux printed %q, want %d fields", Printable(line), fields)
	}
	p := Pane{ID: f[0], Dead: f[2] == "1", Status: -1, InMode: f[5] != "0" && f[5] != "", TTY: f[9], Title: f[10]}
	var err error
	num := func(s string, to *int) {
		if s != "" && err == nil {
			*to, err = strconv.Atoi(s)
		}
	}
	num(f[1], &p.PID)
	if p.Dead {
		num(f[3], &p.Status)
		num(f[4], &p.Signal)
		if p.Signal != 0 {
			p.Status = -1
		}
	}
	num(f[6], &p.Attached)
	num(f[7], &p.CursorX)
	num(f[8], &p.CursorY)
	if err != nil {
		return Pane{}, fmt.Errorf("tmux printed %q: %w", Printable(line), err)
	}
	return p, nil
}

// Capture returns the screen as text, one row per line, preceded by up to
// scrollback lines of what scrolled off it. The text is the program's: hostile,
// see Printable.
func (s *Server) Capture(ctx context.Context, name string, scrollback int) (string, error) {
	if !ValidName(name) {
		return "", fmt.Errorf("capture %q: %w", name, ErrForeign)
	}
	args := []string{"capture-pane", "-p", "-t", "=" + name + ":"}
	if scrollback > 0 {
		args = append(args, "-S", "-"+strconv.Itoa(scrollback))
	}
	out, err := s.run(ctx, call{args: args})
	if err != nil {
		return "", s.explain(ctx, "capture", name, err)
	}
	return out, nil
}

// SetRemainOnExit makes sure that the screen outlives the program.
func (s *Server) SetRemainOnExit(ctx context.Context, name string) error {
	if !ValidName(name) {
		return fmt.Errorf("set remain-on-exit of %q: %w", name, ErrForeign)
	}
	args := []string{"set-option", "-w", "-t", "=" + name + ":", "remain-on-exit", "on"}
	if _, err := s.run(ctx, call{args: args}); err != nil {
		return s.explain(ctx, "set remain-on-exit of", name, err)
	}
	return nil
}

// CopyMode puts the pane into copy mode, as a person does who scrolls.
func (s *Server) CopyMode(ctx context.Context, name string) error {
	if !ValidName(name) {
		return fmt.Errorf("enter copy mode in %q: %w", name, ErrForeign)
	}
	if _, err := s.run(ctx, call{args: []string{"copy-mode", "-t", "=" + name + ":"}}); err != nil {
		return s.explain(ctx, "enter copy mode in", name, err)
	}
	return nil
}

// AttachArgs is the command line, from the program's name on, with which a
// person attaches to the session.
func (s *Server) AttachArgs(name string, readOnly bool) []string {
	// TMUX is dropped: tmux refuses to attach inside another session.
	argv := []string{"env", "-u", "TMUX", "-u", "TMUX_PANE", s.program, "-u", "-S", s.socket, "attach-session", "-t", "=" + name + ":"}
	if readOnly {
		argv = append(argv, "-r")
	}
	return argv
}

func atoiPID(s string) (int, error) {
	pid, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		return 0, fmt.Errorf("read a pid: %w", err)
	}
	if pid <= 1 {
		return 0, errors.New("pid " + strconv.Itoa(pid) + " is nobody's to signal")
	}
	return pid, nil
}

// Screen returns the visible screen and its pane in one look.
func (s *Server) Screen(ctx context.Context, name string) (string, Pane, error) {
	if !ValidName(name) {
		return "", Pane{}, fmt.Errorf("look at %q: %w", name, ErrForeign)
	}
	target := "=" + name + ":"
	out, err := s.run(ctx, call{args: []string{
		"display-message", "-p", "-t", target, paneFormat, ";", "capture-pane", "-p", "-t", target,
	}})
	if err != nil {
		return "", Pane{}, s.explain(ctx, "look at", name, err)
	}
	line, text, _ := strings.Cut(out, "\n")
	p, err := parsePane(line)
	if err != nil {
		return "", Pane{}, fmt.Errorf("look at %s: %w", name, err)
	}
	return text, p, nil
}
