package config

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
		Workspace: Workspace{Strategy: "worktree"},
		Worker:    Worker{Capacity: 20, OnStop: "keep", FenceSeconds: 20},
		Metrics:   Metrics{Listen: "127.0.0.1:8788"},
		GitHub:    GitHub{APIURL: "https://api.github.com", TokenEnv: "GITHUB_TOKEN"},
		Harnesses: map[string]Harness{
			"claude": {},
			"demo":   {Command: []string{"loopfleet", "demo-agent"}, Receipt: "file"},
		},
	}
}
