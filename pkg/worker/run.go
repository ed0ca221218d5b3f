package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"loopfleet/pkg/config"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/forge"
	"loopfleet/pkg/ghshim"
	"loopfleet/pkg/harness"
	"loopfleet/pkg/notice"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/session"
	"loopfleet/pkg/workitem"
)

// Options of Run that are not configuration.
type Options struct {
	Conn *nats.Conn
	JS   jetstream.JetStream
	Log  zerolog.Logger
	// Version is what the worker says of itself.
	Version string
	// Executable is this program, for the built-in demo harness and for the gh
	// shim on the agents' PATH; its main must ask ghshim.Called. Empty: neither.
	Executable string
	// Poster tells tickets what was given up; nil means that nobody does.
	Poster forge.Poster
	// Environ is the environment that agents inherit, without SecretNames.
	Environ     []string
	SecretNames []string
	// Queue overrides the queue's times and storage; zero values are the
	// design's.
	Queue queue.Config
	// Checkouts overrides what the configuration says of workspaces.
	Checkouts Checkouts
	// Ready is called with the worker's id once it takes work.
	Ready func(id string)
	// Live tells of edits of the configuration; nil means that it never
	// changes.
	Live *config.Live
}

// stopTimeout bounds an orderly stop; what is not done by then is found by the
// next owner.
const stopTimeout = time.Minute

// Run is one worker from start to stop: it locks its folder, takes its lease,
// works until ctx ends, and then stops as worker.onStop says.
func Run(ctx context.Context, cfg config.Config, o Options) (err error) {
	id, err := ID(cfg.Worker.ID)
	if err != nil {
		return err
	}
	dir := filepath.Join(cfg.StateDir, "workers", workitem.Escape(strings.ToLower(id)))
	lock, err := registry.LockDir(dir)
	if err != nil {
		return fmt.Errorf("worker %s: %w", id, err)
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()

	reg, err := registry.Open(ctx, o.JS)
	if err != nil {
		return err
	}
	ttl, err := reg.LeaseTTL(ctx)
	if err != nil {
		return err
	}
	lease, err := reg.NewLease(id, ttl, lock.Name())
	if err != nil {
		return err
	}
	events, err := eventlog.New(o.JS, eventlog.Options{Worker: id, Source: "worker", File: cfg.EventLog.File, Log: o.Log})
	if err != nil {
		return err
	}
	defer func() {
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = errors.Join(err, events.Close(cctx))
	}()
	set, err := harness.NewSet(cfg.Harnesses, o.Executable)
	if err != nil {
		return err
	}
	if !slices.Contains(set.Available(), cfg.Routing.DefaultHarness) {
		if a, err := set.Adapter(cfg.Routing.DefaultHarness); err == nil {
			_, err = a.Find()
			o.Log.Warn().Err(err).Msg("routing.defaultHarness does not work on this machine: every spawn here will fail")
		}
	}
	var pathPrefix []string
	if o.Executable != "" {
		pathPrefix = []string{filepath.Join(dir, "shim")}
		if err := ghshim.Install(pathPrefix[0], o.Executable); err != nil {
			return err
		}
	}
	driver, err := session.New(session.Config{
		Worker: id, Dir: dir, WorkDir: filepath.Join(cfg.StateDir, "work"), ReceiptTimeout: cfg.Routing.ReceiptTimeout(),
		Tmux: cfg.Routing.Tmux, Fence: lease.Left, Log: o.Log, Environ: o.Environ, SecretNames: o.SecretNames,
		PathPrefix: pathPrefix,
	}, set)
	if err != nil {
		return err
	}
	checkouts := o.Checkouts
	if checkouts == nil {
		if checkouts, err = openCheckouts(cfg, o.Environ, o.Log); err != nil {
			return err
		}
	}
	w, err := New(ctx, Config{
		ID: id, Capacity: cfg.Worker.Capacity, Routing: cfg.Routing, PollRetries: cfg.Polling.MaxRetries, Harnesses: set.Available(), Version: o.Version,
	}, Deps{
		Conn: o.Conn, JS: o.JS, Registry: reg, Events: events, Sessions: driver, Lease: lease, Log: o.Log, Queue: o.Queue,
		Checkouts: checkouts,
	})
	if err != nil {
		return err
	}
	if o.Live != nil {
		o.Live.Subscribe(func(c config.Change) {
			r := c.Config.Routing
			w.inForce.Store(&r)
			driver.Adjust(r.ReceiptTimeout(), r.Tmux)
			if e, news := eventlog.Reload(c); news {
				events.Post(e)
			}
		})
	}
	if err := w.Start(ctx); err != nil {
		return err
	}
	told := tellTickets(ctx, o, events)
	if o.Ready != nil {
		o.Ready(id)
	}
	<-ctx.Done()
	defer func() { <-told }() // before the log is closed
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	w.Stop(sctx, cfg.Worker.OnStop == "keep")
	return nil
}

// tellTickets runs the outbox of notices until ctx ends, and closes done when the
// last one is through.
func tellTickets(ctx context.Context, o Options, events *eventlog.Log) (done <-chan struct{}) {
	ended := make(chan struct{})
	if o.Poster == nil {
		o.Log.Warn().Msg("notices are off: no token (github.tokenEnv, github.tokenFile), so tickets are not told of what is given up")
		close(ended)
		return ended
	}
	go func() {
		defer close(ended)
		notice.Run(ctx, notice.Deps{JS: o.JS, Poster: o.Poster, Events: events, Log: o.Log})
	}()
	return ended
}

var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// ID is the worker's id: the configured one, or this host's name. In a
// container the host's name is the container's id.
func ID(configured string) (string, error) {
	id := configured
	if id == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("worker.id is not set and this host has no name: %w", err)
		}
		id = host
	}
	if !validID.MatchString(id) {
		return "", fmt.Errorf("worker id %q: use letters, digits, dots, - and _, up to 63", id)
	}
	return id, nil
}
