package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	headsToOrigin = "+refs/heads/*:refs/remotes/origin/*"
	originHead    = "refs/remotes/origin/HEAD"
	originHeads   = "refs/remotes/origin/"
	localHeads    = "refs/heads/"
	// pulls are the heads of pull requests, by number.
	pulls = "refs/loopfleet/pull/"

	configTries = 50
)

// source is the repository that checkouts are made from: the shared clone, or
// the item's own one.
type source struct {
	m    *Manager
	repo *repository
	at   remote
	held []*lock
	say  func(string)
	// label names the repository to people.
	label string
	// created says that init has just made it.
	created bool
}

func (s *source) git(ctx context.Context, args ...string) (string, error) {
	out, err := s.m.run(ctx, call{args: args, repo: s.repo, held: s.held})
	return strings.TrimSuffix(out, "\n"), err
}

func (s *source) network(ctx context.Context, doing string, args ...string) (string, error) {
	return s.m.run(ctx, call{
		args: args, repo: s.repo, at: &s.at, held: s.held,
		doing: doing + " " + s.label, progress: s.say,
	})
}

// init makes the repository, or completes one whose making was interrupted.
func (s *source) init(ctx context.Context) error {
	dir := s.repo.gitDir
	if err := os.MkdirAll(dir, private); err != nil {
		return err
	}
	args := []string{"init", "--quiet", "--template=", "--initial-branch=loopfleet/none"}
	if s.repo.worktree == "" {
		args = append(args, "--bare")
	} else {
		dir = s.repo.worktree
	}
	// Not through a view: init writes the configuration that the agent will have.
	if _, err := s.m.run(ctx, call{args: append(args, "--", dir), create: true, held: s.held}); err != nil {
		return err
	}
	if err := s.repo.open(s.at.url); err != nil {
		return err
	}
	s.created = true
	return s.tell(ctx, "remote.origin.fetch", headsToOrigin)
}

// tell writes into the configuration that the agent has. An agent may be writing
// there too, so it is tried for a while.
func (s *source) tell(ctx context.Context, key, value string) error {
	file := filepath.Join(s.repo.common, "config")
	for try := 1; ; try++ {
		_, err := s.m.run(ctx, call{args: []string{"config", "--file", file, "--replace-all", key, value}, held: s.held})
		if err == nil || try == configTries || ctx.Err() != nil {
			return err
		}
		if err := pause(ctx, 2*lockPoll); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// address makes origin the repository's address of today: repositories move.
func (s *source) address(ctx context.Context) error {
	if err := s.repo.open(s.at.url); err != nil {
		return err
	}
	if !s.created {
		file := filepath.Join(s.repo.common, "config")
		have, err := s.m.run(ctx, call{args: []string{"config", "--file", file, "--get-all", "remote.origin.url"}, held: s.held})
		if err == nil && strings.TrimSuffix(have, "\n") == s.at.url {
			return nil
		}
	}
	return s.tell(ctx, "remote.origin.url", s.at.url)
}

// fetch brings the branches, finds the default one and, when pull is a remote
// reference, brings that too. It reports whether the remote has pull.
func (s *source) fetch(ctx context.Context, number, pull string) (hasPull bool, err error) {
	if err := s.address(ctx); err != nil {
		return false, err
	}
	args := []string{"ls-remote", "--symref", "--", "origin", "HEAD"}
	if pull != "" {
		args = append(args, pull)
	}
	out, err := s.network(ctx, "asking for the branches of", args...)
	if err != nil {
		return false, s.unreachable(err)
	}
	head, refs := parseRemote(out)
	specs := []string{headsToOrigin}
	if _, ok := refs[pull]; ok && pull != "" {
		hasPull = true
		specs = append(specs, "+"+pull+":"+pulls+number)
	}
	if head == "" && refs["HEAD"] != "" {
		// The remote's HEAD is on no branch.
		specs = append(specs, "+HEAD:refs/loopfleet/head")
	}
	args = []string{
		"fetch", "--progress", "--prune", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-maintenance",
		"--end-of-options", "origin",
	}
	if _, err := s.network(ctx, "fetching", append(args, specs...)...); err != nil {
		return false, s.unreachable(err)
	}
	switch {
	case head != "":
		_, err = s.git(ctx, "symbolic-ref", originHead, originHeads+head)
	case refs["HEAD"] != "":
		_, err = s.git(ctx, "update-ref", "--no-deref", originHead, refs["HEAD"])
	default:
		err = ErrEmpty
	}
	return hasPull, err
}

func (s *source) unreachable(err error) error {
	var ge *GitError
	if !errors.As(err, &ge) || ge.Status < 0 {
		return err
	}
	return fmt.Errorf("%w (does it exist, and can this machine read it? try: git ls-remote %s)", err, s.at.url)
}

// parseRemote reads what ls-remote --symref prints: the default branch without
// refs/heads/, and the object of each reference.
func parseRemote(out string) (head string, refs map[string]string) {
	refs = map[string]string{}
	for line := range strings.Lines(out) {
		left, ref, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok {
			continue
		}
		if to, ok := strings.CutPrefix(left, "ref: "); ok {
			if b, ok := strings.CutPrefix(to, localHeads); ok && ref == "HEAD" {
				head = b
			}
			continue
		}
		refs[ref] = left
	}
	return head, refs
}

// commit returns the commit that a full reference or object id names; empty when
// there is none.
func (s *source) commit(ctx context.Context, ref string) (string, error) {
	out, err := s.git(ctx, "rev-parse", "--quiet", "--verify", ref+"^{commit}")
	var ge *GitError
	if errors.As(err, &ge) && ge.Status == 1 {
		return "", nil
	}
	return out, err
}

// commits returns the commits of full references; those that are not there are
// left out. One call of git is a lot quicker than one for each.
func (s *source) commits(ctx context.Context, refs ...string) (map[string]string, error) {
	out, err := s.git(ctx, append([]string{"for-each-ref", "--format=%(objectname) %(refname)"}, refs...)...)
	found := map[string]string{}
	for line := range strings.Lines(out) {
		// A reference as a pattern stands for those below it as well.
		if oid, ref, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " "); ok && slices.Contains(refs, ref) {
			found[ref] = oid
		}
	}
	return found, err
}

// ancestor reports whether a is b or an ancestor of it.
func (s *source) ancestor(ctx context.Context, a, b string) (bool, error) {
	_, err := s.git(ctx, "merge-base", "--is-ancestor", a, b)
	var ge *GitError
	if errors.As(err, &ge) && ge.Status == 1 {
		return false, nil
	}
	return err == nil, err
}

// checkBranch refuses what is no name of a branch, and what git or a person
// could take for something else.
func (m *Manager) checkBranch(ctx context.Context, name string) error {
	const maxBranch = 240 // the name of its lock file must fit
	if name == "" || len(name) > maxBranch || name[0] == '-' || name == "HEAD" || strings.HasPrefix(name, "refs/") {
		return fmt.Errorf("%w: branch name %q", ErrInvalid, name)
	}
	_, err := m.run(ctx, call{args: []string{"check-ref-format", localHeads + name}})
	var ge *GitError
	if errors.As(err, &ge) && ge.Status == 1 {
		return fmt.Errorf("%w: branch name %q", ErrInvalid, name)
	}
	return err
}

// branchUser returns the checkout that has the branch, if any but own has.
func branchUser(common, own, branch string) string {
	heads, _ := filepath.Glob(filepath.Join(globQuote(common), "worktrees", "*", "HEAD"))
	for _, h := range heads {
		dir := filepath.Dir(h)
		b, err := os.ReadFile(h) //nolint:gosec // git's own file
		if err != nil || dir == own || strings.TrimSpace(string(b)) != "ref: "+localHeads+branch {
			continue
		}
		at, err := os.ReadFile(filepath.Join(dir, "gitdir")) //nolint:gosec // as above
		if tree := filepath.Dir(strings.TrimSpace(string(at))); err == nil && isDir(tree) {
			return tree
		}
	}
	return ""
}

func globQuote(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}
