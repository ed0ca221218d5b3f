// Command loopfleet is the operator's program. It shows and explains what a
// fleet does (sessions, events, deliveries, workers), looks after the streams
// and the configuration, and runs everything in one process for a single
// machine (`loopfleet up`, `loopfleet demo`).
//
// Every command that reads takes --json. What strangers wrote is escaped before
// it is printed, in text and in JSON. The exit status is 0 when it is done, 1
// when it failed, 2 when the command line is wrong.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"loopfleet/pkg/ghshim"
)

func main() {
	if ghshim.Called(os.Args) { // by an agent
		os.Exit(ghshim.Main(os.Args, os.Environ(), os.Stdin, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(int(code))
}
