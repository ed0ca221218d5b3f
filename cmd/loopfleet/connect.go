package main

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"loopfleet/pkg/config"
	"loopfleet/pkg/process"
	"loopfleet/pkg/registry"
)

// fleet is an open connection to a fleet's server.
type fleet struct {
	cfg config.Config
	nc  *nats.Conn
	js  jetstream.JetStream
}

// connect opens the fleet's server; the caller closes it. A person who asks
// something is not told of the connection's ups and downs, only how it ended.
func (a *app) connect(ctx context.Context) (*fleet, error) {
	cfg, err := a.settings()
	if err != nil {
		return nil, err
	}
	log, err := a.logger(zerolog.ErrorLevel)
	if err != nil {
		return nil, err
	}
	nc, js, err := process.Connect(ctx, cfg, "loopfleet", a.getenv, log)
	if err != nil {
		return nil, err
	}
	return &fleet{cfg: cfg, nc: nc, js: js}, nil
}

// registry opens the fleet's buckets.
func (f *fleet) registry(ctx context.Context) (*registry.Registry, error) {
	return registry.Open(ctx, f.js)
}

func (f *fleet) close() { f.nc.Close() }
