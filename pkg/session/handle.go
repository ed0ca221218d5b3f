package session

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"loopfleet/pkg/record"
	"loopfleet/pkg/tmux"
	"loopfleet/pkg/workitem"
)

const (
	handleFile    = "handle.json"
	handleVersion = 1
)

// handle is what the machine itself remembers of a session, so that a crash
// before the registry knew of it leaves no agent that nobody owns.
type handle struct {
	Version     int            `json:"version"`
	Item        workitem.Ref   `json:"work_item"`
	Incarnation int            `json:"incarnation"`
	Session     record.Session `json:"session"`
}

// Found is a session on this machine's disk. Whether it runs is Inspect's to say.
type Found struct {
	Item        workitem.Ref
	Session     record.Session
	Incarnation int
}

func (h handle) write() error {
	b, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return fmt.Errorf("write the handle of %s: %w", h.Item, err)
	}
	// A name of its own, so that a crash leaves the old handle or the new.
	tmp := filepath.Join(h.Session.Dir, handleFile+"."+rand.Text())
	err = os.WriteFile(tmp, append(b, '\n'), 0o600)
	if err == nil {
		err = os.Rename(tmp, filepath.Join(h.Session.Dir, handleFile))
	}
	if err != nil {
		return fmt.Errorf("write the handle of %s: %w", h.Item, errors.Join(err, os.Remove(tmp)))
	}
	return nil
}

// readHandle returns nil and no error when there is none.
func readHandle(dir string) (*handle, error) {
	path := filepath.Join(dir, handleFile)
	b, err := os.ReadFile(path) //nolint:gosec // in the worker's own directory
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // no handle is a common case, not a failure
	}
	if err != nil {
		return nil, fmt.Errorf("read handle: %w", err)
	}
	var h handle
	if err := json.Unmarshal(b, &h); err != nil {
		return nil, fmt.Errorf("read handle %s: %w", path, err)
	}
	switch {
	case h.Version != handleVersion:
		return nil, fmt.Errorf("read handle %s: version %d, this program reads %d", path, h.Version, handleVersion)
	case h.Item.Zero() || h.Session.Token == "" || !tmux.ValidName(h.Session.TmuxTarget):
		return nil, fmt.Errorf("read handle %s: it names no session", path)
	}
	h.Session.Dir = dir
	return &h, nil
}

// removeHandle forgets the session, unless another has taken its place.
func removeHandle(s record.Session) error {
	h, err := readHandle(s.Dir)
	if err != nil || h == nil || h.Session.Token != s.Token {
		return err
	}
	if err := os.Remove(filepath.Join(s.Dir, handleFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget session %s: %w", s.TmuxTarget, err)
	}
	return nil
}

// Local lists the sessions whose handle is on this machine, running or not. A
// handle that cannot be read is reported in the error beside all the others.
func (d *Driver) Local(ctx context.Context) ([]Found, error) {
	root := filepath.Join(d.cfg.Dir, "sessions")
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	var found []Found
	var errs []error
	for _, e := range entries {
		h, err := readHandle(filepath.Join(root, e.Name()))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if h == nil {
			continue
		}
		if h.Session.ServerPID == 0 {
			// The crash came between the start and its completed handle.
			if err := d.complete(ctx, h); err != nil && !gone(err) {
				errs = append(errs, err)
			}
		}
		found = append(found, Found{Item: h.Item, Session: h.Session, Incarnation: h.Incarnation})
	}
	return found, errors.Join(errs...)
}

// complete fills in which processes the session has, and writes the handle.
func (d *Driver) complete(ctx context.Context, h *handle) error {
	srv, err := d.server(h.Session)
	if err != nil {
		return err
	}
	server, err := srv.ServerProcess(ctx)
	if err != nil {
		return err
	}
	panes, err := srv.Panes(ctx, h.Session.TmuxTarget)
	if err != nil {
		return err
	}
	h.Session.ServerPID, h.Session.ServerStart = server.PID, server.Start
	h.Session.PanePID, h.Session.PaneStart = panes[0].PID, 0
	if p, err := tmux.Identify(panes[0].PID); err == nil && !panes[0].Dead {
		h.Session.PaneStart = p.Start
	}
	return h.write()
}

// gone reports that tmux itself says that there is nothing.
func gone(err error) bool {
	return errors.Is(err, tmux.ErrNoServer) || errors.Is(err, tmux.ErrNoSession)
}
