package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"loopfleet/pkg/record"
	"loopfleet/pkg/tmux"
)

// State is whether a session lives.
type State string

// States.
const (
	// Live: the program runs.
	Live State = "live"
	// Dead: the program has ended; its screen is still there.
	Dead State = "dead"
	// Missing: the session, or its whole tmux server, is gone.
	Missing State = "missing"
	// Unknown: it cannot be read; it counts as live.
	Unknown State = "unknown"
)

// Status is what Inspect found.
type Status struct {
	State State
	// Exit is the exit status of a dead program, or -1 when a signal ended
	// it or nobody knows.
	Exit int
	// Signal is the number of the signal that ended it, or 0.
	Signal int
	// Attached counts the people who look at the session.
	Attached int
	// Title is what the program set as its title, safe to print.
	Title string
	// Why explains Missing and Unknown.
	Why string
}

// Ended reports whether the program certainly runs no more.
func (s Status) Ended() bool { return s.State == Dead || s.State == Missing }

// String is the status for people: "exit status 1", "signal 9 (killed)",
// "vanished: ...".
func (s Status) String() string {
	switch s.State {
	case Dead:
		switch {
		case s.Signal != 0:
			return fmt.Sprintf("signal %d (%s)", s.Signal, syscall.Signal(s.Signal))
		case s.Exit >= 0:
			return fmt.Sprintf("exit status %d", s.Exit)
		default:
			return "ended, exit status unknown"
		}
	case Missing:
		return "vanished: " + s.Why
	case Unknown:
		return "unknown: " + s.Why
	case Live:
		return string(Live)
	default:
		return string(s.State)
	}
}

// Inspect looks whether the session lives. Missing and Dead are certain;
// whatever cannot be read is Unknown. The error is the context's only.
func (d *Driver) Inspect(ctx context.Context, s record.Session) (Status, error) {
	status, _, err := d.inspect(ctx, s)
	return status, err
}

// Alive looks, at no cost, whether the agent's own process runs. It may be that
// a person has put another in its place; Inspect tells.
func (d *Driver) Alive(s record.Session) bool {
	return tmux.Process{PID: s.PanePID, Start: s.PaneStart}.Alive()
}

func (d *Driver) inspect(ctx context.Context, s record.Session) (Status, *tmux.Server, error) {
	srv, err := d.server(s)
	if err != nil {
		return Status{State: Unknown, Exit: -1, Why: err.Error()}, nil, nil //nolint:nilerr // the status carries it
	}
	panes, err := srv.Panes(ctx, s.TmuxTarget)
	if errors.Is(err, tmux.ErrNoServer) {
		// A server whose socket file was removed is not dead.
		if rerr := d.relisten(ctx, srv, s); rerr == nil {
			panes, err = srv.Panes(ctx, s.TmuxTarget)
		} else if !errors.Is(rerr, tmux.ErrGone) {
			err = rerr
		}
	}
	switch {
	case err == nil:
		return paneStatus(s, panes), srv, nil
	case ctx.Err() != nil:
		return Status{State: Unknown, Exit: -1, Why: context.Cause(ctx).Error()}, srv, context.Cause(ctx)
	case errors.Is(err, tmux.ErrNoServer) && (tmux.Process{PID: s.ServerPID, Start: s.ServerStart}).Alive():
		return Status{State: Unknown, Exit: -1, Why: "its tmux server runs and cannot be reached"}, srv, nil
	case errors.Is(err, tmux.ErrNoServer):
		return Status{State: Missing, Exit: -1, Why: "its tmux server has ended"}, srv, nil
	case errors.Is(err, tmux.ErrNoSession):
		return Status{State: Missing, Exit: -1, Why: "its tmux session was ended"}, srv, nil
	default:
		return Status{State: Unknown, Exit: -1, Why: err.Error()}, srv, nil
	}
}

// relisten makes the session's server listen again; tmux.ErrGone when that very
// process has ended.
func (d *Driver) relisten(ctx context.Context, srv *tmux.Server, s record.Session) error {
	p := tmux.Process{PID: s.ServerPID, Start: s.ServerStart}
	if !p.Alive() {
		return fmt.Errorf("tmux server %d: %w", p.PID, tmux.ErrGone)
	}
	if err := d.makeSocketDir(srv.Socket()); err != nil {
		return err
	}
	if err := srv.RecreateSocket(ctx, p); err != nil {
		return err
	}
	d.cfg.Log.Warn().Str("session", s.TmuxTarget).Msg("the session's socket was gone and is there again")
	return nil
}

// paneStatus judges the agent's pane. Panes that a person has added do not
// count.
func paneStatus(s record.Session, panes []tmux.Pane) Status {
	i := 0
	for i < len(panes) && s.PanePID != 0 && panes[i].PID != s.PanePID {
		i++
	}
	if i == 1 && len(panes) == 1 && panes[0].Dead {
		i = 0 // a dead pane's pid is of no account
	}
	if i >= len(panes) {
		return Status{State: Missing, Exit: -1, Why: "another process runs in its place"}
	}
	p := panes[i]
	st := Status{State: Live, Exit: -1, Attached: p.Attached, Title: tmux.Printable(p.Title)}
	if p.Dead {
		st.State, st.Exit, st.Signal = Dead, p.Status, p.Signal
	}
	return st
}

// Recover proves after a restart of ours that the session is the very one that
// was recorded: the same tmux server and agent process, by pid and start time,
// with the session's token. Only then is it Live. A lost socket is made anew.
func (d *Driver) Recover(ctx context.Context, s record.Session) (Status, error) {
	st, srv, err := d.inspect(ctx, s)
	if err != nil || st.State != Live {
		return st, err
	}
	other := func(why string) (Status, error) { return Status{State: Missing, Exit: -1, Why: why}, nil }
	unknown := func(err error) (Status, error) {
		return Status{State: Unknown, Exit: -1, Why: err.Error()}, nil
	}
	token, err := srv.Hidden(ctx, tokenName)
	if err != nil {
		return unknown(err)
	}
	server, err := srv.ServerProcess(ctx)
	if err != nil {
		return unknown(err)
	}
	switch agent := (tmux.Process{PID: s.PanePID, Start: s.PaneStart}); {
	case token != s.Token:
		return other("the session there is another one")
	case server != tmux.Process{PID: s.ServerPID, Start: s.ServerStart}:
		return other("its tmux server is another one")
	case !agent.Alive():
		// It has ended since the first look, or its pid is another's.
		again, err := d.Inspect(ctx, s)
		if err == nil && again.State == Live {
			return other("another process has its pid")
		}
		return again, err
	}
	return st, nil
}

// Screen returns the last lines of what the session shows, scrollback included,
// safe to print. A vanished session is a *MissingError.
func (d *Driver) Screen(ctx context.Context, s record.Session, lines int) (string, error) {
	st, srv, err := d.inspect(ctx, s)
	if err != nil {
		return "", err
	}
	if st.State == Missing {
		return "", &MissingError{Target: s.TmuxTarget, Status: st}
	}
	if srv == nil {
		return "", fmt.Errorf("look at %s: %s", tmux.Printable(s.TmuxTarget), st)
	}
	lines = max(lines, 1)
	text, err := srv.Capture(ctx, s.TmuxTarget, lines)
	if err != nil {
		return "", err
	}
	rows := strings.Split(strings.TrimRight(text, " \n"), "\n")
	for i, r := range rows {
		rows[i] = tmux.Printable(strings.TrimRight(r, " "))
	}
	return strings.Join(rows[max(0, len(rows)-lines):], "\n") + "\n", nil
}

// AttachCommand is the command line with which a person attaches to the session,
// or nil when the record names none of ours.
func (d *Driver) AttachCommand(s record.Session, readOnly bool) []string {
	srv, err := d.server(s)
	if err != nil {
		return nil
	}
	return srv.AttachArgs(s.TmuxTarget, readOnly)
}
