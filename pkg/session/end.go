package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"loopfleet/pkg/harness"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/record"
	"loopfleet/pkg/tmux"
	"loopfleet/pkg/workitem"
)

// EndOptions say what is left of a session.
type EndOptions struct {
	// KillSession ends the tmux session too; otherwise its screen stays
	// readable. It always ends the agent.
	KillSession bool
	// KeepHarness leaves the agent running; it has no effect with
	// KillSession.
	KeepHarness bool
	// Grace is how long TERM is given before KILL; 0 sends KILL at once
	// after it.
	Grace time.Duration
}

// EndReport is what End did.
type EndReport struct {
	// Missing says that there was no session any more.
	Missing bool
	// Ended counts the processes that were there and are gone, Killed those
	// of them that had to be killed.
	Ended, Killed int
	// Survivors are processes that could not be ended.
	Survivors []tmux.Process
	// SessionKilled says that the tmux session is gone by our doing.
	SessionKilled bool
}

// EndOptions returns what the configuration wants of a session whose item has
// closed.
func (d *Driver) EndOptions() EndOptions {
	t := d.soft.Load().tmux
	return EndOptions{KillSession: !t.KeepSessionOnClose, KeepHarness: !t.KillHarnessOnClose, Grace: t.KillGrace()}
}

// End ends the session of the item: its agent, everything that the agent has
// started wherever it went, and on request the tmux session. A session or
// process that is gone already is success, one that cannot be signalled is
// logged. It waits for a paste under way to be submitted.
//
// The error is for what could not be done at all: the record names no session of
// this item, ctx ended, the processes could not be listed. Survivors are no
// error.
func (d *Driver) End(ctx context.Context, item workitem.Ref, s record.Session, opt EndOptions) (EndReport, error) {
	fail := func(rep EndReport, err error) (EndReport, error) {
		return rep, fmt.Errorf("end the session of %s: %w", item, err)
	}
	// The record is data, and what follows reaches processes.
	if s.TmuxTarget != item.TmuxName() || !tmux.ValidName(s.TmuxTarget) {
		return fail(EndReport{}, fmt.Errorf("%q: %w: the record should name %s", tmux.Printable(s.TmuxTarget), tmux.ErrForeign, item.TmuxName()))
	}
	s.Dir = d.dir(item)
	unlock, err := d.lock(ctx, s.TmuxSocket)
	if err != nil {
		return fail(EndReport{}, err)
	}
	defer unlock()
	st, srv, err := d.inspect(ctx, s)
	if err != nil {
		return fail(EndReport{}, err)
	}
	rep := EndReport{Missing: st.State == Missing}
	if opt.KeepHarness && !opt.KillSession {
		return rep, nil
	}
	ours, oursErr := d.ours(ctx, srv, s, st)
	if oursErr != nil {
		// The recorded processes are known without tmux.
		d.cfg.Log.Warn().Err(oursErr).Str(logkey.Session, s.TmuxTarget).Msg("tmux does not answer; the recorded processes are ended all the same")
	}
	if ours {
		// Or the screen goes with the last process.
		if err := srv.SetRemainOnExit(ctx, s.TmuxTarget); err != nil && !gone(err) {
			d.cfg.Log.Warn().Err(err).Str(logkey.Session, s.TmuxTarget).Msg("the screen may not outlive the agent")
		}
	}
	roots := []tmux.Process{{PID: s.PanePID, Start: s.PaneStart}}
	if ours {
		roots = append(roots, livePanes(ctx, srv, s.TmuxTarget)...)
	}
	ended, err := d.endTrees(ctx, roots, s.Dir, opt.Grace)
	rep.Ended, rep.Killed, rep.Survivors = len(ended.all)-len(ended.survivors), ended.killed, ended.survivors
	if err != nil {
		return fail(rep, err)
	}
	if !opt.KillSession {
		return rep, nil
	}
	switch server := (tmux.Process{PID: s.ServerPID, Start: s.ServerStart}); {
	case ours:
		if err := d.killServer(ctx, srv); err != nil {
			return fail(rep, err)
		}
		rep.SessionKilled = true
	case oursErr != nil && server.Alive():
		if err := server.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, tmux.ErrGone) {
			return fail(rep, err)
		}
		rep.SessionKilled = true
	}
	if err := removeHandle(s); err != nil {
		d.cfg.Log.Warn().Err(err).Stringer(logkey.WorkItem, item).Msg("the session's handle is left behind")
	}
	return rep, nil
}

// ours reports whether the tmux session under the recorded name is the recorded
// one. A name that another session has is left alone.
func (d *Driver) ours(ctx context.Context, srv *tmux.Server, s record.Session, st Status) (bool, error) {
	if srv == nil {
		return false, nil
	}
	has, err := srv.Has(ctx, s.TmuxTarget)
	if err != nil || !has {
		return false, err
	}
	token, err := srv.Hidden(ctx, tokenName)
	if err != nil {
		return false, err
	}
	if token != s.Token {
		d.cfg.Log.Warn().Str(logkey.Session, s.TmuxTarget).Stringer("status", st).
			Msg("another session has the name of the one to end; it is left alone")
		return false, nil
	}
	return true, nil
}

// livePanes are the processes in the panes of the session that have not ended.
func livePanes(ctx context.Context, srv *tmux.Server, name string) []tmux.Process {
	panes, err := srv.Panes(ctx, name)
	if err != nil {
		return nil // the recorded process and the mark remain
	}
	var out []tmux.Process
	for _, p := range panes {
		if p.Dead || p.PID <= 1 {
			continue
		}
		if id, err := tmux.Identify(p.PID); err == nil {
			out = append(out, id)
		}
	}
	return out
}

// ended is what came of ending processes.
type ended struct {
	all       []tmux.Process
	killed    int
	survivors []tmux.Process
}

const (
	endStep = 50 * time.Millisecond
	// killTime is how long a killed process may take to be gone.
	killTime = 3 * time.Second
)

func (d *Driver) endTree(ctx context.Context, root tmux.Process, dir string, grace time.Duration) (ended, error) {
	return d.endTrees(ctx, []tmux.Process{root}, dir, grace)
}

// endTrees ends the roots with their descendants and everything that was started
// with the session directory dir in its environment: TERM, a wait in steps up to
// grace, KILL. What starts meanwhile is ended too.
func (d *Driver) endTrees(ctx context.Context, roots []tmux.Process, dir string, grace time.Duration) (ended, error) {
	var res ended
	seen := map[tmux.Process]bool{}
	mark := harness.EnvSessionDir + "=" + dir
	collect := func() ([]tmux.Process, error) {
		found := map[tmux.Process]bool{}
		for _, r := range roots {
			tree, err := tmux.Tree(r, mark)
			if err != nil {
				return nil, err
			}
			for _, p := range tree {
				found[p] = true
			}
		}
		// Whoever was seen belongs to it, even when its parents have gone.
		for p := range seen {
			if p.Alive() {
				found[p] = true
			}
		}
		var out []tmux.Process
		for p := range found {
			out = append(out, p)
			if !seen[p] {
				seen[p] = true
				res.all = append(res.all, p)
			}
		}
		slices.SortFunc(out, func(a, b tmux.Process) int { return a.PID - b.PID })
		return out, nil
	}
	signal := func(ps []tmux.Process, sig syscall.Signal) {
		for _, p := range ps {
			if err := p.Signal(sig); err != nil && !errors.Is(err, tmux.ErrGone) {
				d.cfg.Log.Warn().Err(err).Msg("a process of an ended session could not be signalled")
			}
		}
	}
	termed := map[tmux.Process]bool{}
	term := func(ps []tmux.Process) {
		var fresh []tmux.Process
		for _, p := range ps {
			if !termed[p] {
				termed[p] = true
				fresh = append(fresh, p)
			}
		}
		signal(fresh, syscall.SIGTERM)
	}
	left, err := collect()
	if err != nil {
		return res, err
	}
	// Steps, not a deadline: with no grace there is no wait, and a machine that
	// was suspended does not take the grace away.
	for waited := time.Duration(0); len(left) > 0; waited += endStep {
		term(left)
		if waited >= grace {
			break
		}
		if err := sleep(ctx, endStep); err != nil {
			return res, err
		}
		if left, err = collect(); err != nil {
			return res, err
		}
	}
	killed := map[tmux.Process]bool{}
	for waited := time.Duration(0); len(left) > 0 && waited < killTime; waited += endStep {
		signal(left, syscall.SIGKILL)
		for _, p := range left {
			killed[p] = true
		}
		if err := sleep(ctx, endStep); err != nil {
			return res, err
		}
		if left, err = collect(); err != nil {
			return res, err
		}
	}
	res.survivors, res.killed = left, len(killed)-len(left)
	return res, nil
}
