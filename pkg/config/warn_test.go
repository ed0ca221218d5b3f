package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loopfleet/pkg/config"
)

// rule: CL-18
func TestEvents_OmittedOrEmptyIsTheDefaultNine(t *testing.T) {
	t.Parallel()
	nine := []string{
		"issues", "issue_comment", "pull_request", "pull_request_review",
		"pull_request_review_comment", "workflow_run", "check_run", "check_suite", "status",
	}
	for name, text := range map[string]string{
		"omitted": "", "no value": "webhooks: {ghWebhook: {events: }}", "empty": "webhooks: {ghWebhook: {events: []}}",
	} {
		cfg := parse(t, text)
		if diff := cmp.Diff(nine, cfg.Webhooks.GHWebhook.AcceptedEvents()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if w := strings.Join(config.Warnings(cfg), "\n"); strings.Contains(w, "events") {
			t.Errorf("%s warns: %s", name, w)
		}
	}
	cfg := parse(t, "webhooks: {ghWebhook: {events: [issues]}}")
	if diff := cmp.Diff([]string{"issues"}, cfg.Webhooks.GHWebhook.AcceptedEvents()); diff != "" {
		t.Error(diff)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	const fine = "routing: {authorizedUsers: [alice]}\n"
	tests := map[string]struct {
		text string
		want []string
	}{
		"fine":            {fine, nil},
		"by permission":   {"routing: {minimumPermission: write}", nil},
		"nobody":          {"", []string{"routing: nobody can start anything"}},
		"no issues":       {fine + "webhooks: {ghWebhook: {events: [pull_request]}}", []string{"events lists no issues: "}},                                                          // rule: CL-18
		"no pull request": {fine + "webhooks: {ghWebhook: {events: [issues, issue_comment]}}", []string{"events lists no pull_request: "}},                                           // rule: CL-18
		"neither":         {fine + "webhooks: {ghWebhook: {events: [status]}}", []string{"events lists no issues: ", "events lists no pull_request: "}},                              // rule: CL-18
		"unknown event":   {fine + "webhooks: {ghWebhook: {events: [issues, pull_request, isues]}}", []string{"isues is no event that is routed: did you mean issues?"}},             // and not a stop
		"hostile event":   {fine + `webhooks: {ghWebhook: {events: [issues, pull_request, "\e[1m"]}}`, []string{`"\x1b[1m" is no event that is routed: known are check_run, check`}}, // escaped
		"insecure":        {fine + "webhooks: {ghWebhook: {insecure: true}}", []string{"whoever can connect to 127.0.0.1:8787 can start agents"}},
		"not polled":      {fine + "polling: {sources: [{repos: [a/b]}]}", []string{"polling.enabled is false"}},
		"no fence":        {fine + "worker: {fenceSeconds: 0}", []string{"another may be started for the same item"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := config.Warnings(parse(t, tt.text))
			if len(got) != len(tt.want) {
				t.Fatalf("warnings %q, want %q", got, tt.want)
			}
			for i := range got {
				if !strings.Contains(got[i], tt.want[i]) {
					t.Errorf("warning %q, want %q", got[i], tt.want[i])
				}
			}
		})
	}
}

func TestSecret(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	tests := map[string]struct {
		env  func(string) string
		want string
		err  string
	}{
		"none":                {env: env()},
		"variable":            {env: env("S", " a b "), want: " a b "},
		"file":                {env: env("S_FILE", file("a", "hunter2\n")), want: "hunter2"},
		"one newline only":    {env: env("S_FILE", file("b", "hunter2\n\n")), want: "hunter2\n"},
		"a DOS newline":       {env: env("S_FILE", file("c", "hunter2\r\n")), want: "hunter2"},
		"no newline":          {env: env("S_FILE", file("d", "hunter2")), want: "hunter2"},
		"an empty file":       {env: env("S_FILE", file("e", "\n"))},
		"both":                {env: env("S", "hunter2", "S_FILE", file("f", "x")), err: "both S and S_FILE are set"},
		"a file that is gone": {env: env("S_FILE", filepath.Join(dir, "gone")), err: "read the file that S_FILE names"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := config.GHWebhook{SecretEnv: "S"}.Secret(tt.env)
			if got != tt.want {
				t.Errorf("secret %q, want %q", got, tt.want)
			}
			if (err == nil) != (tt.err == "") || err != nil && (!strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "hunter2")) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}
