package ingress_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/ingress"
	"loopfleet/pkg/testutil/githubtest"
)

// pipes is a listener of connections that need no socket.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.done); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

type noEvents struct{}

func (noEvents) Emit(context.Context, eventlog.Entry) error { return nil }
func (noEvents) Post(eventlog.Entry)                        {}

// slow sends text, then nothing more, and returns the answer's status, 0
// for none, and when it came or the connection ended.
func slow(t *testing.T, text string) (status int, took time.Duration) {
	t.Helper()
	srv, err := ingress.New(testConfig(), []byte(secret), ingress.Deps{Events: noEvents{}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	l := pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx, l) }()
	client, server := net.Pipe()
	l.conns <- server
	start := time.Now()
	if _, err := io.WriteString(client, text); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err == nil {
		status = resp.StatusCode
		defer func() { _ = resp.Body.Close() }()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
	}
	took = time.Since(start)
	_ = client.Close()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	return status, took
}

func TestSlow_BodyIs408AndLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status, took := slow(t, "POST /webhooks/github HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
			"X-Hub-Signature-256: "+githubtest.Sign(secret, nil)+"\r\nContent-Length: 100\r\n\r\nhalf")
		if status != http.StatusRequestTimeout || took < 20*time.Second || took > 40*time.Second {
			t.Errorf("got %d after %s", status, took)
		}
	})
}

func TestSlow_HeaderIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, took := slow(t, "POST /webhooks/github HTTP/1.1\r\nHost: x"); took > 15*time.Second {
			t.Errorf("held for %s", took)
		}
	})
}

func TestSlow_AnUnsignedBodyIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status, took := slow(t, "POST /webhooks/github HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 26000000\r\n\r\n{")
		if status != http.StatusUnauthorized || took > 5*time.Second {
			t.Errorf("got %d after %s", status, took)
		}
	})
}
