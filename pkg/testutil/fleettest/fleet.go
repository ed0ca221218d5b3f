package fleettest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.yaml.in/yaml/v3"

	"loopfleet/pkg/config"
	"loopfleet/pkg/registry"
	"loopfleet/streams"
)

const (
	// Secret signs the webhooks of every fleet.
	Secret = "fleettest"

	startTime = 40 * time.Second
	stopTime  = 60 * time.Second
)

// Fleet is one server with any number of workers and ingresses, each with a
// state directory of its own, as if it were on a machine of its own.
type Fleet struct {
	// Dir holds everything: files of the server, states, logs of processes.
	Dir    string
	Server *Server
	JS     jetstream.JetStream
	Reg    *registry.Registry

	tb  testing.TB
	bin string
	cfg config.Config

	mu     sync.Mutex
	procs  []*Proc
	change map[string]func(*config.Config)
}

// New starts a server with the product's streams. Change adapts the
// configuration of all processes.
func New(tb testing.TB, change ...func(*config.Config)) *Fleet {
	tb.Helper()
	bin := binaries(tb)
	dir, err := os.MkdirTemp("", "lf") // short, for sockets
	if err != nil {
		tb.Fatal(err)
	}
	f := &Fleet{Dir: dir, tb: tb, bin: bin, cfg: settings(bin), change: map[string]func(*config.Config){}}
	tb.Cleanup(f.end)
	for _, c := range change {
		c(&f.cfg)
	}
	if f.Server, err = newServer(filepath.Join(bin, "nats-server"), dir); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), startTime)
	defer cancel()
	if err := f.Server.Start(ctx); err != nil {
		tb.Fatal(err)
	}
	nc, err := nats.Connect(f.Server.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	if f.JS, err = jetstream.New(nc); err != nil {
		tb.Fatal(err)
	}
	if _, err := streams.Apply(ctx, f.JS, streams.Options{}); err != nil {
		tb.Fatal(err)
	}
	if f.Reg, err = registry.Open(ctx, f.JS); err != nil {
		tb.Fatal(err)
	}
	return f
}

// settings are the product's defaults, without its long waits.
func settings(bin string) config.Config {
	c := config.Default()
	c.Webhooks.GHWebhook.Listen = "127.0.0.1:0"
	c.Metrics.Listen = "127.0.0.1:0"
	c.Routing.AuthorizedUsers = []string{"alice"}
	c.Routing.DefaultHarness = "demo"
	c.Routing.RetryBackoffSeconds = []int{1}
	c.Routing.ArmGraceSeconds = 5
	c.Routing.MaxEventsPerHour = 1_000_000
	c.Routing.Tmux.HarnessKillGraceSeconds = 2
	c.Harnesses = map[string]config.Harness{
		"demo": {Command: []string{filepath.Join(bin, "loopfleet"), "demo-agent"}, Receipt: "file"},
	}
	return c
}

// Configure adapts the configuration of one process, from its next start on.
func (f *Fleet) Configure(id string, change func(*config.Config)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.change[id] = change
}

// TryWorker starts a worker and waits until it takes work. Env is added to its
// environment, as in "DISPATCH_LAG=1s". With an error, the process, which is nil
// when it could not be started, may still run.
func (f *Fleet) TryWorker(ctx context.Context, id string, env ...string) (*Proc, error) {
	c := f.cfg
	c.Worker.ID = id
	p, err := f.start("worker", id, c, env)
	if err != nil {
		return nil, err
	}
	_, err = p.awaitReady(ctx)
	return p, err
}

// Worker is TryWorker for a test that cannot go on without it.
func (f *Fleet) Worker(id string, env ...string) *Proc {
	f.tb.Helper()
	ctx, cancel := context.WithTimeout(f.tb.Context(), startTime)
	defer cancel()
	p, err := f.TryWorker(ctx, id, env...)
	if err != nil {
		f.tb.Fatal(err)
	}
	return p
}

// Ingress is a running ingress process.
type Ingress struct {
	*Proc
	// URL is the hook's address.
	URL string
}

// TryIngress starts an ingress and waits until it accepts webhooks; as with
// TryWorker, its process may still run after an error.
func (f *Fleet) TryIngress(ctx context.Context, id string, env ...string) (*Ingress, error) {
	p, err := f.start("ingress", id, f.cfg, env)
	if err != nil {
		return &Ingress{}, err
	}
	url, err := p.awaitReady(ctx)
	return &Ingress{Proc: p, URL: url}, err
}

// Ingress is TryIngress for a test that cannot go on without it.
func (f *Fleet) Ingress(id string, env ...string) *Ingress {
	f.tb.Helper()
	ctx, cancel := context.WithTimeout(f.tb.Context(), startTime)
	defer cancel()
	p, err := f.TryIngress(ctx, id, env...)
	if err != nil {
		f.tb.Fatal(err)
	}
	return p
}

func (f *Fleet) start(program, id string, c config.Config, env []string) (*Proc, error) {
	f.mu.Lock()
	change := f.change[id]
	f.mu.Unlock()
	if change != nil {
		change(&c)
	}
	c.StateDir = filepath.Join(f.Dir, id)
	c.NATS.URL = f.Server.URL()
	b, err := yaml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("configure %s: %w", id, err)
	}
	file := filepath.Join(f.Dir, id+".yaml")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return nil, fmt.Errorf("configure %s: %w", id, err)
	}
	environ := append(os.Environ(), c.Webhooks.GHWebhook.SecretEnv+"="+Secret, "DISPATCH_LAG=", "FAULT_KILL=", "GITHUB_TOKEN=")
	p, err := startProc(id, f.Dir, filepath.Join(f.bin, program), []string{"--config", file}, append(environ, env...))
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.procs = append(f.procs, p)
	f.mu.Unlock()
	return p, nil
}

// end stops everything and ends what the agents have left running.
func (f *Fleet) end() {
	f.mu.Lock()
	procs := f.procs
	f.mu.Unlock()
	for _, p := range procs {
		if p.Alive() {
			p.Kill()
		}
	}
	if f.Server != nil && f.Server.Proc != nil && f.Server.Alive() {
		f.Server.Kill()
	}
	if f.tb.Failed() {
		for _, p := range procs {
			f.tb.Logf("--- %s\n%s", p.Name, p.Tail())
		}
		f.tb.Logf("--- nats-server\n%s", f.Server.Tail())
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	endAll(ctx, f.tb, f.Dir)
	if err := os.RemoveAll(f.Dir); err != nil {
		f.tb.Errorf("remove %s: %v", f.Dir, err)
	}
}

// Stop terminates p, which must stop in order and in time.
func (f *Fleet) Stop(p *Proc) {
	f.tb.Helper()
	if err := p.Terminate(stopTime); err != nil {
		f.tb.Errorf("%v\n%s", err, p.Tail())
	}
}
