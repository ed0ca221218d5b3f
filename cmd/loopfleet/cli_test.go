package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/workitem"
)

func TestRun_ExitStatus(t *testing.T) {
	t.Parallel()
	noServer := []string{"--nats-url", "nats://127.0.0.1:1"}
	for name, tc := range map[string]struct {
		args   []string
		want   exitCode
		stderr string
	}{
		"help":                  {[]string{"--help"}, exitDone, ""},
		"nothing":               {nil, exitDone, ""},
		"help of a command":     {[]string{"help", "sessions", "list"}, exitDone, ""},
		"version":               {[]string{"--version"}, exitDone, ""},
		"unknown command":       {[]string{"sesions"}, exitUsage, "hint: did you mean sessions?"},
		"group alone":           {[]string{"workers"}, exitUsage, "loopfleet workers needs a subcommand: list"},
		"unknown subcommand":    {[]string{"sessions", "lst"}, exitUsage, `unknown command "lst" for loopfleet sessions`},
		"unknown flag":          {[]string{"workers", "list", "--nope"}, exitUsage, "hint: see `loopfleet workers list --help`"},
		"flag of another type":  {[]string{"events", "--limit", "many"}, exitUsage, "invalid argument"},
		"argument missing":      {[]string{"sessions", "show"}, exitUsage, "loopfleet sessions show needs ITEM"},
		"argument too many":     {[]string{"workers", "list", "x"}, exitUsage, `takes no arguments, not also "x"`},
		"bad item":              {append(noServer, "sessions", "show", "x"), exitUsage, "not a work item"},
		"bad item in a flag":    {append(noServer, "events", "--work-item", "x"), exitUsage, "not a work item"},
		"bad glob":              {append(noServer, "events", "--type", "x"), exitUsage, "no log type matches"},
		"bad log level":         {append(noServer, "--log-level", "trace", "workers", "list"), exitUsage, "debug, info, warn or error"},
		"malformed glob":        {append(noServer, "events", "--type", "["), exitUsage, "syntax error in pattern"},
		"negative lines":        {append(noServer, "sessions", "peek", "o/r#1", "--lines", "-1"), exitUsage, "cannot be negative"},
		"bad replicas":          {append(noServer, "streams", "plan", "--replicas", "0"), exitUsage, "1, 3 or 5"},
		"no server":             {append(noServer, "workers", "list"), exitFailed, "hint: is the server up"},
		"configuration missing": {[]string{"--config", "/nonexistent/x.yaml", "config", "check"}, exitFailed, "/nonexistent/x.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			getenv := func(name string) string { return map[string]string{"HOME": "/nonexistent"}[name] }
			if got := run(t.Context(), tc.args, getenv, strings.NewReader(""), &stdout, &stderr); got != tc.want {
				t.Errorf("exit status %d, want %d; stderr:\n%s", got, tc.want, &stderr)
			}
			if tc.want == exitDone && (stdout.Len() == 0 || stderr.Len() > 0) {
				t.Errorf("stdout:\n%s\nstderr:\n%s", &stdout, &stderr)
			}
			if tc.want != exitDone && !strings.HasPrefix(stderr.String(), "loopfleet: ") || !strings.Contains(stderr.String(), tc.stderr) {
				t.Errorf("stderr lacks %q:\n%s", tc.stderr, &stderr)
			}
		})
	}
}

// Every command that reads has --json; every command explains itself.
func TestCommands_ExplainThemselvesAndTakeJSON(t *testing.T) {
	t.Parallel()
	noJSON := map[string]bool{ // they print what they print, or change this terminal
		"loopfleet config example": true, "loopfleet config schema": true, "loopfleet sessions attach": true,
		"loopfleet up": true, "loopfleet demo": true, "loopfleet demo-agent": true, "loopfleet man": true,
	}
	commands := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.HasSubCommands() || c.Hidden || c.Name() == "help" {
			return
		}
		commands++
		path := c.CommandPath()
		if c.Short == "" || c.Long == "" {
			t.Errorf("%s has no help", path)
		}
		if c.Flags().Lookup("json") == nil && !noJSON[path] {
			t.Errorf("%s takes no --json", path)
		}
		for line := range strings.Lines(c.Long + "\n" + c.Example) {
			if columns(line) > 90 {
				t.Errorf("help of %s does not fit: %s", path, line)
			}
		}
	}
	walk(newRoot(&app{getenv: func(string) string { return "" }}))
	if commands < 10 {
		t.Errorf("only %d commands", commands)
	}
}

func TestView_BelievesLeasesMoreThanRecords(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 15, 4, 5, 0, time.UTC)
	ws := workers{
		now: now,
		byID: map[string]registry.Worker{
			"run":     {ID: "run", State: registry.WorkerRunning},
			"drain":   {ID: "drain", State: registry.WorkerDraining},
			"restart": {ID: "restart", State: registry.WorkerRestarting, Until: now.Add(time.Minute)},
			"late":    {ID: "late", State: registry.WorkerRestarting, Until: now.Add(-time.Minute)},
			"back":    {ID: "back", State: registry.WorkerRestarting, Until: now.Add(-time.Minute)},
			"stopped": {ID: "stopped", State: registry.WorkerStopped},
			"killed":  {ID: "killed", State: registry.WorkerRunning},
		},
		alive: map[string]bool{"run": true, "drain": true, "back": true, "new": true},
	}
	for _, tc := range []struct {
		worker string
		state  record.State
		want   record.State
		said   workerState
	}{
		{"run", record.StateActive, record.StateActive, "running"},
		{"drain", record.StateActive, record.StateActive, "draining"},
		{"restart", record.StateActive, record.StateActive, "restarting"},
		{"back", record.StateActive, record.StateActive, "running"},
		{"new", record.StateStarting, record.StateStarting, "running"},
		{"late", record.StateActive, record.StateLost, "lost"},
		{"killed", record.StateStarting, record.StateLost, "lost"},
		{"killed", record.StatePaused, record.StateLost, "lost"},
		{"killed", record.StateFailed, record.StateFailed, "lost"},
		{"killed", record.StateClosed, record.StateClosed, "lost"},
		{"killed", record.StateSleeping, record.StateSleeping, "lost"},
		{"stopped", record.StateActive, record.StateLost, "stopped"},
		{"unheard-of", record.StateActive, record.StateLost, "lost"},
	} {
		t.Run(tc.worker+" "+string(tc.state), func(t *testing.T) {
			t.Parallel()
			rec := record.Record{State: tc.state, Reason: "why", Session: &record.Session{Host: tc.worker}}
			got := view(&rec, ws)
			if got.State != tc.want || ws.state(tc.worker) != tc.said {
				t.Errorf("session %s, worker %s; want %s, %s", got.State, ws.state(tc.worker), tc.want, tc.said)
			}
			reason := "why"
			if tc.want == record.StateLost {
				reason = tc.worker
			}
			if got.Reason != reason || got.Worker != tc.worker {
				t.Errorf("reason %q of worker %q, want %q of %q", got.Reason, got.Worker, reason, tc.worker)
			}
		})
	}
}

// The keys are a contract; so is that an unset one is there.
func TestSessionView_HasExactlyTheKeysOfTheContract(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(view(&record.Record{}, workers{}))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"work_item": "", "state": "", "incarnation": 0.0, "worker": "", "harness": "", "harness_session_id": "",
		"tmux_target": "", "tmux_socket": "", "cwd": "", "last_event_at": nil, "reason": "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestClosest(t *testing.T) {
	t.Parallel()
	var known []workitem.Ref
	for _, s := range []string{"octo/hello#1", "octo/hello#42", "octo/hello#420", "octo/other#42", "github:git.example.com/octo/hello#42"} {
		known = append(known, mustParse(t, s))
	}
	for item, want := range map[string][]string{
		"octo/hello#43":     {"octo/hello#42", "octo/hello#1", "octo/hello#420"},
		"octo/helo#42":      {"octo/hello#42", "octo/hello#420", "git.example.com/octo/hello#42"},
		"octo/nothing#42":   nil,
		"someone/else#1":    nil,
		"octo/otter#999999": {"octo/other#42"},
	} {
		var got []string
		for _, r := range closest(mustParse(t, item), known) {
			got = append(got, short(r))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", item, diff)
		}
	}
}

func mustParse(t *testing.T, s string) workitem.Ref {
	t.Helper()
	r, err := workitem.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestFit(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text       string
		width      int
		begin, end string
	}{
		{"hello", 5, "hello", "hello"},
		{"hello!", 5, "hell…", "…llo!"},
		{"日本語", 6, "日本語", "日本語"},
		{"日本語", 5, "日本…", "…本語"},
		{"日本語", 4, "日…", "…語"},
		{"", 3, "", ""},
	} {
		if got := fit(tc.text, tc.width); got != tc.begin {
			t.Errorf("fit(%q, %d) = %q, want %q", tc.text, tc.width, got, tc.begin)
		}
		if got := fitEnd(tc.text, tc.width); got != tc.end {
			t.Errorf("fitEnd(%q, %d) = %q, want %q", tc.text, tc.width, got, tc.end)
		}
	}
}

func TestPlainJSON_KeepsTheValue(t *testing.T) {
	t.Parallel()
	in := map[string]string{"a": "\x1b[2J \u009b31m \u202e \u200b \U000e0001 \x7f é 日本 <&> \"\\"}
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	text := plainJSON(raw)
	for _, c := range text {
		if c < ' ' || c == 0x7f || c == 0x9b || c == 0x202e || c == 0x200b || c == 0xe0001 {
			t.Errorf("%U reaches the terminal", c)
		}
	}
	var out map[string]string
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, out); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAgo(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 15, 4, 5, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		-time.Hour: "now", 0: "now", 59 * time.Second: "59s ago", time.Minute: "1m ago",
		59 * time.Minute: "59m ago", time.Hour: "1h ago", 47 * time.Hour: "47h ago", 49 * time.Hour: "2d ago",
	} {
		if got := ago(now, now.Add(-d)); got != want {
			t.Errorf("ago(%s) = %q, want %q", d, got, want)
		}
	}
	if got := ago(now, time.Time{}); got != "" {
		t.Errorf("ago of never = %q", got)
	}
}

func TestSince(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 15, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"90s": now.Add(-90 * time.Second), "1h30m": now.Add(-90 * time.Minute), "2d": now.Add(-48 * time.Hour),
		"2026-01-30T00:00:00Z": time.Date(2026, 1, 30, 0, 0, 0, 0, time.UTC),
	} {
		if got, err := since(text, now); err != nil || !got.Equal(want) {
			t.Errorf("since(%q) = %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"1", "-1h", "-2d", "d", "tomorrow", "1w"} {
		if got, err := since(text, now); err == nil {
			t.Errorf("since(%q) = %s, want an error", text, got)
		}
	}
}

func TestAttachLine_IsSafeToPaste(t *testing.T) {
	t.Parallel()
	got := attachLine(&record.Session{TmuxSocket: "/run/$(touch pwn)'x", TmuxTarget: "loop-a;b\x1b"}, true)
	want := `env -u TMUX tmux -u -S '/run/$(touch pwn)'\''x' attach-session -t '=loop-a;b\x1b:' -r`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
