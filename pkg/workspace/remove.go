package workspace

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"loopfleet/pkg/logkey"
	"loopfleet/pkg/workitem"
)

// Removal is what became of a checkout.
type Removal struct {
	// Removed says that there was a checkout, and that it is gone.
	Removed bool
	// KeptReason says why it is still there, for people; empty when it is not.
	KeptReason string
}

// Remove removes the item's checkout. It stays when the configuration says so,
// when it holds work that is nowhere else, and when that cannot be told; force
// removes it all the same. None there is success. End what works in it before.
//
// The item's branch goes with a worktree, as nothing of it is lost or wanted;
// its commit is logged. The shared clone stays.
func (m *Manager) Remove(ctx context.Context, item workitem.Ref, force bool) (Removal, error) {
	out, err := m.remove(ctx, item, force)
	if err != nil {
		return Removal{}, fmt.Errorf("remove the checkout of %s: %w", item, err)
	}
	return out, nil
}

func (m *Manager) remove(ctx context.Context, item workitem.Ref, force bool) (Removal, error) {
	if item.Zero() {
		return Removal{}, fmt.Errorf("%w: no work item", ErrInvalid)
	}
	held, err := m.acquire(ctx, "i-"+item.DirName(), "another call for this checkout", nil)
	if err != nil {
		return Removal{}, err
	}
	defer held.release()
	st, err := m.known(item)
	switch {
	case errors.Is(err, ErrNotOurs) && !force:
		return Removal{KeptReason: err.Error()}, nil
	case errors.Is(err, ErrNotOurs):
		st = &state{Item: item, Phase: phaseReady, Strategy: m.cfg.Strategy}
	case err != nil:
		return Removal{}, err
	case st == nil:
		held.remove()
		return Removal{}, nil
	}
	switch {
	case st.Phase != phaseReady || force:
	case !isDir(m.Dir(item)):
		st.Branch = "" // somebody deleted the directory, but not what is committed
	case m.cfg.Keep:
		return Removal{KeptReason: "kept by configuration (workspace.keepCheckoutOnClose)"}, nil
	default:
		d, err := m.look(ctx, st, held)
		switch {
		case ctx.Err() != nil:
			return Removal{}, context.Cause(ctx)
		case err != nil:
			return Removal{KeptReason: "cannot tell whether it holds work: " + err.Error()}, nil
		case !d.Clean():
			return Removal{KeptReason: "it holds work that is nowhere else: " + d.Summary}, nil
		}
	}
	if err := m.clear(ctx, st, held); err != nil {
		return Removal{}, err
	}
	held.remove()
	m.cfg.Log.Info().Stringer(logkey.WorkItem, item).Bool("force", force).Msg("removed a checkout")
	return Removal{Removed: true}, nil
}

// clear removes all that there is of a checkout, and of a worktree the branch
// that st names. It can be interrupted anywhere and called again.
func (m *Manager) clear(ctx context.Context, st *state, held *lock) error {
	wasReady := st.Phase == phaseReady
	st.Phase = phaseRemoving
	if wasReady {
		if err := m.save(*st); err != nil {
			return err
		}
	}
	repo, err := m.checkoutRepo(st)
	if err != nil {
		return err
	}
	// Gone at once for everybody; a large tree takes a while to delete.
	trash := m.own("trash", st.Item.DirName()+"."+rand.Text())
	if err := os.Rename(repo.worktree, trash); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if st.Strategy == Worktree {
		if err := m.detach(ctx, st, repo, held); err != nil {
			return err
		}
	}
	for _, dir := range []string{repo.view, trash} {
		if err := removeTree(dir); err != nil {
			return err
		}
	}
	m.sweep(st.Item)
	return m.forget(st.Item)
}

// detach makes the shared clone forget a worktree, and its branch.
func (m *Manager) detach(ctx context.Context, st *state, repo *repository, held *lock) error {
	name, err := repoName(st.Item)
	if err != nil {
		return err
	}
	if !isDir(repo.common) {
		return nil
	}
	repoLock, err := m.acquire(ctx, "r-"+name, "another checkout of the repository", nil)
	if err != nil {
		return err
	}
	defer repoLock.release()
	if err := removeTree(repo.gitDir); err != nil {
		return err
	}
	src := &source{m: m, repo: m.sharedRepo(name), held: []*lock{held, repoLock}}
	if st.Branch == "" || !src.repo.whole() || branchUser(repo.common, repo.gitDir, st.Branch) != "" {
		return nil
	}
	if err := m.clearStale(ctx, repo.common, staleLock); err != nil {
		return err
	}
	if err := src.repo.open(st.URL); err != nil {
		return err
	}
	oid, err := src.commit(ctx, localHeads+st.Branch)
	if err != nil || oid == "" {
		return err
	}
	m.cfg.Log.Info().Stringer(logkey.WorkItem, st.Item).Str("commit", oid).Msg("deleting the branch of a removed checkout")
	_, err = src.git(ctx, "update-ref", "-d", localHeads+st.Branch, oid)
	return err
}

// sweep deletes what an interrupted removal of the item has left.
func (m *Manager) sweep(item workitem.Ref) {
	left, _ := filepath.Glob(globQuote(m.own("trash", item.DirName())) + ".*")
	for _, dir := range left {
		if err := removeTree(dir); err != nil {
			m.cfg.Log.Warn().Err(err).Str("dir", dir).Msg("cannot delete what is left of a checkout")
		}
	}
}

// removeTree deletes a tree, also one with directories that nobody may write to
// (caches of modules are made like that). It follows no link.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, os.ErrPermission) {
		return err
	}
	root, oerr := os.OpenRoot(dir)
	if oerr != nil {
		return errors.Join(err, oerr)
	}
	defer func() { _ = root.Close() }()
	open := func(path string) {
		if fi, err := root.Lstat(path); err == nil && fi.IsDir() {
			_ = root.Chmod(path, fi.Mode().Perm()|private)
		}
	}
	open(".")
	_ = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			open(path)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
