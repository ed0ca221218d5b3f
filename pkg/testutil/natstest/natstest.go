package natstest

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/testutil/waitfor"
)

const (
	// MaxPayload is the message size limit of the servers of the product.
	MaxPayload = 8 << 20

	// What streams may reserve; nothing is allocated. The default follows the
	// free disk, so what fits on one machine would be refused on another.
	maxStore  = 64 << 30
	maxMemory = 64 << 30

	readyIn = 20 * time.Second
)

// Server is a private server with one connection to it.
type Server struct {
	// Server is the one running now; Up puts another in its place.
	Server *server.Server
	Conn   *nats.Conn
	JS     jetstream.JetStream

	options func() *server.Options
	current atomic.Pointer[server.Server]

	mu    sync.Mutex
	conns []*nats.Conn
}

// An Option changes the options of the server before it starts, for instance
// MaxPayload or SyncAlways.
type Option func(*server.Options)

// bubbles maps a bubble's test to the servers started in it.
var bubbles sync.Map

// Bubble runs fn under a fake clock, and stops the servers started in it when
// it returns (a test's cleanup would come too late: a bubble waits for its
// goroutines first). Tests that use it cannot be parallel, on purpose:
// nats-server keeps one process-wide clock for all its stores, so no other
// server may be up at the same time, and t.Setenv makes sure of that.
func Bubble(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	t.Setenv("LOOPFLEET_TEST_BUBBLE", "1")
	dropPools()
	defer dropPools()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{}
		bubbles.Store(t, b)
		defer bubbles.Delete(t)
		defer b.stop()
		fn(t)
	})
}

// dropPools empties every sync.Pool: the NATS client pools its timers, and one
// made in a bubble may not be used outside of it, nor the other way round.
func dropPools() {
	for range 2 { // what a collection takes from a pool it keeps until the next
		runtime.GC()
	}
}

type bubble struct {
	mu      sync.Mutex
	servers []*Server
}

func (b *bubble) add(s *Server) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.servers = append(b.servers, s)
}

func (b *bubble) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.servers {
		s.Stop()
	}
}

// Start runs a server that opens no socket, with its files in dir, or in a
// directory of its own when dir is empty.
func Start(t *testing.T, dir string, opts ...Option) *Server {
	t.Helper()
	return start(t, server.Options{DontListen: true, StoreDir: dir}, opts)
}

// StartTCP runs a server on a free loopback port, for tests that start real
// processes; see URL. It would hang in a bubble.
func StartTCP(t *testing.T, dir string, opts ...Option) *Server {
	t.Helper()
	return start(t, server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, StoreDir: dir}, opts)
}

func start(t *testing.T, base server.Options, opts []Option) *Server {
	t.Helper()
	if base.StoreDir == "" {
		base.StoreDir = t.TempDir()
	}
	s := &Server{}
	port := base.Port
	s.options = func() *server.Options {
		o := &server.Options{
			DontListen: base.DontListen, Host: base.Host, Port: port, StoreDir: base.StoreDir,
			JetStream: true, JetStreamMaxStore: maxStore, JetStreamMaxMemory: maxMemory,
			MaxPayload: MaxPayload, NoSigs: true, NoLog: true,
		}
		for _, opt := range opts {
			opt(o)
		}
		return o
	}
	if b, ok := bubbles.Load(t); ok {
		bub, isBubble := b.(*bubble)
		if !isBubble {
			t.Fatalf("natstest: the bubble of this test is a %T", b)
		}
		bub.add(s)
	} else {
		t.Cleanup(s.Stop)
	}
	s.launch(t)
	if addr, ok := s.Server.Addr().(*net.TCPAddr); ok && !base.DontListen {
		port = addr.Port // clients find it again after a restart
	}
	s.Conn = s.Connect(t)
	js, err := jetstream.New(s.Conn)
	if err != nil {
		t.Fatalf("natstest: jetstream: %v", err)
	}
	s.JS = js
	return s
}

func (s *Server) launch(t *testing.T) {
	t.Helper()
	srv, err := server.NewServer(s.options())
	if err != nil {
		t.Fatalf("natstest: new server: %v", err)
	}
	srv.Start()
	s.Server = srv
	s.current.Store(srv)
	if !srv.ReadyForConnections(readyIn) || !srv.JetStreamEnabled() {
		t.Fatalf("natstest: server not ready within %s", readyIn)
	}
}

// errDown is what a client gets that connects while the server is down.
var errDown = errors.New("natstest: the server is down")

// InProcessConn connects to the server that runs now; nats.go calls it on
// every (re)connect.
func (s *Server) InProcessConn() (net.Conn, error) {
	srv := s.current.Load()
	if srv == nil || !srv.Running() {
		return nil, errDown
	}
	conn, err := srv.InProcessConn()
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// Connect makes one more connection, closed when the server stops. It
// reconnects for ever, every 20 ms.
func (s *Server) Connect(t *testing.T, opts ...nats.Option) *nats.Conn {
	t.Helper()
	opts = append([]nats.Option{
		nats.InProcessServer(s), nats.MaxReconnects(-1),
		nats.ReconnectWait(20 * time.Millisecond), nats.ReconnectJitter(0, 0),
	}, opts...)
	nc, err := nats.Connect("", opts...)
	if err != nil {
		t.Fatalf("natstest: connect: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, nc)
	return nc
}

// URL is where a server made by StartTCP listens, also after a restart.
func (s *Server) URL() string { return s.Server.ClientURL() }

// Down stops the server and leaves its files and the clients alone.
func (s *Server) Down() {
	if srv := s.current.Swap(nil); srv != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
	}
}

// Up starts the server again on its files and waits until Conn is back.
func (s *Server) Up(t *testing.T) {
	t.Helper()
	s.launch(t)
	if s.Conn != nil && !s.Conn.IsClosed() {
		// A connection may not have noticed yet that its server went: only an
		// answer proves that it has the new one.
		waitfor.Until(t, "the connection to the restarted server", func() bool {
			// With a context: the client pools its timers, and a bubble's may
			// not be used outside of it.
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return s.Conn.IsConnected() && s.Conn.FlushWithContext(ctx) == nil
		})
	}
}

// Restart is Down and Up.
func (s *Server) Restart(t *testing.T) {
	t.Helper()
	s.Down()
	s.Up(t)
}

// Stop closes all connections and ends the server. More than one call is fine.
func (s *Server) Stop() {
	s.mu.Lock()
	conns := s.conns
	s.conns = nil
	s.mu.Unlock()
	for _, nc := range conns {
		nc.Close()
	}
	s.Down()
}
