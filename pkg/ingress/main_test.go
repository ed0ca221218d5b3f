package ingress_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"loopfleet/pkg/config"
	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/ingress"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/testutil/faulttest"
	"loopfleet/pkg/testutil/githubtest"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/workitem"
)

func TestMain(m *testing.M) {
	faulttest.Lag()
	goleak.VerifyTestMain(m)
}

const secret = "It's a Secret to Everybody"

// site is an ingress on a real server, with a client.
type site struct {
	*natstest.Server
	cfg    config.Config
	reg    *registry.Registry
	reader *queue.Reader
	log    *eventlog.Log
	srv    *ingress.Server
	base   string
	hook   string
	client *http.Client
}

func testConfig() config.Config {
	cfg := config.Default()
	cfg.Routing.AuthorizedUsers = []string{"alice"}
	return cfg
}

func newSite(t *testing.T, change ...func(*config.Config)) *site {
	t.Helper()
	n := natstest.Start(t, "")
	natstest.Provision(t, n.JS)
	return newSiteOn(t, n, nil, change...)
}

func newSiteOn(t *testing.T, n *natstest.Server, deps func(*ingress.Deps), change ...func(*config.Config)) *site {
	t.Helper()
	s := &site{Server: n, cfg: testConfig()}
	for _, c := range change {
		c(&s.cfg)
	}
	// A connection of the product's kind: it buffers nothing while the server is away.
	conn := n.Connect(t, noBuffer)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if s.reg, err = registry.Open(t.Context(), js); err != nil {
		t.Fatal(err)
	}
	if s.reader, err = queue.NewReader(t.Context(), js); err != nil {
		t.Fatal(err)
	}
	logger := zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)
	if s.log, err = eventlog.New(js, eventlog.Options{Source: "ingress", Log: logger}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_ = s.log.Close(ctx)
	})
	d := ingress.Deps{
		Registry: s.reg, Publisher: queue.NewPublisher(js), Stream: s.reader, Events: s.log,
		Missing: ingress.Missing(conn.IsConnected, js), Log: logger,
	}
	if deps != nil {
		deps(&d)
	}
	if s.srv, err = ingress.New(s.cfg, []byte(secret), d); err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.srv.Run(ctx, l) }()
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	s.client = &http.Client{Transport: tr}
	s.base = "http://" + l.Addr().String()
	s.hook = s.base + s.cfg.Webhooks.GHWebhook.Path
	return s
}

// reply is an answer as the client sees it.
type reply struct {
	Status int
	Header http.Header
	ingress.Answer
}

func (s *site) do(t *testing.T, req *http.Request) reply {
	t.Helper()
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	r := reply{Status: resp.StatusCode, Header: resp.Header}
	if err := json.Unmarshal(b, &r.Answer); err != nil {
		t.Fatalf("answer %q: %v", b, err)
	}
	return r
}

func (s *site) send(t *testing.T, d githubtest.Delivery) reply {
	t.Helper()
	return s.do(t, githubtest.NewRequest(t.Context(), s.hook, secret, d))
}

// accept sends d and expects 202 with the outcome and reason.
func (s *site) accept(t *testing.T, d githubtest.Delivery, outcome ingress.Outcome, reason string) reply {
	t.Helper()
	r := s.send(t, d)
	if r.Status != http.StatusAccepted || r.Outcome != outcome || r.Reason != reason || r.DeliveryID != d.GUID {
		t.Fatalf("%s %v: got %d %+v, want 202 %s %q of %s", d.Event, d.Payload["action"], r.Status, r.Answer, outcome, reason, d.GUID)
	}
	return r
}

// stored lists every message of LOOP_EVENTS.
func (s *site) stored(t *testing.T) []event.Event {
	t.Helper()
	st, err := s.JS.Stream(t.Context(), queue.EventsStream)
	if err != nil {
		t.Fatal(err)
	}
	var out []event.Event
	if st.CachedInfo().State.Msgs == 0 {
		return nil
	}
	for seq := st.CachedInfo().State.FirstSeq; seq <= st.CachedInfo().State.LastSeq; seq++ {
		m, err := st.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		e, err := event.Decode(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		if m.Subject != e.Subject() {
			t.Errorf("event %s is stored at %s, not %s", e.ID, m.Subject, e.Subject())
		}
		out = append(out, e)
	}
	return out
}

// one expects exactly one stored event.
func (s *site) one(t *testing.T) event.Event {
	t.Helper()
	all := s.stored(t)
	if len(all) != 1 {
		t.Fatalf("%d events are stored, want one: %+v", len(all), all)
	}
	return all[0]
}

// lines reads the log back.
func (s *site) lines(t *testing.T, q eventlog.Query) []eventlog.Line {
	t.Helper()
	if err := s.log.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	var out []eventlog.Line
	err := eventlog.Read(t.Context(), s.JS, q, func(l eventlog.Line) error {
		out = append(out, l)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// show prints lines as they are stored.
func show(lines []eventlog.Line) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "\n%s", l.Raw)
	}
	return b.String()
}

func item(t *testing.T, s string) workitem.Ref {
	t.Helper()
	r, err := workitem.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// raw is a signed request with any body and headers.
func raw(t *testing.T, target, contentType string, body []byte, headers map[string]string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	h := map[string]string{
		"Content-Type": contentType, "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958", "X-GitHub-Event": "issues",
		"X-Hub-Signature-256": githubtest.Sign(secret, body),
	}
	maps.Copy(h, headers)
	for k, v := range h {
		if v != "" {
			req.Header.Set(k, v)
		}
	}
	return req
}
