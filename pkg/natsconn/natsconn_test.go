package natsconn_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"loopfleet/pkg/natsconn"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/testutil/waitfor"
)

// buffer is a log that may be read while it is written.
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// withUser makes the server know one user; the test's own connection needs none.
func withUser(o *server.Options) {
	o.Users = []*server.User{{Username: "worker", Password: "s3cret"}, {Username: "test", Password: "test"}}
	o.NoAuthUser = "test"
}

// closedPort is a loopback address on which nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	return l.Addr().String()
}

func TestConnect_EmbeddedAndTCP(t *testing.T) {
	t.Parallel()
	inproc := natstest.Start(t, "")
	tcp := natstest.StartTCP(t, "", withUser)
	for name, o := range map[string]natsconn.Options{
		"embedded":    {InProcess: inproc, Name: "loopfleet up"},
		"user option": {URL: tcp.URL(), User: "worker", Password: "s3cret", Name: "worker w1"},
		"user in URL": {URL: strings.Replace(tcp.URL(), "://", "://worker:s3cret@", 1), Name: "worker w1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc, js, err := natsconn.Connect(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := js.AccountInfo(t.Context()); err != nil {
				t.Errorf("account info: %v", err)
			}
			if got := nc.Opts.Name; got != o.Name {
				t.Errorf("client name = %q, want %q", got, o.Name)
			}
			if err := natsconn.Close(t.Context(), nc); err != nil {
				t.Errorf("close: %v", err)
			}
			if err := natsconn.Close(t.Context(), nc); err != nil {
				t.Errorf("second close: %v", err)
			}
		})
	}
}

func TestConnect_Errors(t *testing.T) {
	t.Parallel()
	tcp := natstest.StartTCP(t, "", withUser)
	closed := closedPort(t)
	for name, tc := range map[string]struct {
		o    natsconn.Options
		is   error
		want []string
	}{
		"nothing listens": {
			o:    natsconn.Options{URL: "nats://me:hunter2@" + closed},
			is:   natsconn.ErrUnreachable,
			want: []string{closed, "nothing listens", "nats.url"},
		},
		"wrong password": {
			o:    natsconn.Options{URL: tcp.URL(), User: "worker", Password: "hunter2"},
			is:   nats.ErrAuthorization,
			want: []string{"refuses", "credentialsFile"},
		},
		"no address":         {want: []string{"no address", "--nats-url"}},
		"unreadable address": {o: natsconn.Options{URL: "nats://me:hunter2@ho st:1"}, want: []string{"not an address"}},
		"credentials file missing": {
			o:    natsconn.Options{URL: tcp.URL(), CredentialsFile: filepath.Join(t.TempDir(), "gone.creds")},
			is:   fs.ErrNotExist,
			want: []string{"gone.creds", "nats.credentialsFile"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log buffer
			tc.o.Log = zerolog.New(&log)
			_, _, err := natsconn.Connect(t.Context(), tc.o)
			if err == nil {
				t.Fatal("no error")
			}
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("error %v is not %v", err, tc.is)
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not say %q", err, w)
				}
			}
			if strings.Contains(err.Error()+log.String(), "hunter2") {
				t.Errorf("the password shows: %v\n%s", err, log.String())
			}
		})
	}
}

func TestConnect_ContextEnds(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	silent, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts, never speaks
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := natsconn.Connect(ctx, natsconn.Options{URL: "nats://" + silent.Addr().String()}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error = %v, want the context's", err)
	}
	if err := silent.Close(); err != nil {
		t.Error(err)
	}
}

func TestConn_PublishFailsWhileAwayAndComesBack(t *testing.T) {
	t.Parallel()
	srv := natstest.StartTCP(t, "")
	var log buffer
	url := strings.Replace(srv.URL(), "://", "://me:hunter2@", 1)
	nc, _, err := natsconn.Connect(t.Context(), natsconn.Options{URL: url, Name: "worker w1", Log: zerolog.New(&log)})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	srv.Down()
	waitfor.Until(t, "the loss to be noticed", func() bool { return nc.Status() == nats.RECONNECTING })
	if err := nc.Publish("loop.test", []byte("x")); err == nil {
		t.Error("a publish while the server is away was buffered")
	}
	if err := natsconn.Close(t.Context(), nc); err == nil {
		t.Error("closing while the server is away reports no error")
	}

	nc, _, err = natsconn.Connect(t.Context(), natsconn.Options{URL: url, Retry: true, Log: zerolog.New(&log)})
	if err != nil {
		t.Fatalf("connect with Retry while the server is away: %v", err)
	}
	srv.Up(t)
	waitfor.Until(t, "the first connection", nc.IsConnected)
	srv.Restart(t)
	waitfor.Until(t, "the reconnection", func() bool { return nc.IsConnected() && nc.Stats().Reconnects > 0 })
	if err := nc.Publish("loop.test", []byte("x")); err != nil {
		t.Errorf("publish after the reconnect: %v", err)
	}
	waitfor.Until(t, "the log to tell of it", func() bool {
		return strings.Contains(log.String(), "lost") && strings.Contains(log.String(), "is back")
	})
	if strings.Contains(log.String(), "hunter2") {
		t.Errorf("the password shows:\n%s", log.String())
	}
	if err := natsconn.Close(t.Context(), nc); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestClose_SendsWhatWasPublished(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t, "")
	sub, err := srv.Conn.SubscribeSync("loop.test")
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Conn.Flush(); err != nil {
		t.Fatal(err)
	}
	nc, _, err := natsconn.Connect(t.Context(), natsconn.Options{InProcess: srv})
	if err != nil {
		t.Fatal(err)
	}
	const n = 1000
	for range n {
		if err := nc.Publish("loop.test", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := natsconn.Close(t.Context(), nc); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, err := sub.NextMsg(5 * time.Second); err != nil {
			t.Fatalf("message %d of %d: %v", i, n, err)
		}
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"nats://127.0.0.1:4222":                 "nats://127.0.0.1:4222",
		"nats://tok3n@host:1":                   "nats://host:1",
		"tls://me:hunter2@a:1, tok3n@b:2,c":     "tls://a:1,nats://b:2,nats://c",
		"nats://me:hunter2@host:4222/?tok3n=1":  "nats://host:4222",
		"nats://me:hun ter2@ho st":              "(an address that cannot be read)",
		"":                                      "",
		"ws://hunter2:hunter2@[::1]:80/hunter2": "ws://[::1]:80",
	} {
		if got := natsconn.Redact(in); got != want {
			t.Errorf("Redact(%q) = %q, want %q", in, got, want)
		}
	}
}
