package registry

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrLocked says that another process of this machine runs under the same
// worker id.
var ErrLocked = errors.New("another worker process uses this folder")

// Lock is the lock on a worker's own folder. The kernel drops it with the
// process, however that ends.
type Lock struct {
	file *os.File
	name string
}

// LockDir creates dir if need be and locks it without waiting.
func LockDir(dir string) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the worker's folder: %w", err)
	}
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // G304: the worker's own folder
	if err != nil {
		return nil, fmt.Errorf("open the worker's lock: %w", err)
	}
	fd := int(f.Fd())
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s: stop the other one, or give this one its own worker.id or stateDir", ErrLocked, dir)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	name, err := lockName(f)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &Lock{file: f, name: name}, nil
}

// lockName tells this very folder on this very machine from any other: the
// boot's id with the file's device and inode.
func lockName(f *os.File) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", fmt.Errorf("stat the worker's lock: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name of this host: %w", err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		boot = []byte("unknown") // not Linux: host and inode have to do
	}
	return fmt.Sprintf("%s:%s:%d:%d", host, strings.TrimSpace(string(boot)), st.Dev, st.Ino), nil
}

// Name identifies the locked folder, for NewLease.
func (l *Lock) Name() string { return l.name }

// Unlock gives the folder back.
func (l *Lock) Unlock() error {
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("unlock the worker's folder: %w", err)
	}
	return nil
}
