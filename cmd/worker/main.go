// Command worker hosts agent sessions: it claims work items from the queue and
// turns their events into prompts. It does exactly the worker's part of
// `loopfleet up`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"loopfleet/pkg/forge/github"
	"loopfleet/pkg/ghshim"
	"loopfleet/pkg/process"
	"loopfleet/pkg/worker"
	"loopfleet/streams"
)

const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
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

// errUsage marks a command line that is wrong.
var errUsage = errors.New("usage")

func run(ctx context.Context, args []string, getenv func(string) string, environ []string, stdout, stderr io.Writer) int {
	var flags process.Flags
	cmd := &cobra.Command{
		Use:           "worker",
		Short:         "Host agent sessions and feed them the events of their work items",
		Long:          "worker claims work items from the queue and turns their events into prompts in agent\nsessions in tmux. SIGTERM stops it as worker.onStop says: keep leaves the sessions\nrunning for the same worker to adopt again, drain ends and hands them over.",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error { //nolint:contextcheck // cobra carries it
			return serve(cmd.Context(), &flags, getenv, environ, stdout, stderr)
		},
	}
	flags.Register(cmd.Flags())
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	fmt.Fprintf(stderr, "worker: %v\n", err)
	if hint, ok := errors.AsType[*process.HintError](err); ok {
		fmt.Fprintf(stderr, "hint: %s\n", hint.Hint())
	}
	if errors.Is(err, errUsage) || errors.Is(err, process.ErrLogLevel) {
		return exitUsage
	}
	return exitFailed
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
