package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/process"
	"loopfleet/pkg/registry"
	"loopfleet/streams"
)

// mostSkew is how far clocks may be apart before somebody is told.
const mostSkew = 5 * time.Second

// nats looks at the server, what it holds and who works on it.
func (d *doctor) nats(ctx context.Context) []Finding {
	const check = "nats"
	nc, js, err := d.Connect(ctx)
	switch {
	case errors.Is(err, process.ErrNoServer):
		return bad(Warn, check, "no server is known: nats.url is not set, and `loopfleet up` does not run here",
			"nothing is received or worked on now", "start `loopfleet up`, or set nats.url")
	case err != nil:
		return bad(Fail, check, eventlog.Escape(err.Error()), "nothing can be received or worked on", "see that the server runs and that address, user and credentials are right")
	}
	defer nc.Close()
	out := ok(check, "connected to "+eventlog.Escape(nc.ConnectedUrlRedacted())+", server "+eventlog.Escape(nc.ConnectedServerVersion()))
	out = append(out, streamsPlan(ctx, js)...)
	out = append(out, d.skew(ctx, js)...)
	return append(out, workers(ctx, js)...)
}

func streamsPlan(ctx context.Context, js jetstream.JetStream) []Finding {
	const check = "streams"
	diff, err := streams.Plan(ctx, js, streams.Options{})
	switch {
	case err != nil:
		return bad(Fail, check, eventlog.Escape(err.Error()), "events are kept there", "see that JetStream is on and the user may manage streams")
	case diff.Count(streams.Refuse) > 0:
		return bad(Fail, check, fmt.Sprintf("%d of %d differ in what must not be changed by itself", diff.Count(streams.Refuse), len(diff.Objects)),
			"events may be lost or never handed out", "`loopfleet streams plan` shows what and how to go on")
	case !diff.Clean():
		return bad(Warn, check, fmt.Sprintf("%d are missing and %d differ", diff.Count(streams.Create), diff.Count(streams.Update)),
			"every process brings them up to date when it starts, and none has", "`loopfleet streams apply`, or start Loopfleet")
	default:
		return ok(check, fmt.Sprintf("all %d are as defined", len(diff.Objects)))
	}
}

func (d *doctor) skew(ctx context.Context, js jetstream.JetStream) []Finding {
	const check = "clock"
	begun := d.Now()
	st, err := js.Stream(ctx, streams.Events)
	if err != nil {
		return nil // told by the plan
	}
	info, err := st.Info(ctx)
	ended := d.Now()
	if err != nil || info.TimeStamp.IsZero() {
		return nil
	}
	apart := info.TimeStamp.Sub(begun.Add(ended.Sub(begun) / 2)).Round(time.Second)
	if apart.Abs() > mostSkew+ended.Sub(begun) {
		return bad(Warn, check, fmt.Sprintf("this machine and the NATS server are %s apart", apart.Abs()),
			"backoffs, waits and the log are judged by clocks of several machines", "run an NTP client on both")
	}
	return nil
}

func workers(ctx context.Context, js jetstream.JetStream) []Finding {
	const check = "workers"
	reg, err := registry.Open(ctx, js)
	if err != nil {
		return nil // told by the plan
	}
	_, alive, err := reg.Workers(ctx)
	if err != nil {
		return bad(Warn, check, eventlog.Escape(err.Error()), "who works is not known", "try again")
	}
	n := 0
	for _, is := range alive {
		if is {
			n++
		}
	}
	if n == 0 {
		return bad(Warn, check, "no worker is alive", "events are kept and wait", "start `loopfleet up` or a worker")
	}
	return ok(check, countOf(n, "worker")+" alive")
}

// maxAnswer bounds what is read of the forge's answer, in bytes.
const maxAnswer = 1 << 20

// token asks the forge what the configured token is good for.
func (d *doctor) token(ctx context.Context) []Finding {
	const check = "token"
	gh := d.Config.GitHub
	token, from, err := d.readToken()
	switch {
	case err != nil:
		return bad(Fail, check, err.Error(), "tickets cannot be told of what is given up, and nothing can be polled", "correct github.tokenFile")
	case token == "" && gh.App.ID != 0:
		return ok(check, fmt.Sprintf("GitHub App %d is configured instead of a token", gh.App.ID))
	case token == "" && d.Config.Polling.Enabled:
		return bad(Fail, check, "there is no token, and polling.enabled is true", "GitHub answers few questions without one",
			"set the variable that github.tokenEnv names, or github.tokenFile")
	case token == "":
		return bad(Warn, check, "there is no token", "tickets are not told of what is given up, and agents may not be able to post",
			"set the variable that github.tokenEnv names, or github.tokenFile")
	}
	return d.askForge(ctx, token, from)
}

func (d *doctor) readToken() (token, from string, err error) {
	gh := d.Config.GitHub
	if gh.TokenFile != "" {
		b, err := os.ReadFile(gh.TokenFile)
		if err != nil {
			return "", "", fmt.Errorf("read the token: %w", err)
		}
		return strings.TrimSpace(string(b)), gh.TokenFile, nil
	}
	if gh.TokenEnv == "" {
		return "", "", nil
	}
	return strings.TrimSpace(d.Getenv(gh.TokenEnv)), gh.TokenEnv, nil
}

func (d *doctor) askForge(ctx context.Context, token, from string) []Finding {
	const check = "token"
	unreachable := func(err error) []Finding {
		// The address is the operator's; the token is in a header and in no error.
		return bad(Fail, check, "ask for the rate limit: "+eventlog.Escape(err.Error()), "the forge cannot be asked or told anything", "see that github.apiUrl is right and reachable from here")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(d.Config.GitHub.APIURL, "/")+"/rate_limit", http.NoBody)
	if err != nil {
		return unreachable(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "application/vnd.github+json")
	resp, err := d.Client.Do(req)
	if err != nil {
		return unreachable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return unreachable(err)
	}
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized:
		return bad(Fail, check, "the forge does not know the token of "+from, "it has expired, was revoked, or is another forge's", "make a new one and put it there")
	case http.StatusNotFound: // GitHub Enterprise with rate limits turned off
		return ok(check, "the token of "+from+" is accepted; the forge has no rate limit")
	default:
		return bad(Warn, check, "the forge answers "+resp.Status+" when asked for the rate limit", "what it will answer to other questions is not known", "look at the forge's status page, or ask a person who runs it")
	}
	var limits struct {
		Resources struct {
			Core struct{ Limit, Remaining, Reset int64 }
		}
	}
	core := &limits.Resources.Core
	if err := json.Unmarshal(body, &limits); err != nil || core.Limit <= 0 {
		return bad(Warn, check, "the forge's answer about the rate limit cannot be read", "github.apiUrl may not be a GitHub API", "see that it is the API's root, such as https://api.github.com")
	}
	what := fmt.Sprintf("the token of %s is accepted, %d of %d requests are left until %s", from, core.Remaining, core.Limit, time.Unix(core.Reset, 0).UTC().Format(time.TimeOnly))
	if core.Remaining*10 < core.Limit {
		return bad(Warn, check, what, "nothing more can be asked or told once they are used up", "wait until then; see what else uses the token")
	}
	return ok(check, what)
}
