package fleettest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Proc is one process of the product, or the server.
type Proc struct {
	Name  string
	cmd   *exec.Cmd
	log   string
	ready chan string // gets the ready line, then is closed
	ended chan struct{}

	mu  sync.Mutex
	err error
}

// startProc starts a program; what it prints goes to <dir>/<name>.log.
func startProc(name, dir, program string, args, environ []string) (*Proc, error) {
	p := &Proc{Name: name, log: filepath.Join(dir, name+".log"), ready: make(chan string, 1), ended: make(chan struct{})}
	f, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.cmd = exec.Command(program, args...) //nolint:noctx // it lives until it is told to end
	p.cmd.Env = environ
	p.cmd.Stderr = f
	// Its own group: an interrupted test must not interrupt it before the
	// test's own cleanup does.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			fmt.Fprintln(f, s.Text())
			if what, ok := strings.CutPrefix(s.Text(), "ready "); ok {
				select {
				case p.ready <- what:
				default:
				}
			}
		}
		err := p.cmd.Wait()
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		_ = f.Close()
		close(p.ended)
	}()
	return p, nil
}

// PID is the process's id.
func (p *Proc) PID() int { return p.cmd.Process.Pid }

// Ended is closed when the process has ended.
func (p *Proc) Ended() <-chan struct{} { return p.ended }

// Alive reports whether it has not ended.
func (p *Proc) Alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Err is how it ended: nil for exit status 0.
func (p *Proc) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Signal sends a signal to this very process.
func (p *Proc) Signal(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s) // it may have ended by itself
}

// Kill is kill -9; it returns when the process is gone.
func (p *Proc) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Terminate asks the process to stop and waits for its end. The error says that
// it did not end within limit, and was killed, or how it ended.
func (p *Proc) Terminate(limit time.Duration) error {
	p.Signal(syscall.SIGTERM)
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-p.ended:
		if err := p.Err(); err != nil {
			return fmt.Errorf("%s after SIGTERM: %w", p.Name, err)
		}
		return nil
	case <-t.C:
		p.Kill()
		return fmt.Errorf("%s did not stop within %s of SIGTERM", p.Name, limit)
	}
}

// awaitReady returns what followed "ready".
func (p *Proc) awaitReady(ctx context.Context) (string, error) {
	select {
	case line := <-p.ready:
		return line, nil
	case <-p.ended:
		return "", fmt.Errorf("%s ended before it was ready: %w\n%s", p.Name, p.Err(), p.Tail())
	case <-ctx.Done():
		return "", fmt.Errorf("%s is not ready: %w\n%s", p.Name, context.Cause(ctx), p.Tail())
	}
}

// Tail is the end of what the process has printed.
func (p *Proc) Tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const most = 4000
	return string(b[max(0, len(b)-most):])
}
