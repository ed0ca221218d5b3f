// Command ingress receives GitHub's webhooks, checks them and publishes what
// matters to the queue. It does exactly the ingress's part of `loopfleet up`.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"

	"loopfleet/pkg/ingress"
	"loopfleet/pkg/process"
	"loopfleet/streams"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	return process.Program{
		Name:  "ingress",
		Short: "Receive GitHub's webhooks and publish what matters of them",
		Long: `ingress receives webhooks at webhooks.ghWebhook.listen and path, checks their
signatures and publishes to NATS what concerns a work item. It answers 202 once the
event is stored, and 503 when it could not be. GET /healthz says that it is alive,
/readyz that NATS and the streams are there. It prints a line starting with "ready"
once webhooks are accepted. SIGTERM finishes what is under way first.

The secret of the hook on GitHub comes from the environment variable that
webhooks.ghWebhook.secretEnv names (LOOPFLEET_WEBHOOK_SECRET), or from the file
that the same name with _FILE at its end names.`,
		Example: "  LOOPFLEET_WEBHOOK_SECRET=... ingress --nats-url nats://127.0.0.1:4222",
		Serve: func(ctx context.Context, flags *process.Flags) error {
			return serve(ctx, flags, getenv, stdout, stderr)
		},
	}.Run(ctx, args, stdout, stderr)
}

// serve is one ingress from start to stop.
func serve(ctx context.Context, flags *process.Flags, getenv func(string) string, stdout, stderr io.Writer) error {
	log, err := flags.Logger(stderr, zerolog.InfoLevel, getenv)
	if err != nil {
		return err
	}
	if err := process.InjectFaults(getenv); err != nil {
		return err
	}
	cfg, err := flags.Settings(getenv)
	if err != nil {
		return err
	}
	secret, err := process.WebhookSecret(cfg, getenv)
	if err != nil {
		return err
	}
	if err := ingress.CheckSecret(cfg, secret); err != nil {
		return err // before anything is connected to or made
	}
	nc, js, err := process.Connect(ctx, cfg, "ingress", getenv, log)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := process.Provision(ctx, js, streams.Options{}, log); err != nil {
		return err
	}
	return ingress.ListenAndServe(ctx, cfg, ingress.Options{
		Conn: nc, JS: js, Secret: secret, Log: log, Live: flags.Follow(ctx, cfg, stderr, getenv),
		Ready: func(url string) { fmt.Fprintf(stdout, "ready %s\n", url) },
	})
}
