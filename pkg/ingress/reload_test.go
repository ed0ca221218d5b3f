package ingress_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"loopfleet/pkg/config"
	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/ingress"
	"loopfleet/pkg/router"
	"loopfleet/pkg/testutil/githubtest"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/testutil/waitfor"
)

// buffer is a log that a test may read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// An edit of routing and of the event filter holds for the next delivery, and
// one that loses closes is warned of then too, not only at the start.
//
// rule: CL-18, rule: CL-19
func TestReload(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t, "")
	natstest.Provision(t, n.JS)
	cfg := testConfig()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Webhooks.GHWebhook.Listen = l.Addr().String()
	_ = l.Close() // free for the ingress
	nc := n.Connect(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	log, live := &buffer{}, config.NewLive(cfg)
	ctx, stop := context.WithCancel(t.Context())
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- ingress.ListenAndServe(ctx, cfg, ingress.Options{
			Conn: nc, JS: js, Secret: []byte(secret), Log: zerolog.New(log), Live: live, Ready: func(url string) { ready <- url },
		})
	}()
	s := &site{Server: n, client: &http.Client{}}
	defer func() {
		s.client.CloseIdleConnections()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	s.hook = <-ready
	const lost = "events lists no pull_request"
	if strings.Contains(log.String(), lost) {
		t.Fatalf("warned of the defaults: %s", log)
	}
	s.accept(t, githubtest.LabeledIssue(42, "loopfleet"), ingress.Routed, "")
	s.accept(t, githubtest.LabeledIssue(43, "agents"), ingress.Dropped, string(router.OtherLabel))

	next := cfg
	next.Routing.Label = "agents"
	next.Webhooks.GHWebhook.Events = []string{"issues"}
	live.Reload(next, nil, false)
	if !strings.Contains(log.String(), lost) {
		t.Errorf("the log does not warn: %s", log)
	}
	s.accept(t, githubtest.LabeledIssue(44, "loopfleet"), ingress.Dropped, string(router.OtherLabel))
	s.accept(t, githubtest.LabeledIssue(45, "agents"), ingress.Routed, "")
	s.accept(t, githubtest.IssueComment("created", 42), ingress.Ignored, string(ingress.ReasonFiltered))
	waitfor.Until(t, "the reload to be logged", func() bool {
		lines := 0
		err := eventlog.Read(t.Context(), n.JS, eventlog.Query{TypeGlob: string(event.ConfigReloaded)}, func(eventlog.Line) error { lines++; return nil })
		return err == nil && lines == 1
	})
}
