package ingress_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"loopfleet/pkg/config"
	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/ingress"
	"loopfleet/pkg/testutil/githubtest"
	"loopfleet/pkg/workitem"
)

var noBuffer = nats.ReconnectBufSize(-1)

func TestHandler_RefusesBadRequests(t *testing.T) { //nolint:tparallel // one counts for all
	t.Parallel()
	s := newSite(t)
	good := githubtest.LabeledIssue(42, "loopfleet").Body()
	sha1Sum := hmac.New(sha1.New, []byte(secret))
	sha1Sum.Write(good)
	const (
		asJSON = "application/json"
		asForm = "application/x-www-form-urlencoded"
	)
	h := func(kv ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	deep := []byte(strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000))
	tests := []struct {
		name    string
		req     *http.Request
		status  int
		reason  string
		level   event.Level
		headers map[string]string
	}{
		{name: "no content type", req: raw(t, s.hook, "", good, nil), status: 415, reason: "media-type"},
		{name: "text", req: raw(t, s.hook, "text/plain", good, nil), status: 415, reason: "media-type"},
		{name: "signature missing", req: raw(t, s.hook, asJSON, good, h("X-Hub-Signature-256", "")), status: 401, reason: "signature-missing"},
		{name: "signature SHA-1 only", req: raw(t, s.hook, asJSON, good, h("X-Hub-Signature-256", "", "X-Hub-Signature", "sha1="+hex.EncodeToString(sha1Sum.Sum(nil)))), status: 401, reason: "signature-sha1-only"},
		{name: "signature malformed", req: raw(t, s.hook, asJSON, good, h("X-Hub-Signature-256", "sha256=1234")), status: 401, reason: "signature-malformed"},
		{name: "signature of another secret", req: raw(t, s.hook, asJSON, good, h("X-Hub-Signature-256", githubtest.Sign("other", good))), status: 401, reason: "signature-wrong"},
		{name: "signature of another body", req: raw(t, s.hook, asJSON, good, h("X-Hub-Signature-256", githubtest.Sign(secret, []byte("{}")))), status: 401, reason: "signature-wrong"},
		{name: "no delivery id", req: raw(t, s.hook, asJSON, good, h("X-GitHub-Delivery", "")), status: 400, reason: "delivery-header"},
		{name: "hostile delivery id", req: raw(t, s.hook, asJSON, good, h("X-GitHub-Delivery", "a b\tc")), status: 400, reason: "delivery-header"},
		{name: "endless delivery id", req: raw(t, s.hook, asJSON, good, h("X-GitHub-Delivery", strings.Repeat("a", 129))), status: 400, reason: "delivery-header"},
		{name: "no event name", req: raw(t, s.hook, asJSON, good, h("X-GitHub-Event", "")), status: 400, reason: "event-header"},
		{name: "empty body", req: raw(t, s.hook, asJSON, nil, nil), status: 400, reason: "malformed"},
		{name: "no JSON", req: raw(t, s.hook, asJSON, []byte("hello"), nil), status: 400, reason: "malformed"},
		{name: "cut JSON", req: raw(t, s.hook, asJSON, good[:len(good)-1], nil), status: 400, reason: "malformed"},
		{name: "trailing data", req: raw(t, s.hook, asJSON, append(bytes.Clone(good), "{}"...), nil), status: 400, reason: "malformed"},
		{name: "duplicate keys", req: raw(t, s.hook, asJSON, append([]byte(`{"action":"opened",`), good[1:]...), nil), status: 400, reason: "malformed"},
		{name: "invalid UTF-8", req: raw(t, s.hook, asJSON, bytes.Replace(good, []byte("Spelling"), []byte("\xff\xfe"), 1), nil), status: 400, reason: "malformed"},
		{name: "bottomless nesting", req: raw(t, s.hook, asJSON, deep, nil), status: 400, reason: "malformed"},
		{name: "wrong types", req: raw(t, s.hook, asJSON, []byte(`{"action":7,"issue":[],"repository":"x"}`), nil), status: 400, reason: "malformed"},
		{name: "no repository", req: raw(t, s.hook, asJSON, []byte(`{"action":"labeled"}`), nil), status: 400, reason: "malformed"},
		{name: "form without payload", req: raw(t, s.hook, asForm, []byte("a=b"), nil), status: 400, reason: "malformed"},
		{name: "form badly encoded", req: raw(t, s.hook, asForm, []byte("payload=%zz"), nil), status: 400, reason: "malformed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			id := fmt.Sprintf("case-%s", workitem.Escape(strings.ReplaceAll(tt.name, " ", "-")))
			if tt.reason != "delivery-header" {
				tt.req.Header.Set("X-GitHub-Delivery", id)
			}
			got := s.do(t, tt.req)
			if got.Status != tt.status || got.Outcome != ingress.Rejected || got.Reason != tt.reason || got.Detail == "" {
				t.Fatalf("got %d %+v, want %d %s", got.Status, got.Answer, tt.status, tt.reason)
			}
			if tt.reason == "delivery-header" {
				return
			}
			lines := s.lines(t, eventlog.Query{TypeGlob: "webhook.rejected", Delivery: id})
			if len(lines) != 1 || lines[0].Reason() != tt.reason || fmt.Sprint(lines[0].Fields["status"]) != fmt.Sprint(tt.status) {
				t.Errorf("log lines: %s", show(lines))
			}
			// One bad request never hurts the next.
			s.accept(t, githubtest.Ping(), ingress.Ignored, "ping")
		})
	}
	if got := s.stored(t); len(got) != 0 {
		t.Errorf("bad requests were published: %+v", got)
	}
	if got := s.srv.Stats(); got.Rejected["malformed"] != 11 || got.Rejected["signature-wrong"] != 2 || got.Accepted != got.Dropped["ping"] {
		t.Errorf("counters: %+v", got)
	}
}

func TestHandler_Methods(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
		req := raw(t, s.hook, "application/json", []byte("{}"), nil)
		req.Method = method
		got := s.do(t, req)
		if got.Status != http.StatusMethodNotAllowed || got.Header.Get("Allow") != http.MethodPost {
			t.Errorf("%s: got %d, Allow %q", method, got.Status, got.Header.Get("Allow"))
		}
	}
	if got := s.do(t, raw(t, s.base+"/elsewhere", "application/json", nil, nil)); got.Status != http.StatusNotFound {
		t.Errorf("another path: got %d", got.Status)
	}
}

func TestHandler_TooLarge(t *testing.T) { //nolint:tparallel // one large body at a time is enough
	t.Parallel()
	s := newSite(t)
	huge := bytes.Repeat([]byte("a"), 25<<20+1)
	t.Run("announced", func(t *testing.T) {
		if got := s.do(t, raw(t, s.hook, "application/json", huge, nil)); got.Status != http.StatusRequestEntityTooLarge || got.Reason != "too-large" {
			t.Errorf("got %d %+v", got.Status, got.Answer)
		}
	})
	t.Run("chunked", func(t *testing.T) {
		req := raw(t, s.hook, "application/json", huge, nil)
		req.ContentLength = -1
		if got := s.do(t, req); got.Status != http.StatusRequestEntityTooLarge || got.Reason != "too-large" {
			t.Errorf("got %d %+v", got.Status, got.Answer)
		}
	})
	t.Run("form that decodes to more", func(t *testing.T) {
		if got := s.do(t, raw(t, s.hook, "application/x-www-form-urlencoded", append([]byte("payload="), huge...), nil)); got.Status != http.StatusRequestEntityTooLarge {
			t.Errorf("got %d %+v", got.Status, got.Answer)
		}
	})
	s.accept(t, githubtest.LabeledIssue(42, "loopfleet"), ingress.Routed, "")
}

func TestHandler_LargeEventsAreReducedNotLost(t *testing.T) { //nolint:tparallel // one large body at a time is enough
	t.Parallel()
	for _, tt := range []struct {
		name string
		size int
		form bool
	}{
		{"1.5 MiB", 3 << 19, false}, // bug report 5
		{"24 MiB", 24 << 20, false},
		{"24 MiB as a form of 72 MiB", 24 << 20, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t)
			const mark = "HERE"
			d := githubtest.LabeledIssue(42, "loopfleet", githubtest.Text(mark))
			text, kind, body := strings.Repeat("{", tt.size), "application/json", d.Body()
			sent := text
			if tt.form {
				kind, body, sent = "application/x-www-form-urlencoded", d.Form(), strings.Repeat("%7B", tt.size)
			}
			body = bytes.Replace(body, []byte(mark), []byte(sent), 1)
			if got := s.do(t, githubtest.NewRawRequest(t.Context(), s.hook, secret, d, kind, body)); got.Status != http.StatusAccepted || got.Outcome != ingress.Routed {
				t.Fatalf("got %d %+v", got.Status, got.Answer)
			}
			e := s.one(t)
			if !e.Truncated || len(e.Body) != event.MaxBody || !strings.HasPrefix(text, e.Body) || e.URL == "" {
				t.Errorf("truncated %t, %d bytes, url %q", e.Truncated, len(e.Body), e.URL)
			}
		})
	}
}

func TestHandler_RoutesForms(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	// bug report 4: the signature is over the form as it came.
	d := githubtest.LabeledIssue(42, "loopfleet", githubtest.Title("a & b = c + d % e"))
	if got := s.do(t, githubtest.NewFormRequest(t.Context(), s.hook, secret, d)); got.Status != http.StatusAccepted || got.Outcome != ingress.Routed {
		t.Fatalf("got %d %+v", got.Status, got.Answer)
	}
	if e := s.one(t); e.Title != "a & b = c + d % e" {
		t.Errorf("title %q", e.Title)
	}
}

func TestHandler_Routes(t *testing.T) {
	t.Parallel()
	const it = "octo/hello#42"
	labeled := githubtest.Labels("loopfleet")
	tests := []struct {
		name   string
		d      githubtest.Delivery
		kind   event.Kind // empty: nothing is published
		reason string
		check  func(t *testing.T, e event.Event)
	}{
		{name: "label", d: githubtest.LabeledIssue(42, "loopfleet"), kind: event.Label},
		{name: "label in capitals", d: githubtest.LabeledIssue(42, "LoopFleet"), kind: event.Label},
		{name: "other label", d: githubtest.LabeledIssue(42, "bug"), reason: "other-label"},
		{name: "label by a stranger", d: githubtest.LabeledIssue(42, "loopfleet", githubtest.Sender("mallory")), reason: "unauthorized-actor"},
		{name: "label by nobody", d: githubtest.LabeledIssue(42, "loopfleet", githubtest.Delete("sender")), reason: "unauthorized-actor"},
		{name: "comment on a labelled issue", d: githubtest.IssueComment("created", 42, labeled), kind: event.Comment},
		{name: "comment on an issue of no concern", d: githubtest.IssueComment("created", 42), reason: "not-armed"},
		{name: "comment by a stranger", d: githubtest.IssueComment("created", 42, labeled, githubtest.Sender("mallory")), reason: "unauthorized-actor"},
		{name: "own comment", d: githubtest.IssueComment("created", 42, labeled, githubtest.Text("done\n<!-- loopfleet -->\n")), reason: "self-authored"},
		// bug report 11
		{name: "edited comment", d: githubtest.IssueComment("edited", 42, labeled), reason: "edited"},
		{name: "deleted comment", d: githubtest.IssueComment("deleted", 42, labeled), reason: "deleted"},
		{name: "edited issue", d: githubtest.Issue("edited", 42, labeled), reason: "edited"},
		{name: "action of no concern", d: githubtest.Issue("pinned", 42, labeled), reason: "action-ignored"},
		// rule: CL-03
		{name: "close by a stranger", d: githubtest.Issue("closed", 42, labeled, githubtest.Sender("mallory")), kind: event.Close},
		{name: "close by nobody", d: githubtest.Issue("closed", 42, labeled, githubtest.Delete("sender")), kind: event.Close},
		// bug report 6
		{
			name: "null body", d: githubtest.LabeledIssue(42, "loopfleet", githubtest.Null("issue.body")), kind: event.Label,
			check: func(t *testing.T, e event.Event) {
				t.Helper()
				if e.Body != "" {
					t.Errorf("body %q", e.Body)
				}
			},
		},
		// bug report 7
		{name: "comment of a deleted account", d: githubtest.IssueComment("created", 42, labeled, githubtest.Null("comment.user")), reason: "unauthorized-actor"},
		{name: "issue of a deleted account", d: githubtest.LabeledIssue(42, "loopfleet", githubtest.Null("issue.user")), kind: event.Label},
		// bug report 8
		{name: "pull request whose fork is gone", d: githubtest.PullRequest("labeled", 42, githubtest.DeletedFork(), labeled, githubtest.Label("loopfleet")), kind: event.Label},
		{name: "review on it", d: githubtest.Review("submitted", 42, "approved", githubtest.DeletedFork(), labeled), kind: event.Review},
		{name: "review without text", d: githubtest.Review("submitted", 42, "changes_requested", labeled, githubtest.Null("review.body")), kind: event.Review},
		{name: "review comment", d: githubtest.ReviewComment("created", 42, "a.go", 7, labeled), kind: event.ReviewComment},
		{name: "comment on a pull request", d: githubtest.PullRequestComment("created", 42, labeled), kind: event.Comment},
		{name: "check of no pull request", d: githubtest.CheckRun("test", "failure", nil), reason: "unresolved-head"},
		{name: "check that passed", d: githubtest.CheckRun("test", "success", []int64{42}), reason: "not-a-failure"},
		{name: "merged pull request", d: githubtest.MergedPullRequest(42, labeled), kind: event.Close},
		// bug report 3
		{
			name: "emoji", d: githubtest.LabeledIssue(42, "loopfleet", githubtest.Title("🦀 crash 💥")), kind: event.Label,
			check: func(t *testing.T, e event.Event) {
				t.Helper()
				if e.Title != "🦀 crash 💥" {
					t.Errorf("title %q", e.Title)
				}
			},
		},
		{
			name: "CRLF", d: githubtest.IssueComment("created", 42, labeled, githubtest.Text("one\r\ntwo")), kind: event.Comment,
			check: func(t *testing.T, e event.Event) {
				t.Helper()
				if e.Body != "one\ntwo" {
					t.Errorf("body %q", e.Body)
				}
			},
		},
		{name: "right to left and zero width", d: githubtest.IssueComment("created", 42, labeled, githubtest.Text("\u202egnitset\u200b\u2066")), kind: event.Comment},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			if tt.kind == "" {
				s.accept(t, tt.d, ingress.Dropped, tt.reason)
				if got := s.stored(t); len(got) != 0 {
					t.Fatalf("published: %+v", got)
				}
				lines := s.lines(t, eventlog.Query{TypeGlob: "routing.*", Delivery: tt.d.GUID})
				if len(lines) != 1 || lines[0].Type != event.RoutingDropped || lines[0].Reason() != tt.reason || lines[0].Fields["event"] != tt.d.Event {
					t.Fatalf("log lines: %s", show(lines))
				}
				return
			}
			got := s.accept(t, tt.d, ingress.Routed, "")
			e := s.one(t)
			if e.Kind != tt.kind || e.WorkItem != item(t, it) || e.DeliveryID != tt.d.GUID || e.RepoID != githubtest.DefaultRepoID {
				t.Errorf("stored %+v", e)
			}
			if len(got.Events) != 1 || got.Events[0] != (ingress.EventAnswer{EventID: e.ID, WorkItem: e.WorkItem}) {
				t.Errorf("answer %+v", got.Events)
			}
			if tt.check != nil {
				tt.check(t, e)
			}
			lines := s.lines(t, eventlog.Query{Delivery: tt.d.GUID})
			if last := len(lines) - 1; last < 1 || lines[0].Type != event.WebhookReceived || lines[last].Type != event.RoutingRouted || lines[last].EventID != e.ID {
				t.Errorf("log lines: %s", show(lines))
			}
		})
	}
}

func TestHandler_HostileRepositoryNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"octo/next.js", "octo/a*b", "octo/>", "octo/*", "octo/héllo"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.accept(t, githubtest.LabeledIssue(7, "loopfleet", githubtest.Repo(name, 99)), ingress.Routed, "")
			e := s.one(t) // checks the subject
			if got := e.WorkItem.Owner + "/" + e.WorkItem.Repo; got != name {
				t.Errorf("item of %q", got)
			}
			// Nothing else listens there.
			if n, err := s.reader.LastSeq(t.Context(), item(t, "octo/other#7")); err != nil || n != 0 {
				t.Errorf("another item has %d, %v", n, err)
			}
		})
	}
	t.Run("no item", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.accept(t, githubtest.LabeledIssue(7, "loopfleet", githubtest.Repo("octo/a\u200bb", 99)), ingress.Dropped, "invalid-item")
	})
}

func TestHandler_IgnoresWhatNobodyListensTo(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *config.Config) { c.Webhooks.GHWebhook.Events = []string{"issues"} })
	unknown := githubtest.Ping()
	unknown.Event = "sponsorship"
	for _, tt := range []struct {
		d      githubtest.Delivery
		reason string
	}{
		{githubtest.Ping(), "ping"},
		{unknown, "unknown-event"},
		{githubtest.IssueComment("created", 42, githubtest.Labels("loopfleet")), "event-filter"},
	} {
		s.accept(t, tt.d, ingress.Ignored, tt.reason)
		lines := s.lines(t, eventlog.Query{TypeGlob: "routing.dropped", Delivery: tt.d.GUID})
		if len(lines) != 1 || lines[0].Reason() != tt.reason {
			t.Errorf("%s: log lines %s", tt.reason, show(lines))
		}
	}
	if got := s.stored(t); len(got) != 0 {
		t.Errorf("published: %+v", got)
	}
	s.accept(t, githubtest.LabeledIssue(42, "loopfleet"), ingress.Routed, "")
}

// rule: CL-18
func TestNew_NoEventsMeansTheDefaultNine(t *testing.T) {
	t.Parallel()
	deliveries := []githubtest.Delivery{
		githubtest.LabeledIssue(1, "loopfleet"), githubtest.IssueComment("created", 1), githubtest.PullRequest("opened", 2),
		githubtest.Review("submitted", 2, "approved"), githubtest.ReviewComment("created", 2, "a.go", 1),
		githubtest.WorkflowRun("ci", "failure", nil), githubtest.CheckRun("ci", "failure", nil),
		githubtest.CheckSuite("ci", "failure", nil), githubtest.Status("ci", "failure"),
	}
	for _, events := range [][]string{nil, {}} {
		s := newSite(t, func(c *config.Config) { c.Webhooks.GHWebhook.Events = events })
		for _, d := range deliveries {
			if got := s.send(t, d); got.Status != http.StatusAccepted || got.Outcome == ingress.Ignored {
				t.Errorf("%s: %d %+v", d.Event, got.Status, got.Answer)
			}
		}
	}
}
