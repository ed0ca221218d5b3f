package process_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"loopfleet/pkg/process"
)

// The exit statuses and what a person reads, for every binary alike.
func TestProgram_Run(t *testing.T) {
	t.Parallel()
	broken := errors.New("no server")
	for _, c := range []struct {
		name   string
		args   []string
		err    error
		status int
		stderr string
	}{
		{"done", nil, nil, 0, ""},
		{"failed", nil, &process.HintError{Err: broken, What: "start one"}, 1, "part: no server\nhint: start one\n"},
		{"argument", []string{"x"}, nil, 2, "takes no arguments"},
		{"unknown flag", []string{"--nope"}, nil, 2, "--nope"},
		{"log level", []string{"--log-level", "loud"}, process.ErrLogLevel, 2, "--log-level"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			p := process.Program{Name: "part", Short: "do a part", Serve: func(context.Context, *process.Flags) error { return c.err }}
			if got := p.Run(t.Context(), c.args, &stdout, &stderr); got != c.status {
				t.Errorf("status %d, want %d", got, c.status)
			}
			if !strings.Contains(stderr.String(), c.stderr) {
				t.Errorf("stderr %q, want %q in it", stderr.String(), c.stderr)
			}
		})
	}
}
