package doctor

import (
	"context"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/config"
)

// Level is how bad a finding is.
type Level string

// Levels.
const (
	// OK: it is as it should be.
	OK Level = "ok"
	// Warn: it works, and somebody may be surprised.
	Warn Level = "warn"
	// Fail: something will not work.
	Fail Level = "fail"
)

// Finding is what became of one check.
type Finding struct {
	// Check is the check's short name; several findings may share it.
	Check string `json:"check"`
	Level Level  `json:"level"`
	// What was found.
	What string `json:"what"`
	// Why it matters, and what to Do; both empty when all is well.
	Why string `json:"why"`
	Do  string `json:"do"`
}

// Deps are the machine that is looked at.
type Deps struct {
	Config config.Config
	Getenv func(string) string
	// Executable is this program, for the built-in demo harness.
	Executable string
	// Secret is the hook's; Secret and SecretErr are what reading it gave.
	Secret    []byte
	SecretErr error
	// Connect opens the configured server; the caller closes the connection.
	Connect func(ctx context.Context) (*nats.Conn, jetstream.JetStream, error)
	// Client asks the forge and our own listeners; nil means a default one.
	Client *http.Client
	// Now is the machine's clock; nil means time.Now.
	Now func() time.Time
}

// checkTime bounds one check.
const checkTime = 10 * time.Second

type doctor struct{ Deps }

// Run makes every check, in an order that is pleasant to read.
func Run(ctx context.Context, d Deps) []Finding {
	if d.Client == nil {
		d.Client = &http.Client{Timeout: checkTime}
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	doc := &doctor{d}
	var out []Finding
	for _, check := range []func(context.Context) []Finding{
		doc.configuration, doc.tmux, doc.git, doc.harnesses, doc.stateDir, doc.secret, doc.authorized,
		doc.ports, doc.clock, doc.nats, doc.token,
	} {
		cctx, cancel := context.WithTimeout(ctx, checkTime)
		out = append(out, check(cctx)...)
		cancel()
	}
	return out
}

// Failed reports whether any finding is a failure.
func Failed(fs []Finding) bool {
	for _, f := range fs {
		if f.Level == Fail {
			return true
		}
	}
	return false
}

func ok(check, what string) []Finding { return []Finding{{Check: check, Level: OK, What: what}} }

func bad(level Level, check, what, why, do string) []Finding {
	return []Finding{{Check: check, Level: level, What: what, Why: why, Do: do}}
}

// configuration repeats the warnings of a start, but for what has a check of its
// own.
func (d *doctor) configuration(context.Context) []Finding {
	var out []Finding
	cfg := d.Config
	cfg.Webhooks.GHWebhook.Insecure = false
	if !authorises(cfg.Routing) {
		cfg.Routing.AuthorizedUsers = []string{"somebody"}
	}
	for _, w := range config.Warnings(cfg) {
		out = append(out, bad(Warn, "config", w, "it is allowed and probably not meant", "correct it, or leave it if it is meant")...)
	}
	if len(out) == 0 {
		return ok("config", "the configuration is valid")
	}
	return out
}

func (d *doctor) secret(context.Context) []Finding {
	const check = "secret"
	hook := d.Config.Webhooks.GHWebhook
	switch {
	case d.SecretErr != nil:
		return bad(Fail, check, d.SecretErr.Error(), "the webhook receiver does not start without it", "correct the variable or the file it names")
	case len(d.Secret) > 0:
		return ok(check, "the webhook secret is set")
	case hook.Insecure:
		return bad(Warn, check, "there is no webhook secret, and webhooks.ghWebhook.insecure is set",
			"whoever can connect to "+hook.Listen+" can start agents", "set "+hook.SecretEnv+" for anything but a trial")
	case d.Config.Polling.Enabled:
		return bad(Warn, check, hook.SecretEnv+" is not set", "the webhook receiver does not start; only polling brings events", "set it to the secret of the hook on GitHub, if webhooks are meant to come")
	default:
		return bad(Fail, check, hook.SecretEnv+" is not set", "the webhook receiver does not start without it",
			"set it, or "+hook.SecretEnv+"_FILE, to the secret of the hook on GitHub; `loopfleet up --generate-secret` makes one")
	}
}

func authorises(r config.Routing) bool {
	return len(r.AuthorizedUsers) > 0 || r.MinimumPermission != ""
}

func (d *doctor) authorized(context.Context) []Finding {
	const check = "authorized"
	r := d.Config.Routing
	if !authorises(r) {
		return bad(Warn, check, "nobody is authorised", "no label, comment or review of anybody reaches an agent",
			"list logins in routing.authorizedUsers, or set routing.minimumPermission")
	}
	what := "whoever has " + r.MinimumPermission + " permission"
	if r.MinimumPermission == "" {
		what = countOf(len(r.AuthorizedUsers), "login")
	}
	return ok(check, what+" may start and prompt agents")
}
