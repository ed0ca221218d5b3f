package natsconn

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"loopfleet/pkg/logkey"
)

const (
	connectTimeout = 5 * time.Second
	// Reconnects are frequent and spread: the fleet comes back within a second
	// of the server, and not all in the same instant.
	reconnectWait   = 250 * time.Millisecond
	reconnectJitter = 250 * time.Millisecond
	// Two pings without an answer end a connection that is only half open,
	// well before anybody waits for minutes on the client's default.
	pingInterval = 5 * time.Second
	pingsOut     = 2
	// An acknowledgement that never comes would hold its place for ever.
	asyncTimeout = 10 * time.Second
)

// ErrUnreachable is wrapped by every error of Connect that trying again later
// may cure: nothing listens, or it does not answer.
var ErrUnreachable = errors.New("no NATS server answers")

// Options say where the server is and who connects.
type Options struct {
	// URL is one address or several, separated by commas. It may be empty when
	// InProcess is set.
	URL string
	// CredentialsFile is a .creds file; empty when there is none.
	CredentialsFile string
	// User and Password, or Token, are the alternatives to it.
	User, Password, Token string
	// InProcess is a server of this process, used instead of a socket.
	InProcess nats.InProcessConnProvider
	// Name is what the server shows for this connection: the process's role,
	// with its worker id where there is one.
	Name string
	// Retry returns a connection that keeps trying when the first try finds no
	// server. Without it, that is an error.
	Retry bool
	// Log gets a line for every loss and return of the connection.
	Log zerolog.Logger
}

// Connect opens a connection and its JetStream context. It waits at most five
// seconds or until ctx ends; ctx has no part in the connection's later life. A
// server that cannot be reached is ErrUnreachable unless Retry is set.
func Connect(ctx context.Context, o Options) (*nats.Conn, jetstream.JetStream, error) {
	where := o.where()
	if err := o.check(); err != nil {
		return nil, nil, fmt.Errorf("connect to NATS at %s: %w", where, err)
	}
	type result struct {
		nc  *nats.Conn
		err error
	}
	// nats.Connect knows no context, so it runs beside and is given up on.
	done := make(chan result, 1)
	go func() {
		nc, err := nats.Connect(o.URL, o.options()...)
		done <- result{nc, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		go func() {
			if late := <-done; late.nc != nil {
				late.nc.Close()
			}
		}()
		return nil, nil, fmt.Errorf("connect to NATS at %s: %w", where, context.Cause(ctx))
	}
	if r.err != nil {
		return nil, nil, fmt.Errorf("connect to NATS at %s: %w", where, explain(r.err))
	}
	js, err := jetstream.New(r.nc, jetstream.WithPublishAsyncTimeout(asyncTimeout))
	if err != nil {
		r.nc.Close()
		return nil, nil, fmt.Errorf("connect to NATS at %s: %w", where, err)
	}
	o.Log.Debug().Str("nats", where).Bool("connected", r.nc.IsConnected()).Msg("connection to NATS made")
	return r.nc, js, nil
}

// Close lets subscriptions finish and sends what was published, then closes the
// connection. When ctx ends first, or the server is away, it closes at once and
// returns an error. Closing a closed connection does nothing.
func Close(ctx context.Context, nc *nats.Conn) error {
	closed := nc.StatusChanged(nats.CLOSED)
	defer nc.RemoveStatusListener(closed)
	if nc.IsClosed() {
		return nil
	}
	if err := nc.Drain(); err != nil {
		nc.Close()
		if errors.Is(err, nats.ErrConnectionClosed) {
			return nil
		}
		return fmt.Errorf("drain the connection to NATS: %w", err)
	}
	if nc.IsClosed() {
		return nil
	}
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		nc.Close()
		return fmt.Errorf("drain the connection to NATS: %w", context.Cause(ctx))
	}
}

// Redact returns the addresses of s without user, password or token, for logs
// and messages.
func Redact(s string) string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		bare := part
		if !strings.Contains(bare, "://") {
			bare = "nats://" + bare
		}
		u, err := url.Parse(bare)
		if err != nil || u.Host == "" {
			out = append(out, "(an address that cannot be read)")
			continue
		}
		out = append(out, (&url.URL{Scheme: u.Scheme, Host: u.Host}).String())
	}
	return strings.Join(out, ",")
}

func (o *Options) where() string {
	if o.InProcess != nil {
		return "the embedded server"
	}
	return Redact(o.URL)
}

// check finds what can be told without a network, in words that name the
// setting. The client's own errors would repeat the address with its password.
func (o *Options) check() error {
	if o.InProcess == nil {
		if strings.TrimSpace(o.URL) == "" {
			return errors.New("no address given: set nats.url or --nats-url, as in nats://127.0.0.1:4222")
		}
		for part := range strings.SplitSeq(o.URL, ",") {
			bare := strings.TrimSpace(part)
			if !strings.Contains(bare, "://") {
				bare = "nats://" + bare
			}
			if u, err := url.Parse(bare); err != nil || u.Host == "" {
				return errors.New("nats.url is not an address: write it as nats://host:4222, percent-encode what is special in a password")
			}
		}
	}
	if o.CredentialsFile != "" {
		f, err := os.Open(o.CredentialsFile)
		if err != nil {
			return fmt.Errorf("read the credentials of nats.credentialsFile: %w", err)
		}
		if err := f.Close(); err != nil {
			return fmt.Errorf("read the credentials of nats.credentialsFile: %w", err)
		}
	}
	return nil
}

func (o *Options) options() []nats.Option {
	log := o.Log
	opts := []nats.Option{
		nats.Name(o.Name),
		nats.Timeout(connectTimeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectJitter, reconnectJitter),
		nats.ReconnectBufSize(-1),
		// Else the second refusal in a row closes the connection for good, and
		// a server that restarts with its users not loaded yet does refuse.
		nats.IgnoreAuthErrorAbort(),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(pingsOut),
		nats.RetryOnFailedConnect(o.Retry),
		nats.NoCallbacksAfterClientClose(),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err == nil { // closed by us
				return
			}
			log.Warn().Err(err).Msg("connection to NATS lost; trying to get it back")
		}),
		nats.ConnectHandler(func(nc *nats.Conn) {
			log.Debug().Str("nats", Redact(nc.ConnectedUrl())).Msg("connected to NATS")
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info().Str("nats", Redact(nc.ConnectedUrl())).Uint64("reconnects", nc.Stats().Reconnects).Msg("connection to NATS is back")
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			log.Debug().Err(err).Msg("NATS does not answer yet")
		}),
		nats.LameDuckModeHandler(func(*nats.Conn) {
			log.Info().Msg("this NATS server is about to stop; another takes over")
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			e := log.Warn().Err(err)
			if sub != nil {
				e = e.Str("subject", sub.Subject)
			}
			if errors.Is(err, nats.ErrPermissionViolation) {
				e = e.Str(logkey.Hint, "this role's NATS user lacks a permission")
			}
			e.Msg("NATS reports an error")
		}),
	}
	if o.InProcess != nil {
		opts = append(opts, nats.InProcessServer(o.InProcess))
	}
	if o.CredentialsFile != "" {
		opts = append(opts, nats.UserCredentials(o.CredentialsFile))
	}
	if o.User != "" || o.Password != "" {
		opts = append(opts, nats.UserInfo(o.User, o.Password))
	}
	if o.Token != "" {
		opts = append(opts, nats.Token(o.Token))
	}
	return opts
}

// explain adds what to do.
func explain(err error) error {
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return fmt.Errorf("the server refuses these credentials (%w): check nats.credentialsFile, or the user of the address", err)
	case errors.Is(err, nats.ErrNoServers):
		return fmt.Errorf("%w: nothing listens there (%w): start the server, or correct nats.url or --nats-url", ErrUnreachable, err)
	case errors.Is(err, nats.ErrTimeout), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w within %s (%w): is it a NATS server, and does a firewall let it through?", ErrUnreachable, connectTimeout, err)
	default:
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
}
