package workspace

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// nested looks into the submodules that are populated. Each has a configuration
// that the agent may have written, so each is seen through a view too.
func (m *Manager) nested(ctx context.Context, s *source, base string, depth int) (Dirty, error) {
	links, err := s.gitlinks(ctx, "ls-files", "--stage", "-z")
	if err != nil || len(links) == 0 {
		return Dirty{}, err
	}
	given := map[string]string{}
	if oid, err := s.commit(ctx, base); base != "" && err == nil && oid != "" {
		if given, err = s.gitlinks(ctx, "ls-tree", "-r", "-z", oid); err != nil {
			return Dirty{}, err
		}
	}
	var sum Dirty
	for path, want := range links {
		d, err := m.submodule(ctx, s, path, want, given[path], depth)
		if err != nil {
			return Dirty{}, fmt.Errorf("submodule %q: %w", path, err)
		}
		sum.Uncommitted += d.Uncommitted
		sum.Unpushed += d.Unpushed
		sum.Stashed += d.Stashed
	}
	return sum, nil
}

// gitlinks maps the paths of submodules to their commits.
func (s *source) gitlinks(ctx context.Context, args ...string) (map[string]string, error) {
	out, err := s.git(ctx, args...)
	if err != nil {
		return nil, err
	}
	links := map[string]string{}
	for entry := range strings.SplitSeq(out, "\x00") {
		// ls-files: mode oid stage TAB path; ls-tree: mode type oid TAB path
		meta, path, _ := strings.Cut(entry, "\t")
		if w := strings.Fields(meta); len(w) == 3 && w[0] == "160000" {
			links[path] = w[1]
			if w[1] == "commit" {
				links[path] = w[2]
			}
		}
	}
	return links, nil
}

// submodule looks at one: want is the commit that the index has, given the one
// that the checkout began with.
func (m *Manager) submodule(ctx context.Context, parent *source, path, want, given string, depth int) (Dirty, error) {
	tree := filepath.Join(parent.repo.worktree, path)
	switch at, err := filepath.EvalSymlinks(tree); {
	case os.IsNotExist(err), err == nil && emptyOrMissing(tree):
		return Dirty{}, nil // not populated
	case err != nil:
		return Dirty{}, err
	case at != tree:
		return Dirty{Uncommitted: 1}, nil // there is a link in its place
	}
	gitDir, err := gitDirOf(tree)
	if err != nil {
		return Dirty{}, err
	}
	// Another repository's directory is none of our business.
	if !within(gitDir, parent.repo.worktree) && !within(gitDir, parent.repo.gitDir) || depth == 0 {
		return Dirty{}, fmt.Errorf("%s: %w", gitDir, ErrNotOurs)
	}
	view, err := os.MkdirTemp(m.own("common"), "s-")
	if err != nil {
		return Dirty{}, err
	}
	defer func() { _ = os.RemoveAll(view) }()
	s := &source{m: m, held: parent.held, repo: &repository{gitDir: gitDir, common: gitDir, view: view, worktree: tree}}
	if !s.repo.whole() {
		return Dirty{}, ErrBroken
	}
	if err := s.repo.open(""); err != nil {
		return Dirty{}, err
	}
	var d Dirty
	if d.Uncommitted, err = s.uncommitted(ctx); err != nil {
		return Dirty{}, err
	}
	head, err := s.commit(ctx, "HEAD")
	if err != nil {
		return Dirty{}, err
	}
	if head != want {
		d.Uncommitted++ // the parent has yet to record it
	}
	branches, err := s.branches(ctx, &state{Strategy: Clone})
	if err != nil {
		return Dirty{}, err
	}
	if d.Unpushed, err = s.unpushed(ctx, given, branches); err != nil {
		return Dirty{}, err
	}
	if d.Stashed, err = s.stashed(ctx, true, branches); err != nil {
		return Dirty{}, err
	}
	sub, err := m.nested(ctx, s, given, depth-1)
	d.Uncommitted += sub.Uncommitted
	d.Unpushed += sub.Unpushed
	d.Stashed += sub.Stashed
	return d, err
}

// gitDirOf is the repository of a working tree of a submodule.
func gitDirOf(tree string) (string, error) {
	const maxFile = 8192
	dot := filepath.Join(tree, ".git")
	fi, err := os.Lstat(dot)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrBroken, err)
	case fi.IsDir():
		return dot, nil
	case !fi.Mode().IsRegular() || fi.Size() > maxFile:
		return "", fmt.Errorf("%w: %s is no file of git", ErrBroken, dot)
	}
	b, err := os.ReadFile(dot) //nolint:gosec // regular, and within the checkout
	if err != nil {
		return "", err
	}
	to, ok := strings.CutPrefix(strings.TrimSpace(string(b)), "gitdir: ")
	if !ok {
		return "", fmt.Errorf("%w: %s is no file of git", ErrBroken, dot)
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(tree, to)
	}
	return filepath.EvalSymlinks(to)
}

func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
