package ingress

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"loopfleet/pkg/config"
	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/workitem"
)

// Paths beside the configured one.
const (
	HealthPath = "/healthz"
	ReadyPath  = "/readyz"
)

const (
	// answerIn bounds the wait for the gate, and that for the broker: GitHub
	// gives up after 10 s and does not try again by itself.
	answerIn = 9 * time.Second
	// stopIn is how long Run waits for what is under way.
	stopIn = 20 * time.Second

	headerIn    = 10 * time.Second
	bodyIn      = 30 * time.Second
	writeIn     = 45 * time.Second
	idleFor     = 2 * time.Minute
	headerBytes = 64 << 10
)

// ErrNoSecret says that New was given no secret and may not do without.
var ErrNoSecret = errors.New("no webhook secret")

// Registry is what the ingress needs of the buckets.
type Registry interface {
	Canonical(ctx context.Context, host string, repoID int64, owner, repo string) (string, string, error)
	Get(ctx context.Context, item workitem.Ref) (registry.Entry, error)
	LinkPR(ctx context.Context, pr workitem.Ref, items ...workitem.Ref) (bool, error)
	LinkSHA(ctx context.Context, host string, repoID int64, sha string, items ...workitem.Ref) (bool, error)
	Outcome(ctx context.Context, item workitem.Ref, eventID string, generation int) (record.Outcome, bool, error)
	PRLinks(ctx context.Context, pr workitem.Ref) ([]workitem.Ref, error)
	SHALinks(ctx context.Context, host string, repoID int64, sha string) ([]workitem.Ref, error)
}

// Publisher stores events.
type Publisher interface {
	Publish(ctx context.Context, e event.Event) (queue.Receipt, error)
}

// Stream tells whether an item has events.
type Stream interface {
	LastSeq(ctx context.Context, item workitem.Ref) (uint64, error)
}

// Events is the event log.
type Events interface {
	Emit(ctx context.Context, e eventlog.Entry) error
	Post(e eventlog.Entry)
}

// Deps are the open stores a Server uses.
type Deps struct {
	Registry  Registry
	Publisher Publisher
	Stream    Stream
	Events    Events
	// Missing lists what is not there that a delivery needs; empty means ready.
	Missing func(ctx context.Context) []string
	Log     zerolog.Logger
}

// Server answers webhooks.
type Server struct {
	hook   config.GHWebhook
	soft   atomic.Pointer[soft]
	secret []byte
	deps   Deps

	gate     *gate
	ready    readiness
	refusals limiter
	counters counters
	answerIn time.Duration
	now      func() time.Time
}

// CheckSecret says whether New would accept this secret; the error wraps
// ErrNoSecret.
func CheckSecret(cfg config.Config, secret []byte) error {
	hook := cfg.Webhooks.GHWebhook
	switch {
	case len(secret) > 0:
		return nil
	case !hook.Insecure:
		return fmt.Errorf("%w: set %s, or %s_FILE to a file that holds it, to the secret of the hook on GitHub", ErrNoSecret, hook.SecretEnv, hook.SecretEnv)
	case !Loopback(hook.Listen):
		return fmt.Errorf("%w: webhooks.ghWebhook.insecure needs a loopback address in webhooks.ghWebhook.listen, not %q: set %s instead", ErrNoSecret, hook.Listen, hook.SecretEnv)
	default:
		return nil
	}
}

// New returns a Server for the configured hook. It is an error to have no
// secret unless webhooks.ghWebhook.insecure is set and listen is a loopback
// address.
func New(cfg config.Config, secret []byte, d Deps) (*Server, error) {
	if err := CheckSecret(cfg, secret); err != nil {
		return nil, err
	}
	hook := cfg.Webhooks.GHWebhook
	if hook.Path == HealthPath || hook.Path == ReadyPath {
		return nil, fmt.Errorf("webhooks.ghWebhook.path: %s is taken: choose another path", hook.Path)
	}
	s := &Server{
		hook: hook, secret: secret, deps: d,
		gate: newGate(largeBytes, smallBytes), answerIn: answerIn, now: time.Now,
	}
	s.adjust(cfg)
	return s, nil
}

// soft is the part of the configuration that may change while the server runs.
type soft struct {
	routing config.Routing
	wanted  map[string]bool
}

// adjust puts the soft part of cfg in force for deliveries from now on.
func (s *Server) adjust(cfg config.Config) {
	names := cfg.Webhooks.GHWebhook.Events
	if len(names) == 0 {
		names = config.DefaultEvents
	}
	next := &soft{routing: cfg.Routing, wanted: map[string]bool{}}
	for _, n := range names {
		next.wanted[n] = true
	}
	s.soft.Store(next)
}

// Loopback reports whether nobody but this machine can connect to the address.
func Loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// Handler answers the configured path, HealthPath and ReadyPath.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.recovered(w, r)
		switch r.URL.Path {
		case s.hook.Path:
			s.webhook(w, r)
		case HealthPath:
			probe(w, r, s.alive)
		case ReadyPath:
			probe(w, r, s.readyAnswer)
		default:
			writeJSON(w, http.StatusNotFound, Answer{Outcome: Rejected, Reason: "not-found", Detail: "webhooks are received at " + s.hook.Path})
		}
	})
}

// recovered keeps a bug in one request from hurting others.
func (s *Server) recovered(w http.ResponseWriter, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // the server's own way to end a connection
	}
	s.deps.Log.Error().Interface("panic", p).Bytes("stack", debug.Stack()).Msg("a request made the ingress panic")
	s.refuse(w, r, &refusal{status: http.StatusInternalServerError, reason: panicked, detail: errInternal})
}

var errInternal = errors.New("an internal error; the ingress's log has it")

// Run serves on l until ctx ends, then lets what is under way finish, for at
// most 20 s, and returns nil.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: headerIn,
		ReadTimeout:       bodyIn,
		WriteTimeout:      writeIn,
		IdleTimeout:       idleFor,
		MaxHeaderBytes:    headerBytes,
		ErrorLog:          stdlog.New(debugWriter{s.deps.Log}, "", 0),
		// Not ctx: its end must not cut off a delivery that is being stored.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve webhooks on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopIn)
	defer cancel()
	if err := srv.Shutdown(stop); err != nil {
		_ = srv.Close()
		return fmt.Errorf("stop receiving webhooks: deliveries were cut off: %w", err)
	}
	return nil
}

// debugWriter takes what net/http says of bad connections, which strangers can
// cause at will.
type debugWriter struct{ log zerolog.Logger }

func (w debugWriter) Write(p []byte) (int, error) {
	w.log.Debug().Str("http", eventlog.Escape(strings.TrimSpace(string(p)))).Msg("a connection to the ingress failed")
	return len(p), nil
}
