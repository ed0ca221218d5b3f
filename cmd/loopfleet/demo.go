package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"loopfleet/pkg/config"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/process"
	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/workitem"
)

//go:embed demo/*.json
var demoPayloads embed.FS

const (
	demoItem = "octo/hello#42"
	demoUser = "alice"
	// demoWait bounds each wait of the demo; a spawn takes a second.
	demoWait = 60 * time.Second
)

func newDemoCommand(a *app) *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole product on this machine, and leave nothing running",
		Long: `demo starts everything in this process (a real NATS server, receiver and worker,
real tmux) in a directory of its own, sends it signed webhooks in GitHub's shape,
and shows what happened and why, what the agent saw, and the same through the
plain nats CLI. The agent is the built-in one without a model. Nothing leaves
this machine, and nothing is left running.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), keep) },
	}
	cmd.Flags().BoolVar(&keep, "keep-state", false, "keep the demo's directory, to look around in it")
	return cmd
}

// demoStep is one delivery of the demo.
type demoStep struct {
	file, event, says string
	unsigned, again   bool
}

var demoSteps = []demoStep{
	{file: "1-labeled.json", event: "issues", says: demoUser + " labels the issue"},
	{file: "2-comment.json", event: "issue_comment", says: demoUser + " comments"},
	{file: "3-comment.json", event: "issue_comment", says: demoUser + " comments again"},
	{file: "3-comment.json", event: "issue_comment", says: "the same comment from another hook", again: true},
	{file: "2-comment.json", event: "issue_comment", says: "a delivery without a signature", unsigned: true},
	{file: "4-stranger.json", event: "issue_comment", says: "a stranger comments"},
}

var demoClose = demoStep{file: "5-closed.json", event: "issues", says: demoUser + " closes the issue"}

// demo runs `up` in a temporary directory, plays the steps and takes it down.
func (a *app) demo(ctx context.Context, keep bool) (err error) {
	for _, program := range []string{"tmux", "git"} {
		if _, err := exec.LookPath(program); err != nil {
			return &hintError{err: fmt.Errorf("the demo needs %s: %w", program, err), hint: "on Debian: apt-get install tmux git; `make demo` does that"}
		}
	}
	// Also when its terminal is closed nothing is left running.
	ctx, stopWatching := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stopWatching()
	dir, err := os.MkdirTemp("", "loopfleet-demo-")
	if err != nil {
		return fmt.Errorf("make the demo's directory: %w", err)
	}
	if !keep {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	log, err := a.logger(zerolog.ErrorLevel)
	if err != nil {
		return err
	}
	cfg := demoConfig(dir)
	if _, err := secretFile(process.SecretFile(dir)); err != nil {
		return err
	}
	d := &demo{app: a, cfg: cfg, dir: dir}
	run, stop := context.WithCancel(ctx)
	defer stop()
	started := make(chan string, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- d.quiet().serve(run, cfg, log, upOptions{started: func(hook, _ string) { started <- hook }})
	}()
	select {
	case d.hook = <-started:
	case err := <-ended:
		return err
	}
	err = d.play(ctx)
	stop()
	err = errors.Join(err, <-ended)
	if err != nil {
		return err
	}
	left := "the demo's directory is removed"
	if keep {
		left = "the demo's directory stays: " + dir
	}
	return a.printf("\nStopped. No agent, no tmux server and no NATS server is left;\n%s. For real use: make run (loopfleet up), and the README.\n", left)
}

// demoConfig is the configuration of a demo: ports that are free, the agent
// without a model, and nothing kept of a session that ends.
func demoConfig(dir string) config.Config {
	cfg := config.Default()
	cfg.StateDir = dir
	cfg.Webhooks.GHWebhook.Listen = "127.0.0.1:0"
	cfg.Routing.AuthorizedUsers = []string{demoUser}
	cfg.Routing.DefaultHarness = "demo"
	cfg.Routing.Tmux.KeepSessionOnClose = false
	cfg.Worker.ID = "demo-worker"
	cfg.Worker.OnStop = "drain"
	cfg.GitHub.TokenEnv = "" // the issues are made up: nothing is to be posted on real ones
	return cfg
}

type demo struct {
	app  *app
	cfg  config.Config
	dir  string
	hook string
}

// quiet is an app whose secret comes from the demo's directory alone.
func (d *demo) quiet() *app {
	q := *d.app
	q.getenv = func(name string) string {
		if strings.HasPrefix(name, "LOOPFLEET_") {
			return ""
		}
		return d.app.getenv(name)
	}
	return &q
}

// play sends the deliveries and shows what became of them.
func (d *demo) play(ctx context.Context) error {
	a := d.quiet()
	nc, js, err := process.Connect(ctx, d.cfg, "demo", a.getenv, zerolog.Nop())
	if err != nil {
		return err
	}
	defer nc.Close()
	reg, err := registry.Open(ctx, js)
	if err != nil {
		return err
	}
	item, err := workitem.Parse(demoItem)
	if err != nil {
		return err
	}
	if err := d.head("1. Signed webhooks go to " + d.hook); err != nil {
		return err
	}
	for _, s := range demoSteps {
		if err := d.send(ctx, s); err != nil {
			return err
		}
	}
	if _, err := d.until(ctx, reg, item, "the agent to have everything", func(r *record.Record) bool {
		return r.State == record.StateActive && r.Started == nil && len(r.Recent) >= 3
	}); err != nil {
		return err
	}
	if err := d.timeline(ctx, js, "2. What happened, and why (loopfleet events)", time.Time{}); err != nil {
		return err
	}
	if err := d.show(ctx, "3. The agent's screen (loopfleet sessions peek "+demoItem+")", "sessions", "peek", demoItem, "--lines", "24"); err != nil {
		return err
	}
	if err := d.show(ctx, "4. The session (loopfleet sessions list)", "sessions", "list"); err != nil {
		return err
	}
	if err := d.natsCLI(ctx, item); err != nil {
		return err
	}
	if err := d.head("6. The issue is closed: the agent ends"); err != nil {
		return err
	}
	before := time.Now()
	if err := d.send(ctx, demoClose); err != nil {
		return err
	}
	rec, err := d.until(ctx, reg, item, "the session to be closed", func(r *record.Record) bool { return r.State == record.StateClosed })
	if err != nil {
		return err
	}
	if err := d.timeline(ctx, js, "", before); err != nil {
		return err
	}
	return d.app.printf("%s is %s (%s).\n", short(item), rec.State, rec.Reason)
}

func (d *demo) head(text string) error { return d.app.printf("\n== %s\n\n", text) }

// send posts one delivery and prints its answer on a line.
func (d *demo) send(ctx context.Context, s demoStep) error {
	body, err := demoPayloads.ReadFile(path.Join("demo", s.file))
	if err != nil {
		return fmt.Errorf("payload of the demo: %w", err)
	}
	secret, err := process.WebhookSecret(d.cfg, d.quiet().getenv)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.hook, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("post to %s: %w", d.hook, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-GitHub-Event", s.event)
	req.Header.Set("X-GitHub-Delivery", uuid.NewString())
	if !s.unsigned {
		req.Header.Set("X-Hub-Signature-256", sign(string(secret), body))
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("send a webhook: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer to a webhook: %w", err)
	}
	var said struct{ Outcome, Reason string }
	if err := json.Unmarshal(answer, &said); err != nil {
		return fmt.Errorf("read the answer to a webhook: %w", err)
	}
	if said.Reason != "" && said.Reason != said.Outcome {
		said.Outcome += ": " + said.Reason
	}
	return d.app.printf("  %-36s %d %s\n", s.says, res.StatusCode, eventlog.Escape(said.Outcome))
}

// until waits for the item's record to be as wanted.
func (d *demo) until(ctx context.Context, reg *registry.Registry, item workitem.Ref, what string, ok func(*record.Record) bool) (record.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, demoWait)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		e, err := reg.Get(ctx, item)
		if err == nil && ok(&e.Record) {
			return e.Record, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return record.Record{}, fmt.Errorf("wait for %s: %w; the record: state %s, %d outcomes", what, ctx.Err(), e.Record.State, len(e.Record.Recent))
		}
	}
}

// timeline prints the log of the demo's item as `loopfleet events` does.
func (d *demo) timeline(ctx context.Context, js eventlog.Reader, title string, since time.Time) error {
	if title != "" {
		if err := d.head(title); err != nil {
			return err
		}
	}
	return eventlog.Read(ctx, js, eventlog.Query{Since: since}, func(l eventlog.Line) error {
		return d.app.print(l.TextWidth(d.app.width()) + "\n")
	})
}

// show runs a command of this program against the demo.
func (d *demo) show(ctx context.Context, title string, args ...string) error {
	if err := d.head(title); err != nil {
		return err
	}
	a := d.quiet()
	empty := filepath.Join(d.dir, "demo.yaml")
	if err := writePrivate(empty, ""); err != nil {
		return err
	}
	if code := run(ctx, append([]string{"--config", empty, "--state-dir", d.dir}, args...), a.getenv, a.stdin, a.stdout, a.stderr); code != exitDone {
		return &quietError{err: fmt.Errorf("loopfleet %s failed", strings.Join(args, " "))}
	}
	return nil
}

// wrapped breaks a line of JSON at its commas, indented, and shows no more than
// a few lines of it; what fits stays as it is.
func wrapped(text string, width int) string {
	const indent, most = "  ", 6
	if columns(indent+text) <= width {
		return indent + text + "\n"
	}
	var b strings.Builder
	line, lines := indent, 0
	for part := range strings.SplitAfterSeq(text, ",") {
		if line != indent && columns(line+part) > width {
			if lines++; lines == most {
				return b.String() + indent + "…\n"
			}
			b.WriteString(fit(line, width) + "\n")
			line = indent
		}
		line += part
	}
	return b.String() + fit(line, width) + "\n"
}

// natsCLI shows the same through the plain nats CLI, when it is there.
func (d *demo) natsCLI(ctx context.Context, item workitem.Ref) error {
	if err := d.head("5. The same with the plain nats CLI"); err != nil {
		return err
	}
	commands := [][]string{
		{"stream", "subjects", "LOOP_EVENTS"},
		{"kv", "get", "loop_registry", item.Key(), "--raw"},
		{"stream", "get", "LOOP_LOG", "--last-for", "loop.log.dispatch.succeeded"},
	}
	url, err := os.ReadFile(process.EmbeddedURLFile(d.dir))
	if err != nil {
		return fmt.Errorf("address of the demo's server: %w", err)
	}
	program, lookErr := exec.LookPath("nats")
	for _, c := range commands {
		if err := d.app.printf("  $ nats %s\n", strings.Join(c, " ")); err != nil {
			return err
		}
		if lookErr != nil {
			continue
		}
		cmd := exec.CommandContext(ctx, program, append([]string{"--server", strings.TrimSpace(string(url))}, c...)...) //nolint:gosec // G204: our own words
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("nats %s: %w: %s", strings.Join(c, " "), err, eventlog.Escape(string(out)))
		}
		for line := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
			if err := d.app.print(wrapped(eventlog.Escape(line), d.app.width())); err != nil {
				return err
			}
		}
	}
	if lookErr != nil {
		return d.app.print("\n  The nats CLI is not on PATH, so the three are only named; `make demo` builds it.\n")
	}
	return nil
}
