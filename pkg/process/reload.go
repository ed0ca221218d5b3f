package process

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"loopfleet/pkg/config"
)

// Follow begins to look for edits of the configuration and returns what is in
// force: cfg, until the file changes. It ends with ctx. SIGHUP asks for a reload
// at once, except in a process that logs to a terminal: there it says that the
// terminal is gone, and ends the process.
func (f *Flags) Follow(ctx context.Context, cfg config.Config, stderr io.Writer, getenv func(string) string) *config.Live {
	live := config.NewLive(cfg)
	e := config.Edits{
		Load: func() (config.Config, error) { return f.Settings(getenv) },
		File: func() string { return config.Path(f.ConfigFile, getenv) },
	}
	if !Terminal(stderr) {
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		context.AfterFunc(ctx, func() { signal.Stop(hup) })
		e.Hangup = hup
	}
	go live.Follow(ctx, e)
	return live
}
