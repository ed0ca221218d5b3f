package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	lockPoll = 20 * time.Millisecond
	// staleLock is how old a lock file of git must be to be a dead process's.
	// Those that concern us are held for milliseconds.
	staleLock = 10 * time.Second
	// deadPack is how old an unfinished pack must be.
	deadPack = 6 * time.Hour
)

// lock is an exclusive lock on a file, between goroutines and processes. Git is
// given the open file too, so the lock outlives a worker that is killed while
// its git still writes.
type lock struct{ f *os.File }

// acquire waits for the lock, telling progress what it waits for.
func (m *Manager) acquire(ctx context.Context, name, what string, progress func(string)) (*lock, error) {
	path := m.own("locks", name)
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	start := time.Now()
	told := start.Add(-m.cfg.ProgressEvery) // so that the first wait is told at once
	for {
		l, err := tryLock(path)
		if l != nil || err != nil {
			return l, err
		}
		if progress != nil && time.Since(told) >= m.cfg.ProgressEvery {
			told = time.Now()
			progress(fmt.Sprintf("waiting for %s (%s)", what, time.Since(start).Round(time.Second)))
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// tryLock returns nil when somebody else has the lock.
func tryLock(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, privateFile) //nolint:gosec // a name of ours
	if err != nil {
		return nil, fmt.Errorf("open a lock: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK), errors.Is(err, syscall.EINTR):
		return nil, f.Close()
	case err != nil:
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	// The holder before us may have removed the file that we opened.
	ours, err := f.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Lstat(path); err == nil && os.SameFile(ours, there) {
			return &lock{f: f}, nil
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return nil, errors.Join(err, f.Close())
}

// release gives the lock up, also where a program that git has left behind still
// has the file open.
func (l *lock) release() {
	_ = syscall.Flock(int(l.f.Fd()), syscall.LOCK_UN)
	_ = l.f.Close()
}

// remove deletes the lock's file; the lock is still held.
func (l *lock) remove() { _ = os.Remove(l.f.Name()) }

// clearStale removes what a git that was killed has left in a repository: lock
// files of what we write, and unfinished packs. Locks of agents are only left
// alone while they are young, so it waits for these to go or to become old.
// Call it with the repository's lock held: no git of ours is at work then.
func (m *Manager) clearStale(ctx context.Context, gitDir string, age time.Duration) error {
	tick := time.NewTicker(10 * lockPoll)
	defer tick.Stop()
	for {
		young := 0
		for _, path := range gitLocks(gitDir) {
			fi, err := os.Lstat(path)
			switch {
			case err != nil: // it is gone
			case time.Since(fi.ModTime()) < age:
				young++
			default:
				m.cfg.Log.Warn().Str("lock", path).Msg("removing a lock file of git that nobody holds")
				_ = os.Remove(path)
			}
		}
		if young == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for a lock file of git in %s: %w", gitDir, context.Cause(ctx))
		case <-tick.C:
		}
	}
	packs, _ := filepath.Glob(filepath.Join(gitDir, "objects", "pack", "tmp_*"))
	for _, p := range packs {
		if fi, err := os.Lstat(p); err == nil && time.Since(fi.ModTime()) > deadPack {
			_ = os.Remove(p)
		}
	}
	return nil
}

// gitLocks lists the lock files of a shared repository that can be in our way.
func gitLocks(gitDir string) []string {
	var out []string
	for _, name := range []string{"HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock"} {
		if _, err := os.Lstat(filepath.Join(gitDir, name)); err == nil {
			out = append(out, filepath.Join(gitDir, name))
		}
	}
	_ = filepath.WalkDir(filepath.Join(gitDir, "refs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.HasSuffix(path, ".lock") {
			out = append(out, path)
		}
		return nil // what is gone meanwhile is not in our way
	})
	return out
}
