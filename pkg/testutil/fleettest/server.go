package fleettest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Server is a nats-server process with its files; it can be killed and started
// again on the same port.
type Server struct {
	*Proc
	bin, dir, conf, addr string
}

// URL is where clients find it, also after a restart.
func (s *Server) URL() string { return "nats://" + s.addr }

// newServer writes the configuration; Start runs it. It is the product's own:
// a write is on disk before it is acknowledged.
func newServer(bin, dir string) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a moment, to find a free port
	if err != nil {
		return nil, fmt.Errorf("find a port: %w", err)
	}
	s := &Server{bin: bin, dir: dir, conf: filepath.Join(dir, "nats.conf"), addr: l.Addr().String()}
	if err := l.Close(); err != nil {
		return nil, fmt.Errorf("find a port: %w", err)
	}
	conf := fmt.Sprintf("server_name: fleettest\nlisten: %q\nmax_payload: 8MB\njetstream { store_dir: %q, max_mem: 64MB, max_file: 16GB, sync_interval: always }\n",
		s.addr, filepath.Join(dir, "js"))
	if err := os.WriteFile(s.conf, []byte(conf), 0o600); err != nil {
		return nil, fmt.Errorf("configure the server: %w", err)
	}
	return s, nil
}

// Start runs the server and waits until it listens.
func (s *Server) Start(ctx context.Context) error {
	p, err := startProc("nats-server", s.dir, s.bin, []string{"-c", s.conf}, os.Environ())
	if err != nil {
		return err
	}
	s.Proc = p
	const step = 10 * time.Millisecond
	t := time.NewTicker(step)
	defer t.Stop()
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.addr)
		if err == nil {
			return c.Close()
		}
		select {
		case <-t.C:
		case <-p.Ended():
			return errors.New("nats-server ended at once: " + p.Tail())
		case <-ctx.Done():
			return fmt.Errorf("nats-server does not listen: %w", context.Cause(ctx))
		}
	}
}
