package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"loopfleet/pkg/config"
	"loopfleet/pkg/natsconn"
	"loopfleet/streams"
)

// Environment variables that sign a process in to NATS.
const (
	EnvNATSUser     = "LOOPFLEET_NATS_USER"
	EnvNATSPassword = "LOOPFLEET_NATS_PASSWORD" //nolint:gosec // G101: a variable's name, not a password
	EnvNATSToken    = "LOOPFLEET_NATS_TOKEN"    //nolint:gosec // G101: the same
)

// Version is set at build time; Build falls back to what Go knows.
var Version = ""

// Build is the program's version for people.
func Build() string {
	if Version != "" {
		return Version
	}
	if bi, ok := debug.ReadBuildInfo(); ok && bi.Main.Version != "" && bi.Main.Version != "(devel)" {
		return bi.Main.Version
	}
	return "dev"
}

// Flags are the ones that every command takes.
type Flags struct {
	ConfigFile, StateDir, NATSURL, LogLevel string
}

// Register adds the flags to a flag set.
func (f *Flags) Register(set *pflag.FlagSet) {
	set.StringVar(&f.ConfigFile, "config", "", "configuration `file` (default: $LOOPFLEET_CONFIG, ./loopfleet.yaml, ~/.config/loopfleet/config.yaml)")
	set.StringVar(&f.StateDir, "state-dir", "", "state `directory`, instead of stateDir of the configuration")
	set.StringVar(&f.NATSURL, "nats-url", "", "`address` of the NATS server, instead of nats.url of the configuration")
	set.StringVar(&f.LogLevel, "log-level", "", "how much to log on standard error: debug, info, warn or error")
}

// Settings loads the configuration and applies the flags.
func (f *Flags) Settings(getenv func(string) string) (config.Config, error) {
	cfg, err := config.Load(f.ConfigFile, getenv)
	if err != nil {
		return config.Config{}, err
	}
	if f.StateDir != "" {
		cfg.StateDir = f.StateDir
	}
	// Agents work elsewhere and are told paths below it.
	if cfg.StateDir, err = filepath.Abs(cfg.StateDir); err != nil {
		return config.Config{}, fmt.Errorf("state directory: %w", err)
	}
	if f.NATSURL != "" {
		cfg.NATS.URL = f.NATSURL
	}
	return cfg, nil
}

// ErrLogLevel says that --log-level is none.
var ErrLogLevel = errors.New("--log-level is debug, info, warn or error")

// Logger writes to w, for people on a terminal and as JSON lines otherwise.
// Level holds unless --log-level says another.
func (f *Flags) Logger(w io.Writer, level zerolog.Level, getenv func(string) string) (zerolog.Logger, error) {
	if f.LogLevel != "" {
		l, err := zerolog.ParseLevel(f.LogLevel)
		if err != nil || l < zerolog.DebugLevel || l > zerolog.ErrorLevel {
			return zerolog.Nop(), fmt.Errorf("%w, not %q", ErrLogLevel, f.LogLevel)
		}
		level = l
	}
	if Terminal(w) {
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: time.TimeOnly, NoColor: getenv("NO_COLOR") != ""}
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger(), nil
}

// Terminal reports whether w is one.
func Terminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// HintError is a failure that a person can do something about.
type HintError struct {
	Err  error
	What string
}

// Error is the cause's text.
func (e *HintError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *HintError) Unwrap() error { return e.Err }

// Hint says what to do.
func (e *HintError) Hint() string { return e.What }

// ErrNoServer says that nothing tells where the fleet's server is.
var ErrNoServer = errors.New("no NATS server is known")

// EmbeddedURLFile is where `loopfleet up` leaves the address of its server, user
// and password included.
func EmbeddedURLFile(stateDir string) string { return filepath.Join(stateDir, "nats", "url") }

// Connect opens the configured server, or the one that `loopfleet up` runs on
// this machine. The caller closes the connection.
func Connect(ctx context.Context, cfg config.Config, name string, getenv func(string) string, log zerolog.Logger) (*nats.Conn, jetstream.JetStream, error) {
	o := natsconn.Options{
		URL: cfg.NATS.URL, CredentialsFile: cfg.NATS.CredentialsFile,
		User: getenv(EnvNATSUser), Password: getenv(EnvNATSPassword), Token: getenv(EnvNATSToken),
		Name: name, Log: log,
	}
	hint := "is the server up, and is this its address? --nats-url gives another one"
	if o.URL == "" {
		file := EmbeddedURLFile(cfg.StateDir)
		var err error
		if o.URL, err = embeddedURL(file); err != nil {
			return nil, nil, err
		}
		// The address carries its own user.
		o.User, o.Password, o.Token, o.CredentialsFile = "", "", "", ""
		hint = "the address is from " + file + ": is `loopfleet up` still running?"
	}
	nc, js, err := natsconn.Connect(ctx, o)
	if errors.Is(err, natsconn.ErrUnreachable) {
		err = &HintError{Err: err, What: hint}
	}
	return nc, js, err
}

func embeddedURL(file string) (string, error) {
	b, err := os.ReadFile(file) //nolint:gosec // G304: in our own state directory
	url := strings.TrimSpace(string(b))
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && url == "":
		return "", &HintError{
			Err:  fmt.Errorf("%w: nats.url is not set and %s, where `loopfleet up` writes its server's address, is not there", ErrNoServer, file),
			What: "start `loopfleet up`, or give --nats-url nats://host:4222",
		}
	case err != nil:
		return "", fmt.Errorf("read the embedded server's address: %w", err)
	}
	return url, nil
}

// Provision brings streams, buckets and consumers up to what this program needs
// and logs what it changed. What it must not change is an error that says so.
func Provision(ctx context.Context, js jetstream.JetStream, opts streams.Options, log zerolog.Logger) error {
	diff, err := streams.Apply(ctx, js, opts)
	if err != nil {
		return fmt.Errorf("prepare the streams: %w", err)
	}
	if !diff.Clean() {
		log.Info().Msg("streams prepared")
		for line := range strings.Lines(diff.String()) {
			log.Debug().Msg(strings.TrimSpace(line))
		}
	}
	return nil
}

// WebhookSecret is the hook's secret: from its environment variable or the file
// that <name>_FILE names, else from the file that `loopfleet up` generated.
// Empty means that there is none.
func WebhookSecret(cfg config.Config, getenv func(string) string) ([]byte, error) {
	s, err := cfg.Webhooks.GHWebhook.Secret(getenv)
	if err != nil || s != "" {
		return []byte(s), err
	}
	b, err := os.ReadFile(SecretFile(cfg.StateDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the generated webhook secret: %w", err)
	}
	return []byte(strings.TrimSpace(string(b))), nil
}

// SecretFile is where `loopfleet up --generate-secret` keeps the secret.
func SecretFile(stateDir string) string { return filepath.Join(stateDir, "webhook-secret") }
