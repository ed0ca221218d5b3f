package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"loopfleet/pkg/event"
	"loopfleet/pkg/harness"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/record"
	"loopfleet/pkg/tmux"
	"loopfleet/pkg/workitem"
)

// tokenName is the hidden variable of the tmux server that holds the session's
// token.
const tokenName = "LOOPFLEET_TOKEN"

// poll is how often files and processes are looked at; a look costs little.
const poll = 20 * time.Millisecond

// Prompt is one event for the agent.
type Prompt struct {
	EventID string
	// Generation is the event's; a higher one is sent although an earlier one
	// was submitted.
	Generation int
	// Text is the framed text that goes into the inbox file.
	Text string
	// Resent says that the agent may have it already; the file tells it so.
	Resent bool
}

// SpawnRequest says what to start.
type SpawnRequest struct {
	Item        workitem.Ref
	Incarnation int
	// Harness is the configured name.
	Harness string
	// Cwd is the absolute directory to start in, which must exist; empty
	// means the item's plain directory, which is made.
	Cwd string
	// Resume is the harness's own id of the conversation to go on with.
	Resume string
	// Boot is the event that the session is started with.
	Boot Prompt
}

// SpawnResult is the session that runs now.
type SpawnResult struct {
	Session record.Session
	// Adopted says that it ran already: nothing was started, and the boot
	// prompt was not sent unless Session.BootEvent is its event.
	Adopted bool
	// Incarnation is the session's: the request's, or the adopted one's.
	Incarnation int
	// Resumed says that it goes on with the conversation asked for.
	Resumed bool
	// Reason is why it does not, when it was asked for.
	Reason string
}

// Spawn starts the item's agent with the boot prompt as its last argument, and
// returns when the program has stayed alive for the probe window or has given
// its receipt. A session of ours that lives is adopted; a dead one is cleared
// away first, with what is left of its processes. A conversation that cannot be
// resumed is begun anew.
//
// Errors: *harness.NotFoundError, harness.ErrUnknown, *NameHeldError,
// *InboxError, *SpawnError. When ctx ends while the program is watched, the
// program is left running, for the next Spawn or End.
func (d *Driver) Spawn(ctx context.Context, req SpawnRequest) (SpawnResult, error) {
	fail := func(err error) (SpawnResult, error) {
		return SpawnResult{}, fmt.Errorf("start the session of %s: %w", req.Item, err)
	}
	if req.Item.Zero() || !event.ValidID(req.Boot.EventID) {
		return fail(fmt.Errorf("work item %q and event id %q may not be empty or malformed", req.Item, tmux.Printable(req.Boot.EventID)))
	}
	adapter, err := d.set.Adapter(req.Harness)
	if err != nil {
		return fail(err)
	}
	dir, socket := d.dir(req.Item), d.socket(req.Item)
	unlock, err := d.lock(ctx, socket)
	if err != nil {
		return fail(err)
	}
	defer unlock()
	for _, err := range []error{privateDir(dir), d.makeSocketDir(socket)} {
		if err != nil {
			return fail(err)
		}
	}
	old, err := d.clear(ctx, req.Item, dir, socket)
	if err != nil {
		return fail(err)
	}
	if old != nil {
		return SpawnResult{Session: old.Session, Adopted: true, Incarnation: old.Incarnation}, nil
	}
	if _, err := adapter.Find(); err != nil {
		return fail(err)
	}
	cwd, err := d.prepareCwd(req)
	if err != nil {
		return fail(err)
	}
	if err := d.stage(ctx, cwd, req.Boot); err != nil {
		return fail(err)
	}
	res, err := d.start(ctx, req, adapter, dir, socket, cwd)
	var spawn *SpawnError
	if req.Resume != "" && errors.As(err, &spawn) {
		// The harness does not know the conversation any more: a fresh one
		// is better than none.
		req.Resume = ""
		reason := "the recorded conversation could not be resumed: " + spawn.Status.String()
		res, err = d.start(ctx, req, adapter, dir, socket, cwd)
		res.Reason = reason
	}
	if err != nil {
		return fail(err)
	}
	return res, nil
}

// prepareCwd returns the directory to start in. tmux would start elsewhere,
// without a word, when it does not exist.
func (d *Driver) prepareCwd(req SpawnRequest) (string, error) {
	plain := d.PlainDir(req.Item)
	if req.Cwd == "" || req.Cwd == plain {
		return plain, privateDir(plain)
	}
	fi, err := os.Stat(req.Cwd)
	if err == nil && !fi.IsDir() {
		err = errors.New("it is no directory")
	}
	if err != nil {
		return "", fmt.Errorf("start in %s: %w", req.Cwd, err)
	}
	return req.Cwd, nil
}

// clear makes room for the item's session: it returns the one of ours that
// lives, ends what is left of one that does not, and refuses to touch anything
// else that lives.
func (d *Driver) clear(ctx context.Context, item workitem.Ref, dir, socket string) (*handle, error) {
	old, err := readHandle(dir)
	if err != nil {
		// Without a handle nothing can be proven ours; what lives is held.
		d.cfg.Log.Warn().Err(err).Stringer(logkey.WorkItem, item).Msg("the session's handle is ignored")
	}
	sockets := []string{socket}
	if old != nil && !slices.Contains(sockets, old.Session.TmuxSocket) {
		sockets = append(sockets, old.Session.TmuxSocket)
	}
	for _, path := range sockets {
		live, err := d.clearSocket(ctx, item, old, path)
		if err != nil {
			return nil, err
		}
		if live {
			old.Session.TmuxSocket = path
			return old, d.complete(ctx, old)
		}
	}
	ended, err := d.endTree(ctx, tmux.Process{}, dir, d.soft.Load().tmux.KillGrace())
	if n := len(ended.all); n > 0 {
		d.cfg.Log.Info().Int("processes", n).Int("survivors", len(ended.survivors)).Stringer(logkey.WorkItem, item).
			Msg("ended what was left of the item's last session")
	}
	return nil, err
}

// clearSocket reports whether the session of old lives on the socket. The server
// there is ended when all it has is the dead session of the item.
func (d *Driver) clearSocket(ctx context.Context, item workitem.Ref, old *handle, socket string) (live bool, err error) {
	name := item.TmuxName()
	srv, err := d.server(record.Session{TmuxTarget: name, TmuxSocket: socket})
	if err != nil {
		return false, err
	}
	held := func(why string) error { return &NameHeldError{Target: name, Socket: socket, Why: why} }
	if old != nil && !srv.Listening(ctx) {
		if err := d.relisten(ctx, srv, old.Session); err != nil && !errors.Is(err, tmux.ErrGone) {
			return false, err
		}
	}
	names, err := srv.Sessions(ctx)
	switch {
	case errors.Is(err, tmux.ErrNoServer):
		return false, nil
	case err != nil:
		return false, err
	case !slices.Contains(names, name):
		return false, held("another session runs on its socket")
	}
	panes, err := srv.Panes(ctx, name)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(panes, func(p tmux.Pane) bool { return !p.Dead }) {
		token, err := srv.Hidden(ctx, tokenName)
		switch {
		case err != nil:
			return false, err
		case old == nil || token != old.Session.Token:
			return false, held("it does not carry the token of the item's session")
		}
		return true, nil
	}
	if err := d.killServer(ctx, srv); errors.Is(err, tmux.ErrForeign) {
		return false, held(err.Error())
	} else if err != nil {
		return false, err
	}
	return false, nil
}

// start starts the program once and watches it.
func (d *Driver) start(ctx context.Context, req SpawnRequest, adapter harness.Adapter, dir, socket, cwd string) (SpawnResult, error) {
	launch, err := adapter.Start(harness.StartInput{
		Prompt: Pointer(req.Boot.EventID), Item: req.Item.String(), Incarnation: req.Incarnation,
		SessionDir: dir, Cwd: cwd, Resume: req.Resume,
	})
	if err != nil {
		return SpawnResult{}, err
	}
	h := handle{Version: handleVersion, Item: req.Item, Incarnation: req.Incarnation, Session: record.Session{
		Token: rand.Text(), Host: d.cfg.Worker, Harness: req.Harness, HarnessSessionID: launch.SessionID,
		TmuxTarget: req.Item.TmuxName(), TmuxSocket: socket, Dir: dir, Cwd: cwd,
		StartedAt: time.Now().UTC(), BootEvent: req.Boot.EventID,
	}}
	s := &h.Session
	srv, err := d.server(*s)
	if err != nil {
		return SpawnResult{}, err
	}
	// An earlier incarnation's receipt says nothing of this program.
	had, err := adapter.Received(ctx, view(*s), req.Boot.EventID)
	if err != nil {
		return SpawnResult{}, err
	}
	// What was submitted to another process is of no use any more.
	if err := forget(dir); err != nil {
		return SpawnResult{}, err
	}
	// Before the program: a crash from here on leaves something to find.
	if err := h.write(); err != nil {
		return SpawnResult{}, err
	}
	err = srv.NewSession(ctx, tmux.Spec{
		Name: s.TmuxTarget, Argv: launch.Argv, Dir: cwd, Environ: d.environ, Env: launch.Env,
		Hidden: map[string]string{tokenName: s.Token},
	})
	if err != nil {
		return SpawnResult{}, err
	}
	if err := d.complete(ctx, &h); err != nil {
		return SpawnResult{}, err
	}
	if err := d.probe(ctx, *s, func() (bool, error) {
		if had {
			return false, nil
		}
		return adapter.Received(ctx, view(*s), req.Boot.EventID)
	}); err != nil {
		return SpawnResult{}, err
	}
	d.remember(*s, req.Boot)
	return SpawnResult{Session: *s, Incarnation: req.Incarnation, Resumed: launch.Resumed}, nil
}

// probe watches a new program for the probe window, or until its receipt. When
// it ends before, its session is ended too, so that nothing dead stays behind.
func (d *Driver) probe(ctx context.Context, s record.Session, received func() (bool, error)) error {
	agent := tmux.Process{PID: s.PanePID, Start: s.PaneStart}
	deadline := time.Now().Add(d.cfg.ProbeWindow)
	for {
		alive := agent.Alive()
		if got, err := received(); err != nil || got {
			return err
		}
		if !alive {
			break
		}
		if time.Now().After(deadline) {
			return nil
		}
		if err := sleep(ctx, poll); err != nil {
			return err
		}
	}
	st, srv, err := d.inspect(ctx, s)
	if err != nil {
		return err
	}
	for range 100 { // tmux may learn of the end a little later than we
		if st.State != Live {
			break
		}
		if err := sleep(ctx, poll); err != nil {
			return err
		}
		if st, srv, err = d.inspect(ctx, s); err != nil {
			return err
		}
	}
	const excerpt = 20
	screen, _ := d.Screen(ctx, s, excerpt) // best effort: the end itself is the news
	if srv != nil {
		if err := d.killServer(ctx, srv); err != nil && !gone(err) {
			d.cfg.Log.Warn().Err(err).Str(logkey.Session, s.TmuxTarget).Msg("the session of a failed start is left behind")
		}
	}
	if _, err := d.endTree(ctx, tmux.Process{}, s.Dir, d.soft.Load().tmux.KillGrace()); err != nil {
		return err
	}
	return &SpawnError{Target: s.TmuxTarget, Status: st, Screen: screen}
}

// killServer ends a private server and waits until its process is gone.
func (d *Driver) killServer(ctx context.Context, srv *tmux.Server) error {
	p, err := srv.ServerProcess(ctx)
	if err != nil {
		if gone(err) || errors.Is(err, tmux.ErrGone) {
			return nil
		}
		return err
	}
	if err := srv.KillServer(ctx); err != nil && !gone(err) {
		return err
	}
	deadline := time.Now().Add(serverEndTime)
	for p.Alive() {
		if time.Now().After(deadline) {
			return fmt.Errorf("end tmux server %d on %s: still alive after %s", p.PID, srv.Socket(), serverEndTime)
		}
		if err := sleep(ctx, poll); err != nil {
			return err
		}
	}
	// A stale socket makes the next look slower and people wonder.
	if err := os.Remove(srv.Socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the socket of an ended session: %w", err)
	}
	return nil
}

const serverEndTime = 5 * time.Second

func view(s record.Session) harness.View {
	return harness.View{SessionDir: s.Dir, Cwd: s.Cwd, SessionID: s.HarnessSessionID, PID: s.PanePID}
}

// inboxPath is where the file of an event is, relative to the session's
// directory.
func inboxPath(eventID string) string { return filepath.Join(".loopfleet", "inbox", eventID+".md") }
