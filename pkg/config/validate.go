package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-playground/validator/v10"
)

// patterns are the rules of our own that a regular expression can state; the
// schema states them too.
var patterns = map[string]*regexp.Regexp{
	"env_name":     regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`),
	"harness_name": regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,31}$`),
	"repo_name":    regexp.MustCompile(`^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$`),
	"worker_id":    regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`),
}

// accessToken looks like a forge's access token.
var accessToken = regexp.MustCompile(`^(gh[a-z]_|github_pat_|glpat-)`)

// checker is the one validator; it caches what it learns about types.
var checker = newChecker()

func newChecker() *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	v.RegisterTagNameFunc(yamlName)
	rules := map[string]validator.Func{
		"listen_addr": func(fl validator.FieldLevel) bool { return listenAddr(fl.Field().String()) },
	}
	for name, re := range patterns {
		rules[name] = func(fl validator.FieldLevel) bool {
			s := fl.Field().String()
			return re.MatchString(s) && (name != "env_name" || !accessToken.MatchString(s))
		}
	}
	for name, fn := range rules {
		if err := v.RegisterValidation(name, fn); err != nil {
			panic(err) // the name is ours
		}
	}
	return v
}

// listenAddr accepts host:port; an empty host is every interface, port 0 a free
// one.
func listenAddr(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || strings.ContainsAny(host, " /@") {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// loopback reports whether only this machine can connect to the address.
func loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// secretive says whether a key's value must not be shown: it may be a secret
// that was put where its name belongs, or an address with a password in it.
func secretive(shown string) bool {
	for _, s := range []string{"secretEnv", "tokenEnv", "nats.url", "github.apiUrl"} {
		if strings.HasSuffix(shown, s) {
			return true
		}
	}
	return false
}

// add reports a problem of the key with the validator's name ns, unless it has
// one already.
func (d *decoder) add(ns, format string, args ...any) {
	p := d.placeOf(ns)
	if d.bad[p.shown] {
		return
	}
	d.bad[p.shown] = true
	d.problems = append(d.problems, Problem{
		File: d.file, Line: p.line, Column: p.column, Key: p.shown, Message: fmt.Sprintf(format, args...),
	})
}

// placeOf finds the key in the file. One that is not there stands where the
// nearest mapping around it does, or nowhere.
func (d *decoder) placeOf(ns string) place {
	if ns == rootName {
		return place{}
	}
	if p, ok := d.places[ns]; ok {
		return p
	}
	i := strings.LastIndexAny(ns, ".[")
	if i < 0 {
		return place{shown: ns}
	}
	p := d.placeOf(ns[:i])
	name := strings.TrimSuffix(ns[i+1:], "]")
	if _, err := strconv.Atoi(name); err == nil {
		p.shown += "[" + name + "]"
	} else {
		p.shown = join(p.shown, plain(name))
	}
	return p
}

// validate checks the values by themselves and against each other.
func (d *decoder) validate(cfg *Config) {
	var fields validator.ValidationErrors
	if err := checker.Struct(cfg); errors.As(err, &fields) {
		for _, fe := range fields {
			d.add(fe.Namespace(), "%s", message(fe))
		}
	} else if err != nil {
		panic(err) // not a struct
	}
	d.validateWebhook(cfg)
	d.validatePolling(&cfg.Polling)
	d.validateHarnesses(cfg)
	d.validateConnections(cfg)
}

// message says what a value must be.
func message(fe validator.FieldError) string {
	is := ", is " + shownValue(fe)
	switch fe.Tag() {
	case "required":
		return "must not be empty"
	case "gte":
		return "must be at least " + fe.Param() + is
	case "lte":
		return "must be at most " + fe.Param() + is
	case "min":
		return "must have at least " + fe.Param() + " entry"
	case "oneof":
		return "must be " + oneOf(strings.Fields(fe.Param())) + is
	case "startswith":
		return "must begin with " + fe.Param() + is
	case "http_url":
		return "must be an http:// or https:// address"
	case "listen_addr":
		return "must be HOST:PORT, such as 127.0.0.1:8787" + is
	case "env_name":
		return "must be the name of an environment variable that holds the secret, not the secret itself"
	case "harness_name":
		return "a harness's name has up to 32 of a-z, 0-9, dot, dash and underscore"
	case "repo_name":
		return "must be OWNER/NAME" + is
	case "worker_id":
		return "must have up to 64 letters, digits, dots, dashes and underscores" + is
	default:
		return "breaks the rule " + fe.Tag() + is
	}
}

func shownValue(fe validator.FieldError) string {
	if s, ok := fe.Value().(string); ok {
		return quote(s)
	}
	return fmt.Sprint(fe.Value())
}

func oneOf(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

func (d *decoder) validateWebhook(cfg *Config) {
	w := cfg.Webhooks.GHWebhook
	if w.Insecure && !loopback(w.Listen) {
		d.add(rootName+".webhooks.ghWebhook.insecure",
			"unsigned deliveries are accepted on a loopback address only, and listen is %s", quote(w.Listen))
	}
	if _, port, err := net.SplitHostPort(w.Listen); err == nil && port != "0" && w.Listen == cfg.Metrics.Listen {
		d.add(rootName+".metrics.listen", "is the address of webhooks.ghWebhook.listen too: use another port")
	}
}

func (d *decoder) validatePolling(p *Polling) {
	ns := rootName + ".polling"
	if p.Enabled && len(p.Sources) == 0 {
		d.add(ns+".sources", "must have at least one entry when polling.enabled is true")
	}
	for i, s := range p.Sources {
		if !s.Monitor.Issues && !s.Monitor.PullRequests {
			d.add(fmt.Sprintf("%s.sources[%d].monitor", ns, i), "polls nothing: set issues or pullRequests to true, or leave monitor out")
		}
	}
}

func (d *decoder) validateHarnesses(cfg *Config) {
	for name, h := range cfg.Harnesses {
		ns := rootName + ".harnesses[" + name + "]"
		switch {
		case len(h.Command) > 0 && h.Command[0] == "":
			d.add(ns+".command", "must begin with a program")
		case len(h.Command) == 0 && !HasAdapter(name):
			d.add(ns, "needs a command: there is an adapter for %s only", strings.Join(adapters, ", "))
		}
	}
	name := cfg.Routing.DefaultHarness
	if _, ok := cfg.Harnesses[name]; ok || name == "" {
		return
	}
	hint := ""
	if HasAdapter(name) {
		hint = fmt.Sprintf(": add `%s: {}` there", name)
	} else if best := nearest(name, slices.Collect(maps.Keys(cfg.Harnesses))); best != "" {
		hint = ": did you mean " + plain(best) + "?"
	}
	d.add(rootName+".routing.defaultHarness", "%s is not among the harnesses%s", quote(name), hint)
}

func (d *decoder) validateConnections(cfg *Config) {
	if app := cfg.GitHub.App; (app.ID == 0) != (app.KeyFile == "") {
		d.add(rootName+".github.app", "needs both id and keyFile")
	}
	if hasPassword(cfg.GitHub.APIURL) {
		d.add(rootName+".github.apiUrl", "must not carry a password: name the token's variable in github.tokenEnv")
	}
	for u := range strings.SplitSeq(cfg.NATS.URL, ",") {
		u = strings.TrimSpace(u)
		switch {
		case u == "" && cfg.NATS.URL == "":
		case !natsURL(u):
			d.add(rootName+".nats.url", "must be an address such as nats://127.0.0.1:4222, or several with commas between")
		case hasPassword(u):
			d.add(rootName+".nats.url", "must not carry a password: put it into a file and name that in nats.credentialsFile")
		}
	}
}

// expand replaces a leading ~ of every path.
func (d *decoder) expand(cfg *Config, home string) {
	for ns, p := range map[string]*string{
		"eventLog.file":        &cfg.EventLog.File,
		"github.app.keyFile":   &cfg.GitHub.App.KeyFile,
		"github.tokenFile":     &cfg.GitHub.TokenFile,
		"nats.credentialsFile": &cfg.NATS.CredentialsFile,
		"stateDir":             &cfg.StateDir,
		"workspace.root":       &cfg.Workspace.Root,
	} {
		rest, ok := strings.CutPrefix(*p, "~")
		switch {
		case !ok:
		case rest != "" && rest[0] != '/':
			d.add(rootName+"."+ns, "only ~ itself is known, not ~USER: write the path out")
		case home == "":
			d.add(rootName+"."+ns, "begins with ~ (%s), and HOME is not set: write the path out", quote(*p))
		default:
			*p = filepath.Join(home, rest)
		}
	}
}

// natsURL accepts what nats.go does, with a scheme or without.
func natsURL(s string) bool {
	u, err := parseURL(s)
	if err != nil || u.Hostname() == "" {
		return false
	}
	switch u.Scheme {
	case "nats", "tls", "ws", "wss":
		return true
	default:
		return false
	}
}

func hasPassword(s string) bool {
	u, err := parseURL(s)
	return err == nil && u.User != nil
}

func parseURL(s string) (*url.URL, error) {
	if !strings.Contains(s, "://") {
		s = "nats://" + s
	}
	return url.Parse(s)
}
