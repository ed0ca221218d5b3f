// Command worker hosts agent sessions: it claims work items from the queue and
// turns their events into prompts. It does exactly the worker's part of
// `loopfleet up`.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"

	"loopfleet/pkg/forge/github"
	"loopfleet/pkg/ghshim"
	"loopfleet/pkg/process"
	"loopfleet/pkg/worker"
	"loopfleet/streams"
)

func main() {
	if ghshim.Called(os.Args) {
		os.Exit(ghshim.Main(os.Args, os.Environ(), os.Stdin, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Getenv, os.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, getenv func(string) string, environ []string, stdout, stderr io.Writer) int {
	return process.Program{
		Name:  "worker",
		Short: "Host agent sessions and feed them the events of their work items",
		Long:  "worker claims work items from the queue and turns their events into prompts in agent\nsessions in tmux. SIGTERM stops it as worker.onStop says: keep leaves the sessions\nrunning for the same worker to adopt again, drain ends and hands them over.",
		Serve: func(ctx context.Context, flags *process.Flags) error {
			return serve(ctx, flags, getenv, environ, stdout, stderr)
		},
	}.Run(ctx, args, stdout, stderr)
}

// serve is one worker from start to stop.
func serve(ctx context.Context, flags *process.Flags, getenv func(string) string, environ []string, stdout, stderr io.Writer) error {
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
	id, err := worker.ID(cfg.Worker.ID)
	if err != nil {
		return err
	}
	nc, js, err := process.Connect(ctx, cfg, "worker "+id, getenv, log)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := process.Provision(ctx, js, streams.Options{}, log); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	poster, err := github.Poster(cfg.GitHub, getenv)
	if err != nil {
		return err
	}
	return worker.Run(ctx, cfg, worker.Options{
		Poster: poster,
		Conn:   nc, JS: js, Log: log, Version: process.Build(), Executable: self, Environ: environ,
		SecretNames: []string{cfg.Webhooks.GHWebhook.SecretEnv}, Live: flags.Follow(ctx, cfg, stderr, getenv),
		Ready: func(id string) { fmt.Fprintf(stdout, "ready worker %s\n", id) },
	})
}
