package streams_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loopfleet/pkg/testutil/natstest"
	"loopfleet/streams"
)

// natsCLI is the version that operators are told to use.
const natsCLI = "github.com/nats-io/natscli/nats@v0.5.0"

// findNATS returns the nats CLI: from PATH, from where `go install` puts it, or
// built into the user's cache, once per machine.
func findNATS(t *testing.T) string {
	t.Helper()
	if p, err := exec.LookPath("nats"); err == nil {
		return p
	}
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOBIN", "GOPATH").Output()
	if err != nil {
		t.Fatalf("go env: %v", err)
	}
	env := strings.Split(string(out), "\n")
	for _, p := range []string{filepath.Join(env[0], "nats"), filepath.Join(env[1], "bin", "nats")} {
		if filepath.IsAbs(p) {
			if _, err := os.Stat(p); err == nil {
				return p
			}
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(cache, "loopfleet-test", "natscli-v0.5.0")
	p := filepath.Join(bin, "nats")
	if _, err := os.Stat(p); err == nil {
		return p
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "install", natsCLI)
	cmd.Dir = t.TempDir() // outside our module
	cmd.Env = append(os.Environ(), "GOBIN="+bin, "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the nats CLI is not in PATH, and go install %s: %v\n%s", natsCLI, err, out)
	}
	return p
}

func TestDefinitions_NATSCLIAcceptsEveryFile(t *testing.T) {
	t.Parallel()
	cli := findNATS(t)
	s := natstest.StartTCP(t, "")
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), cli, append([]string{"--server", s.URL()}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_CONFIG_HOME=") // no context of the user's
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("nats %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	for _, d := range streams.Definitions() {
		if d.Kind == streams.Consumer || d.Kind == streams.Lanes {
			run("consumer", "add", d.Stream(), "--config", d.Path())
		} else {
			run("stream", "add", "--config", d.Path())
		}
	}
	if d := plan(t, s, streams.Options{}); !d.Clean() {
		t.Errorf("what the CLI made differs from what apply makes:\n%s", d)
	}
}
