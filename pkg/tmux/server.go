package tmux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// MaxSocketPath is the longest path a unix socket can have, in bytes.
	MaxSocketPath = 107
	// maxArgs bounds the arguments of one tmux command: its protocol refuses
	// more than 16 KiB ("command too long").
	maxArgs = 15 << 10
	// callTimeout ends a call to a server that does not answer.
	callTimeout = 10 * time.Second
	// relistenTimeout is how long a server may take to make its socket anew.
	relistenTimeout = 3 * time.Second
	maxStderr       = 300
)

var namePattern = regexp.MustCompile(`^loop-[A-Za-z0-9._-]+$`)

// ValidName reports whether name is one that Loopfleet gives its sessions. No
// method signals, ends or types into a session of another name.
func ValidName(name string) bool { return len(name) <= 200 && namePattern.MatchString(name) }

// Config says which server.
type Config struct {
	// Socket is the absolute path of the server's socket, at most
	// MaxSocketPath bytes. Its directory must exist before NewSession.
	Socket string
	// Program is the tmux program; empty means tmux on PATH.
	Program string
}

// Server is one tmux server. It need not run yet.
type Server struct {
	socket  string
	program string
	dialer  net.Dialer
}

// New checks cfg and finds tmux. It starts nothing.
func New(cfg Config) (*Server, error) {
	switch {
	case !filepath.IsAbs(cfg.Socket):
		return nil, fmt.Errorf("tmux socket %q: %w: the path is not absolute", cfg.Socket, ErrInvalid)
	case len(cfg.Socket) > MaxSocketPath:
		return nil, fmt.Errorf("tmux socket %q: %w: the path has %d bytes, a socket takes %d; choose a shorter directory",
			cfg.Socket, ErrInvalid, len(cfg.Socket), MaxSocketPath)
	}
	program := cfg.Program
	if program == "" {
		program = "tmux"
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("find tmux: %w (install it, on Debian: apt-get install tmux)", err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("find tmux: %w", err)
	}
	return &Server{socket: cfg.Socket, program: path}, nil
}

// Socket returns the path of the server's socket.
func (s *Server) Socket() string { return s.socket }

// call is one run of the tmux client.
type call struct {
	args  []string
	stdin string
	// env is the client's environment; the server is started with it.
	env []string
}

// clientEnv is what a client needs that starts no server: nothing of ours leaks
// into run-shell, and the locale cannot garble what is printed.
var clientEnv = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8"}

// run runs one client to its end. Any failure is a *CommandError.
func (s *Server) run(ctx context.Context, c call) (string, error) {
	size := 0
	for _, a := range c.args {
		size += len(a) + 1
	}
	if size > maxArgs {
		return "", fmt.Errorf("tmux %s: %w: the command has %d bytes, tmux takes %d", c.args[0], ErrInvalid, size, maxArgs)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	argv := append([]string{"-u", "-S", s.socket, "-f", "/dev/null"}, c.args...)
	cmd := exec.CommandContext(ctx, s.program, argv...) //nolint:gosec // the program is tmux, found by New
	cmd.Env = c.env
	if cmd.Env == nil {
		cmd.Env = clientEnv
	}
	// The server inherits the directory, and keeps it busy.
	cmd.Dir = "/"
	// Ctrl-C in our terminal must not reach a client between paste and Enter.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	cmd.Stdin = strings.NewReader(c.stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err == nil {
		return stdout.String(), nil
	}
	e := &CommandError{Args: c.args, Status: -1, Stderr: short(stderr.String())}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		e.Err = context.Cause(ctx)
	case errors.As(err, &exit):
		e.Status = exit.ExitCode()
	default:
		e.Err = err
	}
	return stdout.String(), e
}

func short(s string) string {
	s = Printable(strings.TrimSpace(s))
	if len(s) > maxStderr {
		s = strings.ToValidUTF8(s[:maxStderr], "") + "…"
	}
	return s
}

// Listening reports whether a server answers on the socket's path. A false
// answer does not mean that the server's process is gone. When it cannot be
// told, it counts as listening.
func (s *Server) Listening(ctx context.Context) bool {
	err := s.dial(ctx)
	return err == nil || !refused(err)
}

// dial returns nil when something accepts a connection.
func (s *Server) dial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := s.dialer.DialContext(ctx, "unix", s.socket)
	if err != nil {
		return err
	}
	return conn.Close()
}

// refused tells "nobody there" from a full backlog, the end of ctx and the like.
func refused(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOTDIR)
}

// explain turns a failed command into what is the case. The message of tmux is
// not looked at: the facts are asked for.
func (s *Server) explain(ctx context.Context, what, name string, err error) error {
	var ce *CommandError
	if !errors.As(err, &ce) || ce.Status < 0 {
		return fmt.Errorf("%s %s: %w", what, name, err)
	}
	if !s.Listening(ctx) {
		return fmt.Errorf("%s %s on %s: %w", what, name, s.socket, ErrNoServer)
	}
	if name != "" {
		if names, lerr := s.Sessions(ctx); lerr == nil && !slices.Contains(names, name) {
			return fmt.Errorf("%s %s on %s: %w", what, name, s.socket, ErrNoSession)
		}
	}
	return fmt.Errorf("%s %s: %w", what, name, err)
}

// Sessions lists the names of the server's sessions, its own order kept.
func (s *Server) Sessions(ctx context.Context) ([]string, error) {
	out, err := s.run(ctx, call{args: []string{"list-sessions", "-F", "#{session_name}"}})
	if err != nil {
		if !s.Listening(ctx) {
			return nil, fmt.Errorf("list sessions on %s: %w", s.socket, ErrNoServer)
		}
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	return strings.Fields(out), nil
}

// Has reports whether the session exists, dead or alive. No server means no.
func (s *Server) Has(ctx context.Context, name string) (bool, error) {
	names, err := s.Sessions(ctx)
	if errors.Is(err, ErrNoServer) {
		return false, nil
	}
	return slices.Contains(names, name), err
}

// ServerProcess identifies the server's process.
func (s *Server) ServerProcess(ctx context.Context) (Process, error) {
	out, err := s.run(ctx, call{args: []string{"list-sessions", "-F", "#{pid}"}})
	if err != nil {
		return Process{}, s.explain(ctx, "ask for the process of", "", err)
	}
	line, _, _ := strings.Cut(out, "\n")
	pid, err := atoiPID(line)
	if err != nil {
		return Process{}, fmt.Errorf("ask for the server's process: %w", err)
	}
	return Identify(pid)
}

// Hidden returns the value that NewSession stored under key, or "" when there is
// none.
func (s *Server) Hidden(ctx context.Context, key string) (string, error) {
	out, err := s.run(ctx, call{args: []string{"show-environment", "-gh"}})
	if err != nil {
		return "", s.explain(ctx, "read the environment of", "", err)
	}
	for line := range strings.Lines(out) {
		if k, v, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok && k == key {
			return v, nil
		}
	}
	return "", nil
}

// KillSession ends the session and its window; the program gets HUP. A session
// that is not there is ErrNoSession or ErrNoServer.
func (s *Server) KillSession(ctx context.Context, name string) error {
	if !ValidName(name) {
		return fmt.Errorf("kill session %q: %w", name, ErrForeign)
	}
	if _, err := s.run(ctx, call{args: []string{"kill-session", "-t", "=" + name}}); err != nil {
		return s.explain(ctx, "kill session", name, err)
	}
	return nil
}

// KillServer ends the server with all its sessions, which must all be ours. A
// server that is not there is ErrNoServer.
func (s *Server) KillServer(ctx context.Context) error {
	names, err := s.Sessions(ctx)
	if err != nil {
		return err
	}
	for _, n := range names {
		if !ValidName(n) {
			return fmt.Errorf("kill the tmux server on %s: session %q: %w", s.socket, n, ErrForeign)
		}
	}
	if _, err := s.run(ctx, call{args: []string{"kill-server"}}); err != nil {
		return s.explain(ctx, "kill server", "", err)
	}
	return nil
}

// RecreateSocket makes the server process p, whose socket file was removed,
// listen on its path again, and waits until it does. ErrGone when p has ended.
func (s *Server) RecreateSocket(ctx context.Context, p Process) error {
	if s.Listening(ctx) {
		return nil
	}
	if err := p.Signal(syscall.SIGUSR1); err != nil {
		return fmt.Errorf("recreate the socket of tmux server %d: %w", p.PID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, relistenTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for s.dial(ctx) != nil {
		if !p.Alive() {
			return fmt.Errorf("recreate the socket of tmux server %d: %w", p.PID, ErrGone)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("recreate the socket of tmux server %d at %s: %w", p.PID, s.socket, context.Cause(ctx))
		}
	}
	return nil
}
