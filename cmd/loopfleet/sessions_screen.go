package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/tmux"
)

func newSessionsPeekCommand(a *app) *cobra.Command {
	var (
		lines  int
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "peek ITEM",
		Short: "Print the screen of a session, without attaching",
		Long: `Print what the agent's screen shows now. It works on the machine that hosts the
session; on another one it says which. A session that has ended keeps its screen
until it is cleaned up.`,
		Example: `  loopfleet sessions peek octo/hello#42
  loopfleet sessions peek octo/hello#42 --lines 200`,
		Args:              exactly("ITEM"),
		ValidArgsFunction: a.completeItem,
		RunE: func(cmd *cobra.Command, args []string) error {
			if lines < 0 {
				return usagef(cmd, "--lines %d: it cannot be negative", lines)
			}
			s, host, err := a.session(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			screen, err := a.screen(cmd.Context(), s, host, lines)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(peeked{
					WorkItem: s.WorkItem.String(), State: s.State, Reason: s.Reason,
					TmuxTarget: s.TmuxTarget, Screen: screen,
				})
			}
			return a.print(tmux.Printable(screen))
		},
	}
	cmd.Flags().IntVar(&lines, "lines", 0, "print the last `N` lines, also those that scrolled off (default: the screen)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// peeked is the JSON of `sessions peek`.
type peeked struct {
	WorkItem   string       `json:"work_item"`
	State      record.State `json:"state"`
	Reason     string       `json:"reason"`
	TmuxTarget string       `json:"tmux_target"`
	Screen     string       `json:"screen"`
}

func newSessionsAttachCommand(a *app) *cobra.Command {
	var readOnly bool
	cmd := &cobra.Command{
		Use:   "attach ITEM",
		Short: "Attach this terminal to a session",
		Long: `Attach this terminal to the session's tmux. Detach with Ctrl-b d; the agent goes
on. While you are attached, what you type reaches the agent.

A session that is not active is attached read-only. On a machine that does not
host the session, the command to run there is printed, and the exit status is 1.`,
		Example: `  loopfleet sessions attach octo/hello#42
  loopfleet sessions attach octo/hello#42 --read-only`,
		Args:              exactly("ITEM"),
		ValidArgsFunction: a.completeItem,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, host, err := a.session(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.attach(cmd.Context(), s, host, readOnly)
		},
	}
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "look, and let nothing you type reach the agent")
	return cmd
}

// session finds the item's session and the name of the host that it runs on;
// the name is empty when nobody knows. No connection is left open.
func (a *app) session(ctx context.Context, arg string) (s seen, host string, err error) {
	named, err := parseItem(arg)
	if err != nil {
		return seen{}, "", err
	}
	err = a.withRegistry(ctx, func(ctx context.Context, f *fleet, reg *registry.Registry) error {
		if s, err = f.find(ctx, reg, named); err != nil {
			return err
		}
		if s.rec.Session == nil {
			state := either(string(s.State), "never asked for")
			if s.Reason != "" {
				state += " (" + s.Reason + ")"
			}
			return &hintError{
				err:  fmt.Errorf("%s: %w: it is %s", s.WorkItem, errNoSession, state),
				hint: "`loopfleet events --work-item '" + short(s.WorkItem) + "'` tells what happened to it",
			}
		}
		w, _, err := reg.Worker(ctx, s.rec.Session.Host)
		host = w.Host
		return err
	})
	return s, host, err
}

var (
	errNoSession = errors.New("it has no session")
	errElsewhere = errors.New("its session is on another machine")
	errVanished  = errors.New("its session has vanished from this machine")
)

// server returns the session's tmux server if it is on this machine, listening
// again in case its socket's file was removed.
func (s *seen) server(ctx context.Context, host string) (*tmux.Server, error) {
	ses := s.rec.Session
	name, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name of this machine: %w", err)
	}
	where := fmt.Sprintf("worker %s", ses.Host)
	if host != "" {
		where += " on host " + host
	}
	process := tmux.Process{PID: ses.ServerPID, Start: ses.ServerStart}
	if host != "" && host != name {
		return nil, fmt.Errorf("%s: %w: %s", s.WorkItem, errElsewhere, where)
	}
	srv, err := tmux.New(tmux.Config{Socket: ses.TmuxSocket})
	if err != nil {
		return nil, err
	}
	switch {
	case srv.Listening(ctx):
		return srv, nil
	case process.Alive():
		return srv, srv.RecreateSocket(ctx, process)
	case host == "":
		return nil, fmt.Errorf("%s: %w: %s", s.WorkItem, errElsewhere, where)
	default:
		return nil, &hintError{
			err:  fmt.Errorf("%s: %w: nothing listens on %s", s.WorkItem, errVanished, ses.TmuxSocket),
			hint: "the next event of the item starts it again",
		}
	}
}

// screen is what the session shows: the screen, or the last lines of it and of
// what scrolled off. It is the agent's text, hostile.
func (a *app) screen(ctx context.Context, s seen, host string, lines int) (string, error) {
	srv, err := s.server(ctx, host)
	if err != nil {
		if errors.Is(err, errElsewhere) {
			err = &hintError{err: err, hint: "run there: loopfleet sessions peek '" + short(s.WorkItem) + "'"}
		}
		return "", err
	}
	text, err := srv.Capture(ctx, s.TmuxTarget, lines)
	if err != nil {
		return "", fmt.Errorf("%s: %w", s.WorkItem, err)
	}
	text = strings.TrimRight(text, "\n ")
	if text == "" {
		return "", nil
	}
	rows := strings.Split(text, "\n")
	if lines > 0 {
		rows = rows[max(0, len(rows)-lines):]
	}
	return strings.Join(rows, "\n") + "\n", nil
}

// attach replaces this process by tmux.
func (a *app) attach(ctx context.Context, s seen, host string, readOnly bool) error {
	if s.State != record.StateActive && !readOnly {
		readOnly = true
		state := string(s.State)
		if s.Reason != "" {
			state += " (" + s.Reason + ")"
		}
		fmt.Fprintf(a.stderr, "%s is %s: attaching read-only\n", s.WorkItem, eventlog.Escape(state))
	}
	srv, err := s.server(ctx, host)
	if errors.Is(err, errElsewhere) {
		if perr := a.print(attachLine(s.rec.Session, readOnly) + "\n"); perr != nil {
			return perr
		}
		return &hintError{err: err, hint: "run the command above on that machine"}
	}
	if err != nil {
		return err
	}
	has, err := srv.Has(ctx, s.TmuxTarget)
	if err != nil {
		return fmt.Errorf("%s: %w", s.WorkItem, err)
	}
	if !has {
		return fmt.Errorf("%s: %w: the tmux server on %s has no session %s", s.WorkItem, errVanished, s.TmuxSocket, s.TmuxTarget)
	}
	argv := srv.AttachArgs(s.TmuxTarget, readOnly)
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return fmt.Errorf("attach to %s: %w", s.WorkItem, err)
	}
	// tmux needs the terminal itself, and nothing is left for us to do.
	if err := syscall.Exec(program, argv, os.Environ()); err != nil { //nolint:gosec // G204: tmux, found on PATH
		return fmt.Errorf("attach to %s: run %s: %w", s.WorkItem, program, err)
	}
	return nil
}

// attachLine is the command that attaches to the session on its own machine,
// quoted for a shell.
func attachLine(ses *record.Session, readOnly bool) string {
	argv := []string{"tmux", "-u", "-S", ses.TmuxSocket, "attach-session", "-t", "=" + ses.TmuxTarget + ":"}
	if readOnly {
		argv = append(argv, "-r")
	}
	for i, arg := range argv {
		argv[i] = shellQuote(arg)
	}
	return "env -u TMUX " + strings.Join(argv, " ")
}

// shellQuote leaves plain words alone. What cannot be typed becomes visible and
// thereby wrong rather than dangerous.
func shellQuote(s string) string {
	s = eventlog.Escape(s)
	if s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_./:", c)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
