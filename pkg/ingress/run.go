package ingress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"loopfleet/pkg/config"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/registry"
)

// Options of ListenAndServe that are not configuration.
type Options struct {
	Conn   *nats.Conn
	JS     jetstream.JetStream
	Secret []byte
	Log    zerolog.Logger
	// Ready is called with the hook's address once webhooks are accepted.
	Ready func(url string)
	// Live tells of edits of the configuration; nil means that it never
	// changes.
	Live *config.Live
}

// ListenAndServe is one ingress from start to stop: it opens its stores, listens
// on the configured address and serves until ctx ends.
func ListenAndServe(ctx context.Context, cfg config.Config, o Options) (err error) {
	reg, err := registry.Open(ctx, o.JS)
	if err != nil {
		return err
	}
	reader, err := queue.NewReader(ctx, o.JS)
	if err != nil {
		return err
	}
	events, err := eventlog.New(o.JS, eventlog.Options{Source: "ingress", File: cfg.EventLog.File, Log: o.Log})
	if err != nil {
		return err
	}
	defer func() {
		const flush = 10 * time.Second
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flush)
		defer cancel()
		err = errors.Join(err, events.Close(cctx))
	}()
	srv, err := New(cfg, o.Secret, Deps{
		Registry: reg, Publisher: queue.NewPublisher(o.JS), Stream: reader, Events: events,
		Missing: Missing(o.Conn.IsConnected, o.JS), Log: o.Log,
	})
	if err != nil {
		return err
	}
	warn(cfg, o.Log)
	if o.Live != nil {
		o.Live.Subscribe(func(c config.Change) {
			srv.adjust(c.Config)
			if e, news := eventlog.Reload(c); news {
				events.Post(e)
				warn(c.Config, o.Log)
			}
		})
	}
	hook := cfg.Webhooks.GHWebhook
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", hook.Listen)
	if err != nil {
		return fmt.Errorf("listen for webhooks: %w (webhooks.ghWebhook.listen gives another address)", err)
	}
	if o.Ready != nil {
		o.Ready("http://" + l.Addr().String() + hook.Path)
	}
	return srv.Run(ctx, l)
}

// warn says what the configuration allows and its author probably did not mean.
func warn(cfg config.Config, log zerolog.Logger) {
	for _, w := range config.Warnings(cfg) {
		log.Warn().Msg(w)
	}
}
