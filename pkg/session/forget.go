package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"loopfleet/pkg/workitem"
)

// Forget removes what is kept of an item whose session has ended: its private
// directory with receipts and handle, and its plain work directory with all that
// is in it. It returns the latter's path, or "" when there was none. What is gone
// already is success.
//
// Only paths made from the item's name are removed, never recorded ones, and no
// link is followed.
func (d *Driver) Forget(ctx context.Context, item workitem.Ref) (dir string, err error) {
	if item.Zero() {
		return "", errors.New("forget a session: no item is named")
	}
	unlock, err := d.lock(ctx, d.socket(item))
	if err != nil {
		return "", fmt.Errorf("forget the session of %s: %w", item, err)
	}
	defer unlock()
	plain := d.PlainDir(item)
	switch _, serr := os.Lstat(plain); {
	case serr == nil:
		dir = plain
	case !errors.Is(serr, fs.ErrNotExist):
		err = serr
	}
	err = errors.Join(err, removeTree(plain), removeTree(d.dir(item)))
	if err != nil {
		return dir, fmt.Errorf("remove what is kept of %s: %w", item, err)
	}
	return dir, nil
}

// removeTree removes a directory and everything in it, also what its owner may
// not write to: module caches and the like are made read-only.
func removeTree(root string) error {
	err := os.RemoveAll(root)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	werr := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() { // no link is a directory here
			return err
		}
		return os.Chmod(path, 0o700) //nolint:gosec // G302: a directory that is about to go
	})
	if err := os.RemoveAll(root); err != nil {
		return errors.Join(werr, err)
	}
	return nil
}
