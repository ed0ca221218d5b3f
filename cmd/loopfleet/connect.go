package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"loopfleet/pkg/config"
	"loopfleet/pkg/natsconn"
	"loopfleet/pkg/registry"
)

// Environment variables that sign a person in to NATS.
const (
	envNATSUser     = "LOOPFLEET_NATS_USER"
	envNATSPassword = "LOOPFLEET_NATS_PASSWORD" //nolint:gosec // G101: a variable's name, not a password
	envNATSToken    = "LOOPFLEET_NATS_TOKEN"    //nolint:gosec // G101: the same
)

// fleet is an open connection to a fleet's server.
type fleet struct {
	cfg config.Config
	nc  *nats.Conn
	js  jetstream.JetStream
}

// connect opens the fleet's server; the caller closes it.
func (a *app) connect(ctx context.Context) (*fleet, error) {
	cfg, err := a.settings()
	if err != nil {
		return nil, err
	}
	log, err := a.logger(zerolog.ErrorLevel)
	if err != nil {
		return nil, err
	}
	o := natsconn.Options{
		URL: cfg.NATS.URL, CredentialsFile: cfg.NATS.CredentialsFile,
		User: a.getenv(envNATSUser), Password: a.getenv(envNATSPassword), Token: a.getenv(envNATSToken),
		Name: "loopfleet", Log: log,
	}
	hint := "is the server up, and is this its address? --nats-url gives another one"
	if o.URL == "" {
		file := filepath.Join(cfg.StateDir, "nats", "url")
		if o.URL, err = embeddedURL(file); err != nil {
			return nil, err
		}
		// The address carries its own user.
		o.User, o.Password, o.Token, o.CredentialsFile = "", "", "", ""
		hint = "the address is from " + file + ": is `loopfleet up` still running?"
	}
	nc, js, err := natsconn.Connect(ctx, o)
	if err != nil {
		if errors.Is(err, natsconn.ErrUnreachable) {
			err = &hintError{err: err, hint: hint}
		}
		return nil, err
	}
	return &fleet{cfg: cfg, nc: nc, js: js}, nil
}

// errNoServer says that nothing tells where the fleet's server is.
var errNoServer = errors.New("no NATS server is known")

// embeddedURL reads the address that `loopfleet up` leaves behind.
func embeddedURL(file string) (string, error) {
	b, err := os.ReadFile(file) //nolint:gosec // G304: in our own state directory
	url := strings.TrimSpace(string(b))
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && url == "":
		return "", &hintError{
			err:  fmt.Errorf("%w: nats.url is not set and %s, where `loopfleet up` writes its server's address, is not there", errNoServer, file),
			hint: "start `loopfleet up`, or give --nats-url nats://host:4222",
		}
	case err != nil:
		return "", fmt.Errorf("read the embedded server's address: %w", err)
	}
	return url, nil
}

// registry opens the fleet's buckets.
func (f *fleet) registry(ctx context.Context) (*registry.Registry, error) {
	return registry.Open(ctx, f.js)
}

func (f *fleet) close() { f.nc.Close() }
