package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"loopfleet/pkg/config"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/process"
)

const (
	// hookTimeout is longer than any answer should take: the forge gives up
	// after 10 s.
	hookTimeout = 30 * time.Second
	// maxAnswer bounds what is read of an answer, in bytes.
	maxAnswer = 64 << 10
)

// hookFlags are the flags of `send-hook`.
type hookFlags struct {
	event, file, url     string
	delivery, secretEnv  string
	unsigned, json, noOp bool
}

func newSendHookCommand(a *app) *cobra.Command {
	var fl hookFlags
	cmd := &cobra.Command{
		Use:   "send-hook --event NAME --file FILE",
		Short: "Sign a webhook payload and post it, as GitHub would",
		Long: `Sign a payload and post it to a running ingress, and print its answer. It is how
to try things without a forge, and how to send a delivery again that was missed:
give its GUID with --delivery-id.

The secret is in the variable that --secret-env names; else in the one of the
configuration (webhooks.ghWebhook.secretEnv); else in the state directory, where
` + "`loopfleet up --generate-secret`" + ` keeps it.

The exit status is 1 when the answer is not 2xx.`,
		Example: `  loopfleet send-hook --event issues --file payload.json
  loopfleet send-hook --event issue_comment --file - < comment.json
  loopfleet send-hook --event issues --file payload.json --dry-run`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.sendHook(cmd, fl) },
	}
	f := cmd.Flags()
	f.StringVar(&fl.event, "event", "", "`name` of the event, as in X-GitHub-Event: issues, issue_comment, ...")
	f.StringVar(&fl.file, "file", "", "`file` with the payload; - for standard input")
	f.StringVar(&fl.url, "url", "", "`address` of the ingress (default: from the configuration, http://127.0.0.1:8787/webhooks/github)")
	f.StringVar(&fl.delivery, "delivery-id", "", "`GUID` of the delivery (default: a new one)")
	f.StringVar(&fl.secretEnv, "secret-env", "", "environment variable `NAME` that holds the secret")
	f.BoolVar(&fl.unsigned, "unsigned", false, "send no signature, to see it refused")
	f.BoolVar(&fl.json, "json", false, "print JSON")
	f.BoolVar(&fl.noOp, "dry-run", false, "print the request instead of sending it")
	return cmd
}

// hookAnswer is the JSON of `send-hook`.
type hookAnswer struct {
	URL        string `json:"url"`
	DeliveryID string `json:"delivery_id"`
	Status     int    `json:"status"`
	Answer     string `json:"answer"`
}

var (
	errNoSecret = errors.New("there is no webhook secret to sign with")
	errRefused  = errors.New("the ingress refused the delivery")
)

func (a *app) sendHook(cmd *cobra.Command, fl hookFlags) error {
	if fl.event == "" || fl.file == "" {
		return usagef(cmd, "send-hook needs --event and --file")
	}
	cfg, err := a.settings()
	if err != nil {
		return err
	}
	body, err := a.payload(fl.file)
	if err != nil {
		return err
	}
	if fl.url == "" {
		fl.url = hookURL(cfg.Webhooks.GHWebhook)
	}
	if u, err := url.Parse(fl.url); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return usagef(cmd, "--url %q is no http address", fl.url)
	}
	if fl.delivery == "" {
		fl.delivery = uuid.NewString()
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), hookTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fl.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("post to %s: %w", fl.url, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "loopfleet-send-hook")
	req.Header.Set("X-GitHub-Event", fl.event)
	req.Header.Set("X-GitHub-Delivery", fl.delivery)
	if !fl.unsigned {
		secret, err := a.hookSecret(cfg, fl.secretEnv)
		if err != nil {
			return err
		}
		req.Header.Set("X-Hub-Signature-256", sign(secret, body))
	}
	if fl.noOp {
		return a.printf("would send %d bytes\nPOST %s\n%s", len(body), fl.url, headers(req))
	}
	return a.post(req, fl)
}

// headers is what identifies a delivery. The signature tells nothing of the
// secret.
func headers(req *http.Request) string {
	var b strings.Builder
	for _, name := range []string{"Content-Type", "X-GitHub-Event", "X-GitHub-Delivery", "X-Hub-Signature-256"} {
		if v := req.Header.Get(name); v != "" {
			fmt.Fprintf(&b, "%s: %s\n", name, eventlog.Escape(v))
		}
	}
	return b.String()
}

func (a *app) post(req *http.Request, fl hookFlags) error {
	client := http.Client{
		// A hook is not followed elsewhere by GitHub either.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		return &hintError{
			err:  fmt.Errorf("send delivery %s: %w", fl.delivery, err),
			hint: "is the ingress running (`loopfleet up`), and is this its address? --url gives another one",
		}
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer to delivery %s: %w", fl.delivery, err)
	}
	text := strings.TrimSpace(string(answer))
	if fl.json {
		err = a.printJSON(hookAnswer{URL: fl.url, DeliveryID: fl.delivery, Status: res.StatusCode, Answer: text})
	} else {
		err = a.print(answerText(res.StatusCode, fl.delivery, text))
	}
	if err == nil && res.StatusCode/100 != 2 {
		err = fmt.Errorf("%w %s: status %d", errRefused, fl.delivery, res.StatusCode)
	}
	return err
}

func answerText(code int, delivery, answer string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s  delivery %s\n", code, http.StatusText(code), eventlog.Escape(delivery))
	if answer == "" {
		return b.String()
	}
	for line := range strings.SplitSeq(answer, "\n") {
		b.WriteString(eventlog.Escape(strings.TrimSuffix(line, "\r")) + "\n")
	}
	return b.String()
}

func (a *app) payload(file string) ([]byte, error) {
	if file == "-" {
		b, err := io.ReadAll(a.stdin)
		if err != nil {
			return nil, fmt.Errorf("read the payload from standard input: %w", err)
		}
		return b, nil
	}
	b, err := os.ReadFile(file) //nolint:gosec // G304: the operator names it
	if err != nil {
		return nil, fmt.Errorf("read the payload: %w", err)
	}
	return b, nil
}

// hookURL is where the configured ingress is reached from this machine.
func hookURL(cfg config.GHWebhook) string {
	host, port, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port) + cfg.Path
}

// hookSecret finds the secret that the ingress on this machine checks with.
func (a *app) hookSecret(cfg config.Config, env string) (string, error) {
	if env != "" {
		if s := a.getenv(env); s != "" {
			return s, nil
		}
		return "", fmt.Errorf("%w: the variable %s is not set", errNoSecret, env)
	}
	secret, err := process.WebhookSecret(cfg, a.getenv)
	if err != nil || len(secret) > 0 {
		return string(secret), err
	}
	name := cfg.Webhooks.GHWebhook.SecretEnv
	return "", &hintError{
		err:  fmt.Errorf("%w: %s is not set, and %s is not there", errNoSecret, name, process.SecretFile(cfg.StateDir)),
		hint: "set " + name + " to the hook's secret, or start `loopfleet up --generate-secret`",
	}
}

func sign(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}
