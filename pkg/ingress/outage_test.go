package ingress_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"loopfleet/pkg/config"
	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/fault"
	"loopfleet/pkg/ingress"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/testutil/githubtest"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/workitem"
	"loopfleet/streams"
)

func (s *site) refused(t *testing.T, d githubtest.Delivery) {
	t.Helper()
	got := s.send(t, d)
	if got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") != "5" || got.Reason != "unavailable" {
		t.Fatalf("got %d, Retry-After %q, %+v", got.Status, got.Header.Get("Retry-After"), got.Answer)
	}
}

func TestOutage_503UntilTheServerIsBack(t *testing.T) {
	t.Parallel()
	n := natstest.StartTCP(t, "")
	natstest.Provision(t, n.JS)
	s := newSiteOn(t, n, nil)
	first, second := githubtest.IssueComment("created", 42, armed, githubtest.ID(1)), githubtest.IssueComment("created", 42, armed, githubtest.ID(2))
	s.accept(t, first, ingress.Routed, "")
	n.Down()
	s.refused(t, second)
	s.refused(t, githubtest.Ping()) // a 202 would say that deliveries work
	n.Up(t)
	waitfor.Until(t, "the ingress to be ready", func() bool { return s.get(t, ingress.ReadyPath) == http.StatusOK })
	s.accept(t, second.Redeliver(), ingress.Routed, "")
	s.accept(t, first.Redeliver(), ingress.Duplicate, "duplicate")
	if got := s.stored(t); len(got) != 2 {
		t.Errorf("stored: %+v", got)
	}
	// The log says so too, once it can be written again.
	if lines := s.lines(t, eventlog.Query{TypeGlob: "webhook.rejected", Delivery: second.GUID}); len(lines) != 1 || lines[0].Level != event.Error {
		t.Errorf("log lines: %s", show(lines))
	}
}

func TestOutage_FullStreamIs503(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t, "")
	natstest.Provision(t, n.JS, streams.Options{MaxBytes: map[string]int64{streams.Events: 4 << 10}})
	s := newSiteOn(t, n, nil)
	for i := int64(1); ; i++ {
		got := s.send(t, githubtest.IssueComment("created", 42, armed, githubtest.ID(i), githubtest.Text(strings.Repeat("a", 1000))))
		if got.Status == http.StatusServiceUnavailable {
			break
		}
		if i > 10 {
			t.Fatal("the full stream took everything")
		}
	}
	s.accept(t, githubtest.Ping(), ingress.Ignored, "ping")
}

// broken lets one store fail.
type broken struct {
	*registry.Registry
	failing atomic.Bool
}

var errBroken = errors.New("no answer")

func (b *broken) Get(ctx context.Context, item workitem.Ref) (registry.Entry, error) {
	if b.failing.Load() {
		return registry.Entry{}, errBroken
	}
	return b.Registry.Get(ctx, item)
}

func TestOutage_NothingIsDroppedByDoubt(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t, "")
	natstest.Provision(t, n.JS)
	var b *broken
	s := newSiteOn(t, n, func(d *ingress.Deps) {
		reg, ok := d.Registry.(*registry.Registry)
		if !ok {
			t.Fatalf("registry is a %T", d.Registry)
		}
		b = &broken{Registry: reg}
		d.Registry = b
	})
	b.failing.Store(true)
	s.refused(t, githubtest.IssueComment("created", 42)) // known or not: who can say?
	b.failing.Store(false)
	s.accept(t, githubtest.IssueComment("created", 42), ingress.Dropped, "not-armed")
}

// refusing fails for one item.
type refusing struct {
	ingress.Publisher
	item workitem.Ref
	on   atomic.Bool
}

func (r *refusing) Publish(ctx context.Context, e event.Event) (queue.Receipt, error) {
	if r.on.Load() && e.WorkItem == r.item {
		return queue.Receipt{}, fmt.Errorf("%w: full", queue.ErrRefused)
	}
	return r.Publisher.Publish(ctx, e)
}

func TestOutage_HalfStoredIs503AndIsCompletedByTheRedelivery(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t, "")
	natstest.Provision(t, n.JS)
	pub := &refusing{item: item(t, "octo/hello#2")}
	s := newSiteOn(t, n, func(d *ingress.Deps) { pub.Publisher, d.Publisher = d.Publisher, pub })
	if _, err := s.reg.LinkPR(t.Context(), item(t, "octo/hello#7"), item(t, "octo/hello#1"), pub.item); err != nil {
		t.Fatal(err)
	}
	d := githubtest.PullRequestComment("created", 7)
	pub.on.Store(true)
	s.refused(t, d)
	pub.on.Store(false)
	got := s.accept(t, d.Redeliver(), ingress.Routed, "")
	if len(got.Events) != 2 || !got.Events[0].Duplicate || got.Events[1].Duplicate {
		t.Errorf("answer %+v", got.Events)
	}
}

func TestAnswer_ComesAfterTheEventIsStored(t *testing.T) { //nolint:paralleltest // the hook is the process's
	s := newSite(t)
	seen := -1
	restore := fault.Set(func(_ context.Context, p fault.Point) {
		if p == fault.PublishAnswer {
			seen = len(s.stored(t)) //nolint:contextcheck // the test's own context
		}
	})
	defer restore()
	s.accept(t, githubtest.LabeledIssue(42, "loopfleet"), ingress.Routed, "")
	if seen != 1 {
		t.Errorf("%d events were stored when the answer came, want 1", seen)
	}
}

type panicking struct{ ingress.Publisher }

func (panicking) Publish(context.Context, event.Event) (queue.Receipt, error) { panic("a bug") }

func TestHandler_APanicIs500AndHurtsNobodyElse(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t, "")
	natstest.Provision(t, n.JS)
	s := newSiteOn(t, n, func(d *ingress.Deps) { d.Publisher = panicking{} })
	got := s.send(t, githubtest.LabeledIssue(42, "loopfleet"))
	if got.Status != http.StatusInternalServerError || got.Reason != "panic" || strings.Contains(got.Detail, "a bug") {
		t.Errorf("got %d %+v", got.Status, got.Answer)
	}
	s.accept(t, githubtest.Ping(), ingress.Ignored, "ping")
}

func TestHandler_ManyClientsAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const clients, each = 64, 4
	var wg sync.WaitGroup
	var routed, duplicate atomic.Int64
	for c := range clients {
		wg.Go(func() {
			for i := range each {
				// Two clients send each comment, under GUIDs of their own.
				id := int64(c/2*each + i + 1)
				got := s.send(t, githubtest.IssueComment("created", id, armed, githubtest.ID(id)))
				switch {
				case got.Status != http.StatusAccepted:
					t.Errorf("got %d %+v", got.Status, got.Answer)
				case got.Outcome == ingress.Routed:
					routed.Add(1)
				case got.Outcome == ingress.Duplicate:
					duplicate.Add(1)
				}
			}
		})
	}
	wg.Wait()
	const want = clients * each / 2
	if routed.Load() != want || duplicate.Load() != want || len(s.stored(t)) != want {
		t.Errorf("%d routed, %d duplicate, %d stored, want %d each", routed.Load(), duplicate.Load(), len(s.stored(t)), want)
	}
}

// get returns the status of a GET.
func (s *site) get(t *testing.T, path string) int {
	t.Helper()
	status, _ := s.page(t, path)
	return status
}

func (s *site) page(t *testing.T, path string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestProbes(t *testing.T) {
	t.Parallel()
	n := natstest.StartTCP(t, "")
	natstest.Provision(t, n.JS)
	s := newSiteOn(t, n, nil)
	if status, body := s.page(t, ingress.ReadyPath); status != http.StatusOK || body != "{\"ready\":true}\n" {
		t.Errorf("ready: %d %s", status, body)
	}
	if err := s.JS.DeleteStream(t.Context(), "KV_loop_dedup"); err != nil {
		t.Fatal(err)
	}
	waitfor.Until(t, "the missing bucket to be noticed", func() bool {
		status, body := s.page(t, ingress.ReadyPath)
		return status == http.StatusServiceUnavailable && strings.Contains(body, "KV_loop_dedup")
	})
	n.Down()
	waitfor.Until(t, "the lost connection to be noticed", func() bool {
		status, body := s.page(t, ingress.ReadyPath)
		return status == http.StatusServiceUnavailable && strings.Contains(body, "the connection to NATS")
	})
	if status, body := s.page(t, ingress.HealthPath); status != http.StatusOK || body != "{\"status\":\"ok\"}\n" {
		t.Errorf("alive: %d %s", status, body)
	}
	req := raw(t, s.base+ingress.HealthPath, "application/json", nil, nil)
	if got := s.do(t, req); got.Status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", got.Status)
	}
}

func TestRun_FinishesWhatIsUnderWay(t *testing.T) { //nolint:paralleltest // the hook is the process's
	n := natstest.Start(t, "")
	natstest.Provision(t, n.JS)
	var srv *ingress.Server
	base := newSiteOn(t, n, func(d *ingress.Deps) {
		var err error
		if srv, err = ingress.New(testConfig(), []byte(secret), *d); err != nil {
			t.Fatal(err)
		}
	})
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx, l) }()
	restore := fault.Set(func(reqCtx context.Context, p fault.Point) {
		if p != fault.PublishAnswer {
			return
		}
		stop()
		waitfor.Until(t, "new connections to be refused", func() bool {
			c, err := (&net.Dialer{}).DialContext(reqCtx, "tcp", l.Addr().String())
			if err == nil {
				_ = c.Close()
			}
			return err != nil
		})
	})
	defer restore()
	d := githubtest.LabeledIssue(42, "loopfleet")
	got := base.do(t, githubtest.NewRequest(t.Context(), "http://"+l.Addr().String()+"/webhooks/github", secret, d))
	if got.Status != http.StatusAccepted {
		t.Errorf("got %d %+v", got.Status, got.Answer)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	base.one(t)
}

func TestNew_Secret(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		listen   string
		insecure bool
		secret   string
		ok       bool
	}{
		{"secret", "0.0.0.0:8787", false, "s", true},
		{"no secret", "127.0.0.1:8787", false, "", false},
		{"insecure on loopback", "127.0.0.1:8787", true, "", true},
		{"insecure on IPv6 loopback", "[::1]:8787", true, "", true},
		{"insecure on localhost", "localhost:8787", true, "", true},
		{"insecure to everybody", "0.0.0.0:8787", true, "", false},
		{"insecure on all addresses", ":8787", true, "", false},
		{"insecure to a name", "ingress.example.com:8787", true, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig()
			cfg.Webhooks.GHWebhook.Listen, cfg.Webhooks.GHWebhook.Insecure = tt.listen, tt.insecure
			_, err := ingress.New(cfg, []byte(tt.secret), ingress.Deps{})
			if tt.ok && err != nil || !tt.ok && !errors.Is(err, ingress.ErrNoSecret) {
				t.Errorf("got %v", err)
			}
			if err != nil && !strings.Contains(err.Error(), "LOOPFLEET_WEBHOOK_SECRET") {
				t.Errorf("%v: does not say what to set", err)
			}
		})
	}
}

func TestNew_InsecureAcceptsUnsignedAndStillRefusesForged(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *config.Config) { c.Webhooks.GHWebhook.Insecure = true })
	body := githubtest.LabeledIssue(42, "loopfleet").Body()
	if got := s.do(t, raw(t, s.hook, "application/json", body, map[string]string{"X-Hub-Signature-256": ""})); got.Status != http.StatusAccepted {
		t.Errorf("unsigned: %d %+v", got.Status, got.Answer)
	}
	if got := s.do(t, raw(t, s.hook, "application/json", body, map[string]string{"X-Hub-Signature-256": githubtest.Sign("x", body)})); got.Status != http.StatusUnauthorized {
		t.Errorf("forged: %d %+v", got.Status, got.Answer)
	}
}
