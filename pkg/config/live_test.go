package config_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loopfleet/pkg/config"
	"loopfleet/pkg/testutil/waitfor"
)

// rule: CL-19
func TestLive_Reload(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		edit             func(*config.Config)
		applied, restart []string
	}{
		"nothing": {func(*config.Config) {}, nil, nil},
		"routing": {func(c *config.Config) {
			c.Routing.Tmux.KeepSessionOnClose = false
			c.Routing.Tmux.HarnessKillGraceSeconds = 0
			c.Routing.Label = "agent"
		}, []string{"routing.label", "routing.tmux.harnessKillGraceSeconds", "routing.tmux.keepSessionOnClose"}, nil},
		"lists": {func(c *config.Config) {
			c.Routing.AuthorizedUsers = []string{"bob"}
			c.Webhooks.GHWebhook.Events = []string{"issues"}
		}, []string{"routing.authorizedUsers", "webhooks.ghWebhook.events"}, nil},
		"what takes a restart": {func(c *config.Config) {
			c.Worker.Capacity++
			c.Webhooks.GHWebhook.Listen = "127.0.0.1:1"
		}, nil, []string{"webhooks.ghWebhook.listen", "worker.capacity"}},
		"a harness that came with it": {func(c *config.Config) {
			c.Harnesses = map[string]config.Harness{"new": {Command: []string{"new"}}}
			c.Routing.DefaultHarness, c.Routing.MaxRetries = "new", 9
		}, []string{"routing.maxRetries"}, []string{"harnesses", "routing.defaultHarness"}},
		"a harness that was there": {func(c *config.Config) { c.Routing.DefaultHarness = "demo" }, []string{"routing.defaultHarness"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := config.NewLive(config.Default())
			var told []config.Change
			l.Subscribe(func(c config.Change) { told = append(told, c) })
			next := config.Default()
			tt.edit(&next)
			l.Reload(next, nil, false)
			if len(told) != 2 || told[0].News() {
				t.Fatalf("told %d times, at first with news: %t", len(told), told[0].News())
			}
			c := told[1]
			if diff := cmp.Diff(tt.applied, c.Applied); diff != "" {
				t.Errorf("applied (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.restart, c.Restart); diff != "" {
				t.Errorf("restart (-want +got):\n%s", diff)
			}
			if c.News() != (len(tt.applied)+len(tt.restart) > 0) {
				t.Errorf("news: %t", c.News())
			}
			if diff := cmp.Diff(c.Config, l.Config()); diff != "" {
				t.Errorf("in force (-told +is):\n%s", diff)
			}
			if got := config.Differing(config.Default(), l.Config()); !cmp.Equal(got, tt.applied) {
				t.Errorf("in force differ %q", got)
			}
		})
	}
}

func TestLive_BadEditChangesNothing(t *testing.T) {
	t.Parallel()
	l := config.NewLive(config.Default())
	var last config.Change
	l.Subscribe(func(c config.Change) { last = c })
	next := config.Default()
	next.Routing.Label = "agent"
	bad := errors.New("line 1: bad")
	l.Reload(next, bad, false)
	if !errors.Is(last.Err, bad) || !last.News() || len(last.Applied) > 0 || l.Config().Routing.Label != config.Default().Routing.Label {
		t.Errorf("%+v, in force %q", last, l.Config().Routing.Label)
	}
}

// Follow sees an edit in place, one that puts another file in its place,
// and what asks for a reload; it tells a bad edit once.
func TestLive_Follow(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "loopfleet.yaml")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, "routing: {}\n")
	getenv := func(string) string { return "/nonexistent" }
	begin, err := config.Load(file, getenv)
	if err != nil {
		t.Fatal(err)
	}
	l := config.NewLive(begin)
	changes := make(chan config.Change, 100)
	l.Subscribe(func(c config.Change) {
		if c.News() {
			changes <- c
		}
	})
	hup := make(chan os.Signal)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Follow(ctx, config.Edits{
			Load:   func() (config.Config, error) { return config.Load(file, getenv) },
			File:   func() string { return file },
			Hangup: hup, Every: 2 * time.Millisecond,
		})
	}()
	label := func(want string) {
		t.Helper()
		waitfor.Until(t, "the label to be "+want, func() bool { return l.Config().Routing.Label == want })
		<-changes
	}
	write(file, "routing: {label: one}\n")
	label("one")
	write(file, "routing: {label: two}\n")
	label("two")
	write(file+".new", "routing: {label: six}\n")
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	label("six")
	write(file, "routing: {label: }}\n")
	if c := <-changes; c.Err == nil {
		t.Errorf("a file that is not YAML: %+v", c)
	}
	hup <- os.Interrupt
	if c := <-changes; c.Err == nil || !c.Asked {
		t.Errorf("asked while it is bad: %+v", c)
	}
	if l.Config().Routing.Label != "six" {
		t.Errorf("label %q after a bad edit", l.Config().Routing.Label)
	}
	cancel()
	<-done
	if len(changes) > 0 {
		t.Errorf("told more than once: %+v", <-changes)
	}
}
