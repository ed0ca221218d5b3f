package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/harness"
)

// programVersion runs a program for its version; missing says that it is not on
// PATH.
func programVersion(ctx context.Context, name, flag string) (path, version string, missing bool, err error) {
	path, err = exec.LookPath(name)
	if err != nil {
		return "", "", true, err
	}
	out, err := exec.CommandContext(ctx, path, flag).Output() //nolint:gosec // G204: two fixed names
	if err != nil {
		return path, "", false, fmt.Errorf("run %s %s: %w", path, flag, err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return path, eventlog.Escape(strings.TrimSpace(first)), false, nil
}

var tmuxNumber = regexp.MustCompile(`(\d+)\.(\d+)([a-z]?)`)

// tmux older than 3.2 lacks what is used of it; up to 3.3a, a paste into a dead
// pane ends the server.
func (d *doctor) tmux(ctx context.Context) []Finding {
	const check = "tmux"
	path, version, missing, err := programVersion(ctx, check, "-V")
	switch {
	case missing:
		return bad(Fail, check, "tmux is not installed", "every agent runs in it", "install it, on Debian: apt-get install tmux")
	case err != nil:
		return bad(Fail, check, err.Error(), "every agent runs in it", "see what it says in a shell")
	}
	return judgeTmux(path, version)
}

func judgeTmux(path, version string) []Finding {
	const check = "tmux"
	m := tmuxNumber.FindStringSubmatch(version)
	if m == nil {
		return bad(Warn, check, version+" at "+path+": no release that is known here", "it was not tested", "prefer a release from 3.4 on")
	}
	major, _ := strconv.Atoi(m[1]) // digits, by the pattern
	minor, _ := strconv.Atoi(m[2])
	switch at := major*100 + minor; {
	case at < 302:
		return bad(Fail, check, version+" at "+path+" is too old", "it lacks what keeps a screen and pastes safely", "install 3.4 or newer")
	case at < 304:
		return bad(Warn, check, version+" at "+path, "its server crashes when something is pasted into a pane whose program has ended; Loopfleet asks it first, in the same command, but you may not",
			"install 3.4 or newer (Debian 13 has 3.5a)")
	default:
		return ok(check, version+" at "+path)
	}
}

func (d *doctor) git(ctx context.Context) []Finding {
	const check = "git"
	path, version, missing, err := programVersion(ctx, check, "--version")
	level := Warn
	if d.Config.Workspace.Root != "" {
		level = Fail
	}
	switch {
	case missing:
		return bad(level, check, "git is not installed", "checkouts need it, and so do agents", "install it, on Debian: apt-get install git")
	case err != nil:
		return bad(level, check, err.Error(), "checkouts need it, and so do agents", "see what it says in a shell")
	}
	return ok(check, version+" at "+path)
}

func (d *doctor) harnesses(context.Context) []Finding {
	const check = "harness"
	set, err := harness.NewSet(d.Config.Harnesses, d.Executable)
	if err != nil {
		return bad(Fail, check, err.Error(), "no agent can be started", "correct harnesses in the configuration")
	}
	var out []Finding
	for _, name := range set.Names() {
		a, err := set.Adapter(name)
		var path string
		if err == nil {
			path, err = a.Find()
		}
		isDefault := name == d.Config.Routing.DefaultHarness
		switch {
		case err == nil && isDefault:
			out = append(out, ok(check, name+" (the default) at "+eventlog.Escape(path))...)
		case err == nil:
			out = append(out, ok(check, name+" at "+eventlog.Escape(path))...)
		case isDefault:
			out = append(out, bad(Fail, check, eventlog.Escape(err.Error()), "it is routing.defaultHarness: every spawn on this machine fails",
				"install it for the user that runs the worker, or choose another default")...)
		default:
			out = append(out, bad(Warn, check, eventlog.Escape(err.Error()), "an item that runs on it fails on this machine",
				"install it, or leave it if no item uses it here")...)
		}
	}
	return out
}

const (
	lowDisk  = 1 << 30
	fullDisk = 100 << 20
)

func (d *doctor) stateDir(context.Context) []Finding {
	const check = "state"
	dir := d.Config.StateDir
	why, do := "sessions, receipts and the embedded server are kept there", "give the directory to the user that runs Loopfleet, or name another with stateDir or --state-dir"
	at, err := nearest(dir)
	if err != nil {
		return bad(Fail, check, err.Error(), why, do)
	}
	if err := writable(at); err != nil {
		return bad(Fail, check, err.Error(), why, do)
	}
	what := dir + " can be written"
	if at != dir {
		what = dir + " will be made in " + at
	}
	free, err := freeBytes(at)
	if err != nil {
		return bad(Warn, check, err.Error(), "a full disk loses nothing that was accepted, and refuses what is new", "see df in a shell")
	}
	what += fmt.Sprintf(", %d MiB free", free>>20)
	switch {
	case free < fullDisk:
		return bad(Fail, check, what, "the event stream refuses new events, and agents cannot work", "free some space")
	case free < lowDisk:
		return bad(Warn, check, what, "checkouts and the event stream soon fill it", "free some space")
	default:
		return ok(check, what)
	}
}

// nearest is dir, or the directory above it that is there and in which it would
// be made.
func nearest(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		switch fi, err := os.Stat(at); {
		case err == nil && !fi.IsDir():
			return "", fmt.Errorf("%s is no directory", at)
		case err == nil:
			return at, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("look at the state directory: %w", err)
		case at == filepath.Dir(at):
			return "", fmt.Errorf("nothing of %s is there", dir)
		}
	}
}

func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".loopfleet-doctor-*")
	if err != nil {
		return fmt.Errorf("write in the state directory: %w", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func freeBytes(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return st.Bavail * uint64(st.Bsize), nil //nolint:gosec // G115: a block's size is positive
}

// ports looks whether the configured addresses are free, or taken by what is
// meant to have them.
func (d *doctor) ports(ctx context.Context) []Finding {
	var out []Finding
	for _, p := range []struct{ key, addr, path string }{
		{"webhooks.ghWebhook.listen", d.Config.Webhooks.GHWebhook.Listen, "/healthz"},
		{"metrics.listen", d.Config.Metrics.Listen, "/metrics"},
	} {
		out = append(out, d.port(ctx, p.key, p.addr, p.path)...)
	}
	return out
}

func (d *doctor) port(ctx context.Context, key, addr, path string) []Finding {
	const check = "port"
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err == nil {
		_ = l.Close()
		return ok(check, addr+" is free ("+key+")")
	}
	if d.ours(ctx, addr, path) {
		return ok(check, addr+" is held by a Loopfleet that runs ("+key+")")
	}
	return bad(Fail, check, eventlog.Escape(err.Error())+" ("+key+")", "Loopfleet cannot listen there", "end what holds it, or give another address in "+key)
}

// ours reports whether what listens answers as Loopfleet does.
func (d *doctor) ours(ctx context.Context, addr, path string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "" || host == "0.0.0.0" || host == "::" {
		host = "127.0.0.1"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+path, http.NoBody)
	if err != nil {
		return false
	}
	resp, err := d.Client.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil || resp.StatusCode != http.StatusOK {
		return false
	}
	if path == "/metrics" {
		return strings.Contains(string(body), "loopfleet_")
	}
	var alive map[string]string
	return json.Unmarshal(body, &alive) == nil && len(alive) == 1 && alive["status"] == "ok"
}

// clock judges what can be judged without anybody else: GitHub's deliveries and
// the leases bear a wrong clock, logs and app tokens do not. The server's is
// compared with the connection.
func (d *doctor) clock(context.Context) []Finding {
	const check = "clock"
	now := d.Now()
	if now.Year() < 2025 {
		return bad(Fail, check, "the clock says "+now.Format(time.RFC3339), "TLS and tokens fail, and the log is useless", "set the clock; run an NTP client")
	}
	return ok(check, now.UTC().Format(time.RFC3339))
}

func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
