package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// submoduleTimeout bounds what a repository of strangers can make us fetch.
const submoduleTimeout = 30 * time.Minute

// fill checks the files out.
func (k *making) fill(ctx context.Context) error {
	s := k.item
	if _, err := s.git(ctx, "symbolic-ref", "HEAD", localHeads+k.start.branch); err != nil {
		return err
	}
	at := s.at // a filter may fetch
	_, err := s.m.run(ctx, call{
		args: []string{"checkout", "--progress", "--force", "--no-recurse-submodules"},
		repo: s.repo, at: &at, held: s.held, doing: "checking out " + s.label, progress: s.say,
	})
	if err != nil {
		return err
	}
	if err := k.lfs(ctx); err != nil {
		return err
	}
	return k.submodules(ctx)
}

// lfs warns when large files are only pointers. Where they are not, the agent's
// git must know the filter too, or it would see every one of them as changed.
func (k *making) lfs(ctx context.Context) error {
	_, err := k.item.git(ctx, "grep", "--cached", "--quiet", "-I", "--fixed-strings", "-e", "filter=lfs",
		"--", ":(glob)**/.gitattributes")
	var ge *GitError
	switch {
	case errors.As(err, &ge) && ge.Status == 1:
		return nil
	case err != nil:
		return err
	case !k.m.lfs:
		k.warn("the repository uses Git LFS and git-lfs is not installed: large files are there as pointers only (on Debian: apt-get install git-lfs)")
		return nil
	}
	for _, kv := range withLFS {
		key, value, _ := strings.Cut(kv, "=")
		if err := k.item.tell(ctx, key, value); err != nil {
			return err
		}
	}
	// One that cannot be downloaded does not stop the checkout.
	out, err := k.item.git(ctx, "lfs", "ls-files", "--long")
	missing := 0
	for line := range strings.Lines(out) {
		if w := strings.Fields(line); len(w) > 1 && w[1] == "-" {
			missing++
		}
	}
	if missing > 0 {
		k.warn("%d of the large files could not be downloaded and are there as pointers only (to try again: git lfs pull)", missing)
	}
	return err
}

// submodules populates them. One that cannot be had is a warning: the agent can
// do a lot without it, and trying again would not bring it.
func (k *making) submodules(ctx context.Context) error {
	s := k.item
	if _, err := os.Lstat(filepath.Join(s.repo.worktree, ".gitmodules")); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	at := s.at
	sub, cancel := context.WithTimeoutCause(ctx, submoduleTimeout, fmt.Errorf("not done after %s", submoduleTimeout))
	defer cancel()
	_, err := s.m.run(sub, call{
		args: []string{"submodule", "update", "--init", "--recursive", "--progress"},
		repo: s.repo, at: &at, held: s.held, doing: "fetching the submodules of " + s.label, progress: s.say,
	})
	if err != nil {
		var ge *GitError
		if !errors.As(err, &ge) || ge.Status < 0 && sub.Err() == nil || ctx.Err() != nil {
			return err // cancelled or killed: the next call makes it whole
		}
		k.warn("not all submodules could be fetched: %s (to try again: git submodule update --init --recursive)", err)
	}
	return k.tellSubmodules(ctx)
}

// tellSubmodules makes the agent's git know what ours has initialised.
func (k *making) tellSubmodules(ctx context.Context) error {
	s := k.item
	out, err := s.m.run(ctx, call{
		args: []string{"config", "--file", s.repo.view + "/config", "--null", "--get-regexp", `^submodule\.`}, held: s.held,
	})
	var ge *GitError
	if errors.As(err, &ge) && ge.Status == 1 {
		return nil // none
	}
	if err != nil {
		return err
	}
	for entry := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		key, value, ok := strings.Cut(entry, "\n")
		if !ok || !strings.HasSuffix(key, ".url") && !strings.HasSuffix(key, ".active") {
			continue
		}
		if err := s.tell(ctx, key, value); err != nil {
			return err
		}
	}
	return nil
}
