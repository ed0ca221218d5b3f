package config

import "time"

// Config is the whole file. Every key has a default; see Default.
type Config struct {
	// StateDir holds everything a process keeps on disk.
	StateDir  string             `yaml:"stateDir" validate:"required"`
	NATS      NATS               `yaml:"nats"`
	Webhooks  Webhooks           `yaml:"webhooks"`
	Polling   Polling            `yaml:"polling"`
	Routing   Routing            `yaml:"routing"`
	Workspace Workspace          `yaml:"workspace"`
	Worker    Worker             `yaml:"worker"`
	Metrics   Metrics            `yaml:"metrics"`
	GitHub    GitHub             `yaml:"github"`
	Harnesses map[string]Harness `yaml:"harnesses"`
	EventLog  EventLog           `yaml:"eventLog"`
}

// NATS says where the broker is.
type NATS struct {
	// URL is empty for the server that `loopfleet up` embeds.
	URL             string `yaml:"url"`
	CredentialsFile string `yaml:"credentialsFile"`
}

// Webhooks groups the receivers.
type Webhooks struct {
	GHWebhook GHWebhook `yaml:"ghWebhook"`
}

// GHWebhook is the receiver of GitHub's deliveries.
type GHWebhook struct {
	Listen string `yaml:"listen" validate:"hostname_port"`
	Path   string `yaml:"path" validate:"startswith=/"`
	// SecretEnv names the environment variable that holds the secret.
	SecretEnv string `yaml:"secretEnv" validate:"required"`
	// Events is the accepted event names; empty means the default nine.
	Events []string `yaml:"events"`
	// Insecure accepts unsigned deliveries; only on a loopback address.
	Insecure bool `yaml:"insecure"`
}

// Polling configures the poller.
type Polling struct {
	Enabled         bool     `yaml:"enabled"`
	IntervalSeconds int      `yaml:"intervalSeconds" validate:"gte=1"`
	MaxRetries      int      `yaml:"maxRetries" validate:"gte=1"`
	Sources         []Source `yaml:"sources" validate:"dive"`
}

// Source is one forge account's repositories to poll.
type Source struct {
	Provider string   `yaml:"provider" validate:"oneof=github"`
	Repos    []string `yaml:"repos" validate:"min=1"`
	Monitor  Monitor  `yaml:"monitor"`
}

// Monitor says what of a repository is polled.
type Monitor struct {
	Issues       bool `yaml:"issues"`
	PullRequests bool `yaml:"pullRequests"`
}

// Routing decides which events become prompts, for whom, how often.
type Routing struct {
	// Label arms an item, compared case-insensitively.
	Label           string   `yaml:"label" validate:"required"`
	AuthorizedUsers []string `yaml:"authorizedUsers" validate:"dive,required"`
	// MinimumPermission is empty, write, maintain or admin.
	MinimumPermission string   `yaml:"minimumPermission" validate:"omitempty,oneof=write maintain admin"`
	AgentLogins       []string `yaml:"agentLogins" validate:"dive,required"`
	DefaultHarness    string   `yaml:"defaultHarness" validate:"required"`
	// MaxRetries is how many tries an event gets in all.
	MaxRetries            int   `yaml:"maxRetries" validate:"gte=1"`
	RetryBackoffSeconds   []int `yaml:"retryBackoffSeconds" validate:"min=1,dive,gte=0"`
	ReceiptTimeoutSeconds int   `yaml:"receiptTimeoutSeconds" validate:"gte=1"`
	MaxEventsPerHour      int   `yaml:"maxEventsPerHour" validate:"gte=1"`
	// ArmGraceSeconds is how long an event of a labelled item waits for the
	// label's own event, which may arrive after it.
	ArmGraceSeconds int `yaml:"armGraceSeconds" validate:"gte=0"`
	// QuietSeconds is how long a CI failure waits for others of its commit.
	QuietSeconds int  `yaml:"quietSeconds" validate:"gte=0"`
	Tmux         Tmux `yaml:"tmux"`
}

// Tmux says what is left of a session when its item closes.
type Tmux struct {
	KeepSessionOnClose      bool    `yaml:"keepSessionOnClose"`
	KillHarnessOnClose      bool    `yaml:"killHarnessOnClose"`
	HarnessKillGraceSeconds float64 `yaml:"harnessKillGraceSeconds" validate:"gte=0"`
}

// Workspace says where agents work.
type Workspace struct {
	// Root is empty for a plain directory per work item.
	Root                string `yaml:"root"`
	Strategy            string `yaml:"strategy" validate:"oneof=worktree clone"`
	KeepCheckoutOnClose bool   `yaml:"keepCheckoutOnClose"`
}

// Worker configures the process that hosts sessions.
type Worker struct {
	// ID is stable across restarts; empty means one derived from the host.
	ID       string `yaml:"id"`
	Capacity int    `yaml:"capacity" validate:"gte=1"`
	// OnStop is keep or drain.
	OnStop       string `yaml:"onStop" validate:"oneof=keep drain"`
	FenceSeconds int    `yaml:"fenceSeconds" validate:"gte=0"`
}

// Metrics is the listener of /metrics.
type Metrics struct {
	Listen string `yaml:"listen" validate:"hostname_port"`
}

// GitHub says how to talk to GitHub.
type GitHub struct {
	APIURL    string    `yaml:"apiUrl" validate:"http_url"`
	TokenEnv  string    `yaml:"tokenEnv"`
	TokenFile string    `yaml:"tokenFile"`
	App       GitHubApp `yaml:"app"`
}

// GitHubApp authenticates as an App installation.
type GitHubApp struct {
	ID      int64  `yaml:"id" validate:"gte=0"`
	KeyFile string `yaml:"keyFile"`
}

// Harness configures one agent CLI. A name that Loopfleet has no adapter for
// needs Command.
type Harness struct {
	// Args are added to the adapter's own.
	Args []string `yaml:"args"`
	// Command is the program and its arguments, for a harness without adapter.
	Command []string `yaml:"command"`
	// Receipt is file or none, for a harness without adapter.
	Receipt string `yaml:"receipt" validate:"omitempty,oneof=file none"`
}

// EventLog says where log events go besides LOOP_LOG.
type EventLog struct {
	// File gets one JSON object per line.
	File string `yaml:"file"`
}

// Interval is the poll cycle.
func (p Polling) Interval() time.Duration { return time.Duration(p.IntervalSeconds) * time.Second }

// ReceiptTimeout is how long a submitted prompt may go without a receipt.
func (r Routing) ReceiptTimeout() time.Duration {
	return time.Duration(r.ReceiptTimeoutSeconds) * time.Second
}

// ArmGrace is ArmGraceSeconds as a duration.
func (r Routing) ArmGrace() time.Duration { return time.Duration(r.ArmGraceSeconds) * time.Second }

// Quiet is QuietSeconds as a duration.
func (r Routing) Quiet() time.Duration { return time.Duration(r.QuietSeconds) * time.Second }

// Backoff is the wait before the try that follows the given number of failures
// (at least 1); the last entry serves all later ones.
func (r Routing) Backoff(failures int) time.Duration {
	i := min(max(failures-1, 0), len(r.RetryBackoffSeconds)-1)
	return time.Duration(r.RetryBackoffSeconds[i]) * time.Second
}

// KillGrace is how long TERM is given before KILL.
func (t Tmux) KillGrace() time.Duration {
	return time.Duration(t.HarnessKillGraceSeconds * float64(time.Second))
}
