package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"
	"golang.org/x/crypto/bcrypt"
)

const (
	// embeddedPort is tried first, so that the plain `nats` CLI finds it.
	embeddedPort = 4222
	embeddedUser = "loopfleet"
	// maxPayload leaves room for the largest event many times over.
	maxPayload = 8 << 20
	// serverStart bounds the start: a store with many lanes takes a while.
	serverStart = 60 * time.Second
)

// embedded is the NATS server inside `loopfleet up`.
type embedded struct {
	srv *natsd.Server
	// URL carries user and password.
	URL string
}

// startEmbedded runs a JetStream server on loopback with generated credentials
// and everything under dir. Writes are synced before they are acknowledged: a
// 202 is a promise that outlives a power cut. Port 0 means any free one; a
// busy embeddedPort falls back to that.
func startEmbedded(dir string, port int, log zerolog.Logger) (*embedded, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the server's folder: %w", err)
	}
	password, err := secretFile(filepath.Join(dir, "password"))
	if err != nil {
		return nil, err
	}
	if port != 0 && !free(port) {
		log.Info().Int("port", port).Msg("the embedded NATS server's usual port is taken; it uses another")
		port = 0
	}
	if port == 0 {
		port = natsd.RANDOM_PORT
	}
	// The server keeps a hash, as it would of any password. The password is
	// random, so the cheapest cost is as good as any.
	hashed, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		return nil, fmt.Errorf("hash the embedded server's password: %w", err)
	}
	srv, err := runServer(&natsd.Options{
		ServerName: "loopfleet-up", Host: "127.0.0.1", Port: port,
		JetStream: true, StoreDir: dir, SyncAlways: true, MaxPayload: maxPayload,
		Username: embeddedUser, Password: string(hashed), NoSigs: true,
	}, log)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(srv.ClientURL())
	if err != nil {
		return nil, fmt.Errorf("address of the embedded server: %w", err)
	}
	u.User = url.UserPassword(embeddedUser, password)
	e := &embedded{srv: srv, URL: u.String()}
	if err := writePrivate(filepath.Join(dir, "url"), e.URL+"\n"); err != nil {
		e.Stop()
		return nil, err
	}
	return e, nil
}

var errServerNotReady = errors.New("the embedded NATS server did not become ready")

func runServer(opts *natsd.Options, log zerolog.Logger) (*natsd.Server, error) {
	srv, err := natsd.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("embedded NATS server: %w", err)
	}
	l := &serverLog{log: log}
	srv.SetLoggerV2(l, false, false, false)
	srv.Start()
	if !srv.ReadyForConnections(serverStart) {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, fmt.Errorf("%w on %s:%d: %s", errServerNotReady, opts.Host, opts.Port, l.last())
	}
	return srv, nil
}

// free reports whether a port of loopback can be listened on.
func free(port int) bool {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// Stop ends the server and waits for its files to be closed.
func (e *embedded) Stop() {
	e.srv.Shutdown()
	e.srv.WaitForShutdown()
}

// secretFile reads a generated secret, or makes it on first use.
func secretFile(path string) (string, error) {
	b, err := os.ReadFile(path) //nolint:gosec // G304: in our own state directory
	if err == nil && len(strings.TrimSpace(string(b))) > 0 {
		return strings.TrimSpace(string(b)), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read a generated secret: %w", err)
	}
	s := rand.Text()
	return s, writePrivate(path, s+"\n")
}

// writePrivate replaces a file that only its owner may read.
func writePrivate(path, text string) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
