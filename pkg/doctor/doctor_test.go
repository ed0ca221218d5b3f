package doctor_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/config"
	"loopfleet/pkg/doctor"
	"loopfleet/pkg/process"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/streams"
)

// machine is one on which all is well, but for what a test changes.
func machine(t *testing.T) doctor.Deps {
	t.Helper()
	cfg := config.Default()
	cfg.StateDir = t.TempDir()
	cfg.Webhooks.GHWebhook.Listen, cfg.Metrics.Listen = "127.0.0.1:0", "127.0.0.1:0"
	cfg.Routing.AuthorizedUsers = []string{"alice"}
	cfg.Routing.DefaultHarness = "sh"
	cfg.Harnesses = map[string]config.Harness{"sh": {Command: []string{"/bin/sh"}}}
	cfg.GitHub.TokenEnv = ""
	return doctor.Deps{
		Config: cfg, Getenv: func(string) string { return "" }, Executable: "/bin/sh", Secret: []byte("s"),
		Connect: func(context.Context) (*nats.Conn, jetstream.JetStream, error) { return nil, nil, process.ErrNoServer },
	}
}

// about returns the findings of a check.
func about(fs []doctor.Finding, check string) (out []doctor.Finding) {
	for _, f := range fs {
		if f.Check == check {
			out = append(out, f)
		}
	}
	return out
}

func TestRun_EachFinding(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	stranger := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(stranger.Close)
	ours := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			_, _ = w.Write([]byte(`{"status":"ok"}`))
			return
		}
		_, _ = w.Write([]byte("loopfleet_events_total 1\n"))
	}))
	t.Cleanup(ours.Close)
	addr := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }

	for name, tt := range map[string]struct {
		change      func(t *testing.T, d *doctor.Deps)
		check       string
		level       doctor.Level
		says, doing string
	}{
		"well: state":         {nil, "state", doctor.OK, "can be written", ""},
		"well: secret":        {nil, "secret", doctor.OK, "is set", ""},
		"well: authorised":    {nil, "authorized", doctor.OK, "1 login may start", ""},
		"well: harness":       {nil, "harness", doctor.OK, "sh (the default) at /", ""},
		"well: git":           {nil, "git", doctor.OK, "git version", ""},
		"well: configuration": {nil, "config", doctor.OK, "is valid", ""},
		"no token":            {nil, "token", doctor.Warn, "there is no token", "github.tokenFile"},
		"no server":           {nil, "nats", doctor.Warn, "no server is known", "loopfleet up"},
		"server away": {func(_ *testing.T, d *doctor.Deps) {
			d.Connect = func(context.Context) (*nats.Conn, jetstream.JetStream, error) {
				return nil, nil, errors.New("connect: \x1b[2Jrefused")
			}
		}, "nats", doctor.Fail, `connect: \x1b[2Jrefused`, "server runs"},
		"no secret":        {func(_ *testing.T, d *doctor.Deps) { d.Secret = nil }, "secret", doctor.Fail, "LOOPFLEET_WEBHOOK_SECRET is not set", "--generate-secret"},
		"secret file gone": {func(_ *testing.T, d *doctor.Deps) { d.SecretErr = os.ErrNotExist }, "secret", doctor.Fail, "not exist", "correct"},
		"no secret, polls": {func(_ *testing.T, d *doctor.Deps) { d.Secret, d.Config.Polling.Enabled = nil, true }, "secret", doctor.Warn, "is not set", "if webhooks"},
		"insecure":         {func(_ *testing.T, d *doctor.Deps) { d.Secret, d.Config.Webhooks.GHWebhook.Insecure = nil, true }, "secret", doctor.Warn, "insecure is set", "trial"},
		"nobody":           {func(_ *testing.T, d *doctor.Deps) { d.Config.Routing.AuthorizedUsers = nil }, "authorized", doctor.Warn, "nobody", "authorizedUsers"},
		// rule: CL-18
		"no close events": {func(_ *testing.T, d *doctor.Deps) { d.Config.Webhooks.GHWebhook.Events = []string{"issues"} }, "config", doctor.Warn, "lists no pull_request", "correct"},
		// rule: RR-05
		"no default harness": {func(_ *testing.T, d *doctor.Deps) {
			d.Config.Harnesses["sh"] = config.Harness{Command: []string{"/nonexistent/agent"}}
		}, "harness", doctor.Fail, "/nonexistent/agent", "install"},
		"no other harness": {func(_ *testing.T, d *doctor.Deps) {
			d.Config.Harnesses["other"] = config.Harness{Command: []string{"/nonexistent/agent"}}
		}, "harness", doctor.Warn, "/nonexistent/agent", "install"},
		"state is a file": {func(t *testing.T, d *doctor.Deps) {
			t.Helper()
			d.Config.StateDir = filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(d.Config.StateDir, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "state", doctor.Fail, "no directory", "--state-dir"},
		"state below a file": {func(t *testing.T, d *doctor.Deps) {
			t.Helper()
			f := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(f, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			d.Config.StateDir = filepath.Join(f, "state")
		}, "state", doctor.Fail, "not a directory", "--state-dir"},
		"state to be made":    {func(_ *testing.T, d *doctor.Deps) { d.Config.StateDir = filepath.Join(d.Config.StateDir, "a", "b") }, "state", doctor.OK, "will be made in", ""},
		"port of a stranger":  {func(_ *testing.T, d *doctor.Deps) { d.Config.Webhooks.GHWebhook.Listen = addr(stranger) }, "port", doctor.Fail, "address already in use", "webhooks.ghWebhook.listen"},
		"port of our ingress": {func(_ *testing.T, d *doctor.Deps) { d.Config.Webhooks.GHWebhook.Listen = addr(ours) }, "port", doctor.OK, "a Loopfleet that runs", ""},
		"port of our metrics": {func(_ *testing.T, d *doctor.Deps) { d.Config.Metrics.Listen = addr(ours) }, "port", doctor.OK, "a Loopfleet that runs", ""},
		"clock":               {func(_ *testing.T, d *doctor.Deps) { d.Now = func() time.Time { return time.Unix(0, 0) } }, "clock", doctor.Fail, "1970", "NTP"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := machine(t)
			d.Client = &http.Client{Timeout: 5 * time.Second}
			if tt.change != nil {
				tt.change(t, &d)
			}
			fs := doctor.Run(t.Context(), d)
			for _, f := range about(fs, tt.check) {
				if f.Level == tt.level && strings.Contains(f.What, tt.says) && strings.Contains(f.Do, tt.doing) {
					if f.Level != doctor.OK && (f.Why == "" || f.Do == "") {
						t.Errorf("it does not say why and what to do: %+v", f)
					}
					return
				}
			}
			t.Errorf("no %s that says %q and does %q in %+v", tt.level, tt.says, tt.doing, about(fs, tt.check))
		})
	}
}

func TestRun_LeavesTheStateDirectoryAsItWas(t *testing.T) {
	t.Parallel()
	d := machine(t)
	doctor.Run(t.Context(), d)
	if left, err := os.ReadDir(d.Config.StateDir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// The forge is asked only with a token, and no finding shows it.
func TestRun_Token(t *testing.T) {
	t.Parallel()
	const secret = "ghp_verysecret"
	for name, tt := range map[string]struct {
		status int
		body   string
		level  doctor.Level
		says   string
	}{
		"fine":         {200, `{"resources":{"core":{"limit":5000,"remaining":4999,"reset":1700000000}}}`, doctor.OK, "4999 of 5000"},
		"nearly spent": {200, `{"resources":{"core":{"limit":5000,"remaining":3,"reset":1700000000}}}`, doctor.Warn, "3 of 5000"},
		"revoked":      {401, `{"message":"Bad credentials"}`, doctor.Fail, "does not know the token"},
		"no limits":    {404, `{}`, doctor.OK, "no rate limit"},
		"broken":       {503, ``, doctor.Warn, "503"},
		"no API":       {200, `<html>`, doctor.Warn, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan string, 1)
			forge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked <- r.URL.Path + " " + r.Header.Get("Authorization")
				w.WriteHeader(tt.status)
				_, _ = w.Write([]byte(tt.body))
			}))
			defer forge.Close()
			d := machine(t)
			d.Config.GitHub.APIURL = forge.URL + "/api/v3/"
			d.Config.GitHub.TokenFile = filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(d.Config.GitHub.TokenFile, []byte(secret+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			fs := doctor.Run(t.Context(), d)
			if got := <-asked; got != "/api/v3/rate_limit Bearer "+secret {
				t.Errorf("asked %q", got)
			}
			got := about(fs, "token")
			if len(got) != 1 || got[0].Level != tt.level || !strings.Contains(got[0].What, tt.says) {
				t.Errorf("%+v, want %s: %s", got, tt.level, tt.says)
			}
			for _, f := range fs {
				if strings.Contains(f.What+f.Why+f.Do, secret) {
					t.Errorf("the token is shown: %+v", f)
				}
			}
		})
	}
}

// What a server holds, in the states that a fleet goes through.
func TestRun_Server(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, t.TempDir())
	t.Cleanup(s.Stop)
	d := machine(t)
	d.Connect = func(context.Context) (*nats.Conn, jetstream.JetStream, error) {
		nc := s.Connect(t)
		js, err := jetstream.New(nc)
		return nc, js, err
	}
	level := func(check string) doctor.Level {
		t.Helper()
		fs := about(doctor.Run(t.Context(), d), check)
		if len(fs) == 0 {
			return ""
		}
		return fs[len(fs)-1].Level
	}
	if got := level("streams"); got != doctor.Warn {
		t.Errorf("streams of a new server: %s", got)
	}
	if got := level("workers"); got != "" {
		t.Errorf("workers without streams: %s", got)
	}
	if _, err := streams.Apply(t.Context(), s.JS, streams.Options{}); err != nil {
		t.Fatal(err)
	}
	if got := level("streams"); got != doctor.OK {
		t.Errorf("streams as defined: %s", got)
	}
	if got := level("workers"); got != doctor.Warn {
		t.Errorf("no worker: %s", got)
	}
	if got := level("clock"); got != doctor.OK {
		t.Errorf("clock: %s", got)
	}
	d.Now = func() time.Time { return time.Now().Add(-time.Minute) }
	if got := level("clock"); got != doctor.Warn {
		t.Errorf("a clock that is a minute late: %s", got)
	}
}
