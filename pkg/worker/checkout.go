package worker

import (
	"context"
	"net/url"
	"os"
	"strings"

	"github.com/rs/zerolog"

	"loopfleet/pkg/config"
	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/record"
	"loopfleet/pkg/workitem"
	"loopfleet/pkg/workspace"
)

// Checkouts prepares and removes the directories that agents work in.
type Checkouts interface {
	Dir(item workitem.Ref) string
	Prepare(ctx context.Context, req workspace.Request) (workspace.Checkout, error)
	Remove(ctx context.Context, item workitem.Ref, force bool) (workspace.Removal, error)
}

// openCheckouts returns the manager of the configured root, nil when there is
// none: then each item has a plain directory.
func openCheckouts(cfg config.Config, environ []string, log zerolog.Logger) (Checkouts, error) {
	if cfg.Workspace.Root == "" {
		return nil, nil
	}
	m, err := workspace.New(workspace.Config{
		Root: cfg.Workspace.Root, Strategy: cfg.Workspace.Strategy, Keep: cfg.Workspace.KeepCheckoutOnClose,
		Protocol: cfg.Workspace.CloneProtocol, TokenFile: cfg.GitHub.TokenFile, TokenHost: cloneHost(cfg.GitHub.APIURL),
		Environ: environ, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// cloneHost is the host that repositories of an API are cloned from.
func cloneHost(api string) string {
	u, err := url.Parse(api)
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(u.Host, "api.")
}

// checkout returns the directory to start the agent in; "" means the item's
// plain one. What is recorded is used while it is there, so a respawn finds the
// work of the session before it.
func (h *handling) checkout(ctx context.Context, rec record.Record) (string, error) {
	w := h.w
	if old := rec.Session; old != nil && old.Host == w.cfg.ID {
		if fi, err := os.Stat(old.Cwd); err == nil && fi.IsDir() {
			return old.Cwd, nil
		}
	}
	if w.checkouts == nil {
		return "", nil
	}
	co, err := w.checkouts.Prepare(ctx, workspace.Request{
		Item: h.it.Ref, PullRequest: rec.PullRequest,
		Progress: func(line string) { w.log.Info().Stringer("work_item", h.it.Ref).Msg(line) },
	})
	if err != nil {
		return "", err
	}
	level := event.Info
	if len(co.Warnings) > 0 {
		level = event.Warn
	}
	h.post(event.WorkspacePrepared, level, map[string]any{
		"dir": co.Dir, "branch": co.Branch, "commit": co.Commit, "adopted": co.Adopted, "warnings": co.Warnings,
	})
	return co.Dir, nil
}

// dropCheckout removes a closed item's checkout, unless it is kept or holds work
// that is nowhere else: that is reported, never destroyed. Force removes it all
// the same.
func (w *Worker) dropCheckout(ctx context.Context, item workitem.Ref, force bool, end *record.End) {
	if w.checkouts == nil {
		return
	}
	dir := w.checkouts.Dir(item)
	res, err := w.checkouts.Remove(ctx, item, force)
	switch {
	case err != nil:
		end.Dir = dir
		end.Fail(err.Error())
		w.events.Post(eventlog.Entry{Type: event.WorkspaceKept, Level: event.Warn, WorkItem: item, Fields: map[string]any{
			"dir": dir, logkey.Reason: "it could not be removed", logkey.Error: err.Error(),
		}})
	case res.Removed:
		end.Dir, end.DirRemoved = dir, true
		w.events.Post(eventlog.Entry{Type: event.WorkspaceRemoved, WorkItem: item, Fields: map[string]any{"dir": dir}})
	case res.KeptReason != "":
		end.Dir, end.DirKept = dir, res.KeptReason
		w.events.Post(eventlog.Entry{Type: event.WorkspaceKept, Level: event.Warn, WorkItem: item, Fields: map[string]any{
			"dir": dir, logkey.Reason: res.KeptReason,
		}})
	}
}
