package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"loopfleet/pkg/config"
	"loopfleet/pkg/ghshim"
	"loopfleet/pkg/harness"
	"loopfleet/pkg/record"
	"loopfleet/pkg/tmux"
	"loopfleet/pkg/workitem"
)

// MinLease is how much of the worker's lease a paste needs to have left.
const MinLease = 5 * time.Second

// Config is a worker's part of the driver.
type Config struct {
	// Worker is the worker's id; it becomes the sessions' host.
	Worker string
	// Dir is the worker's own directory, absolute: <state>/workers/<id>.
	Dir string
	// WorkDir is the root of the plain directories that items without a
	// checkout work in. Empty means Workspace.Root, or "work" in the state
	// directory when that is empty too.
	WorkDir   string
	Workspace config.Workspace
	// ReceiptTimeout is how long a submitted prompt may go without its
	// receipt; 0 means 30 s.
	ReceiptTimeout time.Duration
	// ProbeWindow is how long a new program must stay alive, unless its
	// receipt comes before; 0 means 2 s.
	ProbeWindow time.Duration
	// TypingPause is how long the keys of a person who is attached must have
	// rested before a prompt is typed, to the second; 0 means 10 s.
	TypingPause time.Duration
	Tmux        config.Tmux
	Log         zerolog.Logger
	// Environ is the worker's environment, as os.Environ gives it. Agents
	// inherit it without SecretNames and without any LOOPFLEET_ variable.
	Environ     []string
	SecretNames []string
	// PathPrefix is put in front of the agents' PATH, absolute directories.
	PathPrefix []string
	// Fence returns how much of the worker's lease is left; nil means that
	// there is always enough.
	Fence func() time.Duration
}

// Driver starts, feeds and ends agents. See the package's documentation.
type Driver struct {
	cfg     Config
	set     *harness.Set
	program string // tmux
	environ []string
	soft    atomic.Pointer[soft]

	mu    sync.Mutex
	locks map[string]chan struct{} // by socket
}

// New checks cfg and finds tmux. It starts nothing.
func New(cfg Config, set *harness.Set) (*Driver, error) {
	switch {
	case cfg.Worker == "":
		return nil, errors.New("session driver: the worker's id is empty")
	case !filepath.IsAbs(cfg.Dir):
		return nil, fmt.Errorf("session driver: directory %q is not absolute", cfg.Dir)
	case len(cfg.Environ) == 0:
		return nil, errors.New("session driver: the environment is empty; agents would start without PATH")
	case set == nil:
		return nil, errors.New("session driver: no harnesses")
	}
	if cfg.WorkDir == "" {
		cfg.WorkDir = cfg.Workspace.Root
	}
	if cfg.WorkDir == "" {
		cfg.WorkDir = filepath.Join(cfg.Dir, "..", "..", "work")
	}
	if !filepath.IsAbs(cfg.WorkDir) {
		return nil, fmt.Errorf("session driver: work directory %q is not absolute", cfg.WorkDir)
	}
	if cfg.ReceiptTimeout <= 0 {
		cfg.ReceiptTimeout = 30 * time.Second
	}
	if cfg.ProbeWindow <= 0 {
		cfg.ProbeWindow = 2 * time.Second
	}
	if cfg.TypingPause <= 0 {
		cfg.TypingPause = 10 * time.Second
	}
	program, err := exec.LookPath("tmux")
	if err != nil {
		return nil, fmt.Errorf("session driver: find tmux: %w (install it, on Debian: apt-get install tmux)", err)
	}
	d := &Driver{
		cfg: cfg, set: set, program: program, environ: ghshim.FirstInPath(agentEnviron(cfg.Environ, cfg.SecretNames), cfg.PathPrefix),
		locks: map[string]chan struct{}{},
	}
	d.Adjust(cfg.ReceiptTimeout, cfg.Tmux)
	return d, nil
}

// soft is what may change while the driver runs.
type soft struct {
	receiptTimeout time.Duration
	tmux           config.Tmux
}

// Adjust changes Config.ReceiptTimeout and Config.Tmux for what begins from now
// on. A timeout of 0 leaves it as it is.
func (d *Driver) Adjust(receiptTimeout time.Duration, t config.Tmux) {
	if receiptTimeout <= 0 {
		receiptTimeout = d.soft.Load().receiptTimeout
	}
	d.soft.Store(&soft{receiptTimeout, t})
}

// agentEnviron is environ without what is ours alone.
func agentEnviron(environ, secrets []string) []string {
	var out []string
	for _, e := range environ {
		name, _, ok := strings.Cut(e, "=")
		if !ok || strings.HasPrefix(name, "LOOPFLEET_") || slices.Contains(secrets, name) {
			continue
		}
		out = append(out, e)
	}
	return out
}

// dir is the item's private directory, the same for every incarnation.
func (d *Driver) dir(item workitem.Ref) string {
	return filepath.Join(d.cfg.Dir, "sessions", item.DirName())
}

// socket is the path of the item's tmux server, the same for every incarnation.
func (d *Driver) socket(item workitem.Ref) string {
	const maxPath = 100 // of the 107 a socket can have
	name := digest(item.String())
	if p := filepath.Join(d.cfg.Dir, "t", name); len(p) <= maxPath {
		return p
	}
	return filepath.Join(os.TempDir(), "loopfleet-"+strconv.Itoa(os.Getuid()), digest(d.cfg.Dir), name)
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	const digits = 12
	return hex.EncodeToString(sum[:])[:digits]
}

// PlainDir is the directory that the item works in when it has no checkout.
func (d *Driver) PlainDir(item workitem.Ref) string {
	return filepath.Join(d.cfg.WorkDir, item.DirName())
}

// server is the tmux server of a recorded session.
func (d *Driver) server(s record.Session) (*tmux.Server, error) {
	if !tmux.ValidName(s.TmuxTarget) {
		return nil, fmt.Errorf("session %q: %w: it was not named by Loopfleet", s.TmuxTarget, tmux.ErrForeign)
	}
	return tmux.New(tmux.Config{Socket: s.TmuxSocket, Program: d.program})
}

// lock makes what types into or ends one session serial. It waits until ctx
// ends.
func (d *Driver) lock(ctx context.Context, socket string) (unlock func(), err error) {
	d.mu.Lock()
	l := d.locks[socket]
	if l == nil {
		l = make(chan struct{}, 1)
		d.locks[socket] = l
	}
	d.mu.Unlock()
	select {
	case l <- struct{}{}:
		return func() { <-l }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// makeSocketDir makes the directory of a socket. Below the shared temporary
// directory, the level that others can reach must be ours too.
func (d *Driver) makeSocketDir(socket string) error {
	dir := filepath.Dir(socket)
	if parent := filepath.Dir(dir); filepath.Dir(parent) == filepath.Clean(os.TempDir()) {
		if err := privateDir(parent); err != nil {
			return err
		}
	}
	return privateDir(dir)
}

// privateDir makes dir, and the directories above it that are missing, for us
// alone. A directory of somebody else's in its place is an error.
func privateDir(dir string) error {
	const private = 0o700
	if err := os.MkdirAll(dir, private); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	if !fi.IsDir() {
		return fmt.Errorf("make %s: it is no directory but %s; remove it", dir, fi.Mode().Type())
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Getuid() {
		return fmt.Errorf("make %s: it belongs to user %d, not to us; remove it", dir, st.Uid)
	}
	if err := os.Chmod(dir, private); err != nil {
		return fmt.Errorf("make %s private: %w", dir, err)
	}
	return nil
}

// sleep waits d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
