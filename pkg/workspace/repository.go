package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// repository is a repository as our calls of git see it: the agent's objects and
// references, our configuration and no hooks.
//
// GIT_COMMON_DIR names a directory of ours ("view") that holds a configuration
// of ours and links to everything else. Git takes HEAD and the index from
// GIT_DIR, and neither configuration nor hooks.
type repository struct {
	gitDir   string // holds HEAD and, of a checkout, the index
	common   string // holds objects and references
	view     string
	worktree string // empty for a shared clone
}

// shared are the entries of a common directory that are linked to.
var shared = []string{"info", "lfs", "logs", "objects", "packed-refs", "refs", "shallow", "worktrees"}

// madeDirs are those of them that git does not make through a link.
var madeDirs = []string{"info", "lfs", "logs", "worktrees"}

// open makes the view, new each time: with an address for origin, or without.
func (r *repository) open(url string) error {
	if err := os.MkdirAll(r.view, private); err != nil {
		return fmt.Errorf("make our view of %s: %w", r.common, err)
	}
	for _, name := range madeDirs {
		if err := os.MkdirAll(filepath.Join(r.common, name), private); err != nil {
			return fmt.Errorf("complete the repository: %w", err)
		}
	}
	for _, name := range shared {
		link, target := filepath.Join(r.view, name), filepath.Join(r.common, name)
		if have, err := os.Readlink(link); err == nil && have == target {
			continue
		}
		if err := os.RemoveAll(link); err != nil {
			return fmt.Errorf("make our view of %s: %w", r.common, err)
		}
		if err := os.Symlink(target, link); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make our view of %s: %w", r.common, err)
		}
	}
	// Git wants a HEAD here; it is nobody's.
	if err := ensureFile(filepath.Join(r.view, "HEAD"), "ref: refs/loopfleet/none\n"); err != nil {
		return err
	}
	conf := "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = " +
		strconv.FormatBool(r.worktree == "") + "\n"
	if url != "" {
		conf += "[remote \"origin\"]\n\turl = " + configQuote(url) + "\n\tfetch = " + headsToOrigin + "\n"
	}
	return ensureFile(filepath.Join(r.view, "config"), conf)
}

// configQuote writes a value of git's configuration.
func configQuote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(s) + `"`
}

func (r *repository) env() []string {
	out := []string{"GIT_DIR=" + r.gitDir, "GIT_COMMON_DIR=" + r.view}
	if r.worktree != "" {
		out = append(out, "GIT_WORK_TREE="+r.worktree)
	}
	return out
}

func (r *repository) cwd() string {
	switch {
	case r == nil:
		return "/"
	case r.worktree != "":
		return r.worktree
	default:
		return r.gitDir
	}
}

// sharedRepo is the shared clone of a repository.
func (m *Manager) sharedRepo(name string) *repository {
	dir := filepath.Join(m.repos(), name+".git")
	return &repository{gitDir: dir, common: dir, view: m.own("common", "r-"+name)}
}

// checkoutRepo is an item's checkout.
func (m *Manager) checkoutRepo(s *state) (*repository, error) {
	r := &repository{view: m.own("common", "i-"+s.Item.DirName()), worktree: m.Dir(s.Item)}
	if s.Strategy == Clone {
		r.gitDir = filepath.Join(r.worktree, ".git")
		r.common = r.gitDir
		return r, nil
	}
	name, err := repoName(s.Item)
	if err != nil {
		return nil, err
	}
	r.common = m.sharedRepo(name).gitDir
	// Git names it after the directory.
	r.gitDir = filepath.Join(r.common, "worktrees", s.Item.DirName())
	return r, nil
}

// whole reports whether git can read the checkout.
func (r *repository) whole() bool {
	for _, p := range []string{filepath.Join(r.gitDir, "HEAD"), filepath.Join(r.common, "objects"), filepath.Join(r.common, "refs")} {
		if _, err := os.Stat(p); err != nil {
			return false
		}
	}
	return true
}

// isDir says whether path is a directory itself, no link to one.
func isDir(path string) bool {
	fi, err := os.Lstat(path) //nolint:gosec // it is only asked what it is
	return err == nil && fi.IsDir()
}

// emptyOrMissing says whether a directory may be made at path.
func emptyOrMissing(path string) bool {
	entries, err := os.ReadDir(path)
	if errors.Is(err, os.ErrNotExist) {
		return true
	}
	return err == nil && len(entries) == 0 && isDir(path)
}
