package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"loopfleet/pkg/testutil/waitfor"
)

// program is this test binary under a name that makes it the real program; see
// TestMain.
func program(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "loopfleet")
	if err := os.WriteFile(path, b, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// with lists the processes whose command line holds the text.
func with(t *testing.T, text string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte(text)) {
			out = append(out, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return out
}

func TestDemo_LeavesNothing(t *testing.T) {
	t.Parallel()
	bin := program(t)
	for name, tc := range map[string]struct {
		// at is the line at which the signal is sent.
		at     string
		signal syscall.Signal
	}{
		"at its end":              {},
		"when interrupted":        {"== 3.", syscall.SIGINT},
		"when its terminal hangs": {"== 3.", syscall.SIGHUP},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "lfd") //nolint:usetesting // short, for sockets
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			cmd := exec.CommandContext(t.Context(), bin, "demo")
			cmd.Env = append(os.Environ(), "TMPDIR="+dir)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var stderr strings.Builder
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			lines := bufio.NewScanner(out)
			for lines.Scan() {
				text.WriteString(lines.Text() + "\n")
				if tc.signal != 0 && strings.HasPrefix(lines.Text(), tc.at) {
					if err := cmd.Process.Signal(tc.signal); err != nil {
						t.Fatal(err)
					}
				}
			}
			err = cmd.Wait()
			if (err == nil) != (tc.signal == 0) {
				t.Errorf("it ended with %v\n%s%s", err, text.String(), stderr.String())
			}
			if tc.signal == 0 && !strings.Contains(text.String(), "octo/hello#42 is closed (issue-closed)") {
				t.Errorf("it did not come to its end:\n%s%s", text.String(), stderr.String())
			}
			waitfor.Until(t, "no process of the demo to be left", func() bool { return len(with(t, dir)) == 0 })
			if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %q, %v", left, err)
			}
		})
	}
}

func TestWrapped(t *testing.T) {
	t.Parallel()
	long := `{"a":1,"b":"two","c":[` + strings.TrimSuffix(strings.Repeat("3,", 200), ",") + "]}"
	for name, tc := range map[string]struct {
		in, want string
	}{
		"what fits":       {"loop.events", "  loop.events\n"},
		"nothing":         {"", "  \n"},
		"at its commas":   {`{"a":"one","b":"two"}`, "  {\"a\":\"one\",\n  \"b\":\"two\"}\n"},
		"without a comma": {strings.Repeat("x", 30), "  " + strings.Repeat("x", 17) + "…\n"},
		"too much":        {long, "  {\"a\":1,\"b\":\"two\",\n  \"c\":[3,3,3,3,3,3,\n" + strings.Repeat("  3,3,3,3,3,3,3,3,3,\n", 3) + "  …\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := wrapped(tc.in, 20); got != tc.want {
				t.Errorf("got\n%swant\n%s", got, tc.want)
			}
		})
	}
}
