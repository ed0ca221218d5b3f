package config

import "slices"

// DefaultEvents is what an omitted or empty list of webhook events means: every
// event that can concern a work item.
var DefaultEvents = []string{
	"issues", "issue_comment", "pull_request", "pull_request_review",
	"pull_request_review_comment", "workflow_run", "check_run", "check_suite", "status",
}

// Default returns the configuration of an empty file.
func Default() Config {
	return Config{
		StateDir: "~/.local/share/loopfleet",
		//nolint:gosec // G101: the name of a variable, not a secret
		Webhooks: Webhooks{GHWebhook: GHWebhook{
			Listen: "127.0.0.1:8787", Path: "/webhooks/github", SecretEnv: "LOOPFLEET_WEBHOOK_SECRET",
		}},
		Polling: Polling{IntervalSeconds: 60, MaxRetries: 3},
		Routing: Routing{
			Label: "loopfleet", DefaultHarness: "claude",
			MaxRetries: 3, RetryBackoffSeconds: []int{5, 30, 120},
			ReceiptTimeoutSeconds: 30, MaxEventsPerHour: 60, ArmGraceSeconds: 60, QuietSeconds: 20,
			Tmux: Tmux{KeepSessionOnClose: true, KillHarnessOnClose: true, HarnessKillGraceSeconds: 5},
		},
		Workspace: Workspace{Strategy: "worktree", CloneProtocol: "https"},
		Worker:    Worker{Capacity: 20, OnStop: "keep", FenceSeconds: 20},
		Metrics:   Metrics{Listen: "127.0.0.1:8788"},
		//nolint:gosec // G101: as above
		GitHub: GitHub{APIURL: "https://api.github.com", TokenEnv: "GITHUB_TOKEN"},
		Harnesses: map[string]Harness{
			"claude": {},
			"demo":   {Command: []string{"loopfleet", "demo-agent"}, Receipt: "file"},
		},
	}
}

// defaultSource is what a source is that names only its repositories.
func defaultSource() Source {
	return Source{Provider: "github", Monitor: Monitor{Issues: true, PullRequests: true}}
}

// adapters are the harnesses that Loopfleet knows how to start.
var adapters = []string{"claude", "codex", "copilot", "gemini", "opencode", "qwen"}

// HasAdapter reports whether the harness needs no command of its own.
func HasAdapter(harness string) bool { return slices.Contains(adapters, harness) }

// AcceptedEvents is Events, or the default ones when it is empty.
func (g GHWebhook) AcceptedEvents() []string {
	if len(g.Events) == 0 {
		return slices.Clone(DefaultEvents)
	}
	return slices.Clone(g.Events)
}
