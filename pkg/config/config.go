package config

import "time"

// Config is the whole file. Every key has a default; see Default.
type Config struct {
	// StateDir holds everything a process keeps on disk.
	StateDir  string    `yaml:"stateDir" validate:"required"`
	NATS      NATS      `yaml:"nats"`
	Webhooks  Webhooks  `yaml:"webhooks"`
	Polling   Polling   `yaml:"polling"`
	Routing   Routing   `yaml:"routing"`
	Workspace Workspace `yaml:"workspace"`
	Worker    Worker    `yaml:"worker"`
	Metrics   Metrics   `yaml:"metrics"`
	GitHub    GitHub    `yaml:"github"`
	// Harnesses are the agent CLIs by name.
	Harnesses map[string]Harness `yaml:"harnesses" validate:"dive,keys,harness_name,endkeys"`
	EventLog  EventLog           `yaml:"eventLog"`
}

// NATS says where the broker is.
type NATS struct {
	// URL is empty for the server that `loopfleet up` embeds.
	URL string `yaml:"url"`
	// CredentialsFile is a NATS .creds file; empty means none.
	CredentialsFile string `yaml:"credentialsFile"`
}

// Webhooks groups the receivers.
type Webhooks struct {
	GHWebhook GHWebhook `yaml:"ghWebhook"`
}

// GHWebhook is the receiver of GitHub's deliveries.
type GHWebhook struct {
	// Listen is HOST:PORT; port 0 is a free one.
	Listen string `yaml:"listen" validate:"listen_addr"`
	// Path is the only path that takes deliveries.
	Path string `yaml:"path" validate:"startswith=/"`
	// SecretEnv names the environment variable that holds the secret.
	SecretEnv string `yaml:"secretEnv" validate:"env_name"`
	// Events is the accepted event names; empty means the default nine.
	Events []string `yaml:"events" validate:"dive,required"`
	// Insecure accepts unsigned deliveries; only on a loopback address.
	Insecure bool `yaml:"insecure"`
}

// Polling configures the poller.
type Polling struct {
	// Enabled turns the poller on, with or without webhooks.
	Enabled bool `yaml:"enabled"`
	// IntervalSeconds is how long a cycle takes from start to start.
	IntervalSeconds int `yaml:"intervalSeconds" validate:"gte=1,lte=86400"`
	// MaxRetries is how many tries a spawn or a comment found by polling gets.
	MaxRetries int `yaml:"maxRetries" validate:"gte=1"`
	// Sources are what is polled.
	Sources []Source `yaml:"sources" validate:"dive"`
}

// Source is one forge account's repositories to poll.
type Source struct {
	// Provider is the kind of forge.
	Provider string `yaml:"provider" validate:"oneof=github"`
	// Repos are OWNER/NAME each.
	Repos []string `yaml:"repos" validate:"min=1,dive,repo_name"`
	// Monitor is everything when it is left out.
	Monitor Monitor `yaml:"monitor"`
}

// Monitor says what of a repository is polled.
type Monitor struct {
	// Issues includes issues.
	Issues bool `yaml:"issues"`
	// PullRequests includes pull requests.
	PullRequests bool `yaml:"pullRequests"`
}

// Routing decides which events become prompts, for whom, how often.
type Routing struct {
	// Label arms an item, compared case-insensitively.
	Label string `yaml:"label" validate:"required"`
	// AuthorizedUsers are the logins whose doings reach an agent.
	AuthorizedUsers []string `yaml:"authorizedUsers" validate:"dive,required"`
	// MinimumPermission authorises whoever has it on the repository; empty
	// authorises nobody but AuthorizedUsers.
	MinimumPermission string `yaml:"minimumPermission" validate:"omitempty,oneof=write maintain admin"`
	// AgentLogins are the accounts that agents post as; what they do is dropped.
	AgentLogins []string `yaml:"agentLogins" validate:"dive,required"`
	// DefaultHarness is the harness of an item that asks for none.
	DefaultHarness string `yaml:"defaultHarness" validate:"required"`
	// MaxRetries is how many tries an event gets in all.
	MaxRetries int `yaml:"maxRetries" validate:"gte=1"`
	// RetryBackoffSeconds are the waits after the first, second, ... failure;
	// the last serves all later ones.
	RetryBackoffSeconds []int `yaml:"retryBackoffSeconds" validate:"min=1,dive,gte=0,lte=604800"`
	// ReceiptTimeoutSeconds is how long a submitted prompt may go without a
	// receipt before it is reported as dead.
	ReceiptTimeoutSeconds int `yaml:"receiptTimeoutSeconds" validate:"gte=1,lte=86400"`
	// MaxEventsPerHour pauses an item that gets more prompts than that.
	MaxEventsPerHour int `yaml:"maxEventsPerHour" validate:"gte=1"`
	// ArmGraceSeconds is how long an event of a labelled item waits for the
	// label's own event, which may arrive after it.
	ArmGraceSeconds int `yaml:"armGraceSeconds" validate:"gte=0,lte=86400"`
	// QuietSeconds is how long a CI failure waits for others of its commit.
	QuietSeconds int  `yaml:"quietSeconds" validate:"gte=0,lte=86400"`
	Tmux         Tmux `yaml:"tmux"`
}

// Tmux says what is left of a session when its item closes.
type Tmux struct {
	// KeepSessionOnClose leaves the screen readable after the end.
	KeepSessionOnClose bool `yaml:"keepSessionOnClose"`
	// KillHarnessOnClose ends the agent even where its screen is kept.
	KillHarnessOnClose bool `yaml:"killHarnessOnClose"`
	// HarnessKillGraceSeconds is how long TERM is given before KILL; 0 is at
	// once.
	HarnessKillGraceSeconds float64 `yaml:"harnessKillGraceSeconds" validate:"gte=0,lte=3600"`
}

// Workspace says where agents work.
type Workspace struct {
	// Root is empty for a plain directory per work item.
	Root string `yaml:"root"`
	// Strategy is a worktree of one clone per repository, or a clone each.
	Strategy string `yaml:"strategy" validate:"oneof=worktree clone"`
	// CloneProtocol is how repositories are reached.
	CloneProtocol string `yaml:"cloneProtocol" validate:"oneof=https ssh"`
	// KeepCheckoutOnClose leaves the checkout when the item closes.
	KeepCheckoutOnClose bool `yaml:"keepCheckoutOnClose"`
}

// Worker configures the process that hosts sessions.
type Worker struct {
	// ID is stable across restarts; empty means one derived from the host.
	ID string `yaml:"id" validate:"omitempty,worker_id"`
	// Capacity is how many sessions it hosts at once.
	Capacity int `yaml:"capacity" validate:"gte=1"`
	// OnStop keeps the sessions running for the next start, or drains: ends
	// them and hands their items over.
	OnStop string `yaml:"onStop" validate:"oneof=keep drain"`
	// FenceSeconds is how long an agent outlives its worker's lease; 0 is for
	// ever, and then two agents may work on one item.
	FenceSeconds int `yaml:"fenceSeconds" validate:"gte=0,lte=3600"`
}

// Metrics is the listener of /metrics.
type Metrics struct {
	// Listen is HOST:PORT; port 0 is a free one.
	Listen string `yaml:"listen" validate:"listen_addr"`
}

// GitHub says how to talk to GitHub.
type GitHub struct {
	// APIURL is the REST API's root, of GitHub Enterprise too.
	APIURL string `yaml:"apiUrl" validate:"http_url"`
	// TokenEnv names the environment variable that holds the access token.
	TokenEnv string `yaml:"tokenEnv" validate:"omitempty,env_name"`
	// TokenFile is a file that holds the access token, instead.
	TokenFile string `yaml:"tokenFile"`
	// App is an App installation, instead of a token.
	App GitHubApp `yaml:"app"`
}

// GitHubApp authenticates as an App installation.
type GitHubApp struct {
	// ID is the App's number; 0 means none.
	ID int64 `yaml:"id" validate:"gte=0"`
	// KeyFile holds the App's private key, in PEM.
	KeyFile string `yaml:"keyFile"`
}

// Harness configures one agent CLI. A name that Loopfleet has no adapter for
// needs Command.
type Harness struct {
	// Args are added to the adapter's own.
	Args []string `yaml:"args"`
	// Command is the program and its arguments, for a harness without adapter.
	Command []string `yaml:"command"`
	// Receipt says how a harness without adapter confirms a prompt: by a line in
	// its receipts file, or not at all (none).
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
