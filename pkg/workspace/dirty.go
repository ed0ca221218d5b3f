package workspace

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// remoteTimeout is for asking the remote what it has.
	remoteTimeout = 30 * time.Second
	// maxReflog is how much of a reflog is read; its newest part.
	maxReflog = 4 << 20
	// maxNested is how deep submodules are looked into.
	maxNested = 5
)

// Dirty is the work in a checkout that is nowhere else.
type Dirty struct {
	// Uncommitted is how many files are changed, added, removed or untracked
	// (not those that git is told to ignore), with those of submodules.
	Uncommitted int
	// Unpushed is how many commits no remote is known to have.
	Unpushed int
	// Stashed is how many stashes were made here.
	Stashed int
	// Summary says it in words; empty when there is none.
	Summary string
}

// Clean says that nothing would be lost.
func (d Dirty) Clean() bool { return d.Uncommitted == 0 && d.Unpushed == 0 && d.Stashed == 0 }

// State looks at a checkout that Prepare made. Nothing in it is changed and no
// program that its repository names is run. Only when there are commits that
// look as if they were not pushed is the remote asked, as branches are deleted
// there once they are merged.
func (m *Manager) State(ctx context.Context, dir string) (Dirty, error) {
	d, err := m.stateOf(ctx, dir)
	if err != nil {
		return Dirty{}, fmt.Errorf("look at the checkout %s: %w", dir, err)
	}
	return d, nil
}

func (m *Manager) stateOf(ctx context.Context, dir string) (Dirty, error) {
	name := filepath.Base(dir)
	if parent, err := filepath.EvalSymlinks(filepath.Dir(dir)); err != nil || parent != m.items() {
		return Dirty{}, ErrNotOurs
	}
	held, err := m.acquire(ctx, "i-"+name, "another call for this checkout", nil)
	if err != nil {
		return Dirty{}, err
	}
	defer held.release()
	st, err := m.load(name)
	switch {
	case err != nil:
		return Dirty{}, err
	case st == nil:
		return Dirty{}, ErrNotOurs
	case st.Phase != phaseReady || !isDir(m.Dir(st.Item)):
		return Dirty{}, os.ErrNotExist
	}
	return m.look(ctx, st, held)
}

func (m *Manager) look(ctx context.Context, st *state, held *lock) (Dirty, error) {
	repo, err := m.checkoutRepo(st)
	if err != nil {
		return Dirty{}, err
	}
	if !repo.whole() {
		return Dirty{}, ErrBroken
	}
	if err := repo.open(st.URL); err != nil {
		return Dirty{}, err
	}
	s := &source{m: m, repo: repo, held: []*lock{held}, label: st.Item.Owner + "/" + st.Item.Repo}
	// The address is the recorded one: what the agent has made of it is not asked.
	if at, err := m.remoteOf(st.Item, st.URL); err == nil && st.URL != "" {
		s.at = at
	}
	var d Dirty
	if d.Uncommitted, err = s.uncommitted(ctx); err != nil {
		return Dirty{}, err
	}
	branches, err := s.branches(ctx, st)
	if err != nil {
		return Dirty{}, err
	}
	if d.Unpushed, err = s.unpushed(ctx, st.Base, branches); err != nil {
		return Dirty{}, err
	}
	if d.Stashed, err = s.stashed(ctx, st.Strategy == Clone, branches); err != nil {
		return Dirty{}, err
	}
	sub, err := m.nested(ctx, s, st.Base, maxNested)
	if err != nil {
		return Dirty{}, err
	}
	d.Uncommitted += sub.Uncommitted
	d.Unpushed += sub.Unpushed
	d.Stashed += sub.Stashed
	d.Summary = d.words()
	return d, nil
}

func (d Dirty) words() string {
	var out []string
	for _, p := range []struct {
		n         int
		one, more string
	}{
		{d.Uncommitted, "1 file with uncommitted changes", "files with uncommitted changes"},
		{d.Unpushed, "1 commit that was not pushed", "commits that were not pushed"},
		{d.Stashed, "1 stash", "stashes"},
	} {
		switch p.n {
		case 0:
		case 1:
			out = append(out, p.one)
		default:
			out = append(out, strconv.Itoa(p.n)+" "+p.more)
		}
	}
	return strings.Join(out, ", ")
}

// uncommitted counts, without looking into submodules: git would do that with
// their own configuration. Our inbox is no work.
func (s *source) uncommitted(ctx context.Context) (int, error) {
	out, err := s.git(ctx, "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=normal", "--ignore-submodules=all",
		"--", ".", ":(exclude,top).loopfleet")
	return strings.Count(out, "\x00"), err
}

// branches are the local branches that were checked out here: they are shared
// between worktrees, and this one answers for its own.
func (s *source) branches(ctx context.Context, st *state) ([]string, error) {
	out, err := s.git(ctx, "for-each-ref", "--format=%(refname)", localHeads)
	if err != nil || out == "" {
		return nil, err
	}
	all := strings.Split(out, "\n")
	if st.Strategy == Clone {
		return all, nil
	}
	been := map[string]bool{localHeads + st.Branch: true}
	head, err := s.branch(ctx)
	if err != nil {
		return nil, err
	}
	been[localHeads+head] = true
	err = s.reflog(func(line string) {
		if _, move, ok := strings.Cut(line, "\tcheckout: moving from "); ok {
			if from, to, ok := strings.Cut(move, " to "); ok {
				been[localHeads+from], been[localHeads+to] = true, true
			}
		}
	})
	return slices.DeleteFunc(all, func(b string) bool { return !been[b] }), err
}

// reflog reads the lines of HEAD's reflog.
func (s *source) reflog(line func(string)) error {
	f, err := os.OpenFile(filepath.Join(s.repo.gitDir, "logs", "HEAD"), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the reflog: %w", err)
	}
	defer func() { _ = f.Close() }()
	if fi, err := f.Stat(); err == nil && fi.Size() > maxReflog {
		if _, err := f.Seek(-maxReflog, io.SeekEnd); err != nil {
			return err
		}
	}
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, maxReflog)
	for sc.Scan() {
		line(sc.Text())
	}
	return sc.Err()
}

// unpushed counts the commits of HEAD and the branches that no remote has.
func (s *source) unpushed(ctx context.Context, base string, branches []string) (int, error) {
	var tips []string
	head, err := s.commit(ctx, "HEAD")
	if err != nil {
		return 0, err
	}
	if head != "" {
		tips = append(tips, head)
	}
	tips = append(tips, branches...)
	if len(tips) == 0 {
		return 0, nil
	}
	args := slices.Concat([]string{"rev-list", "--count"}, tips, []string{"--not", "--remotes", "--glob=" + pulls + "*"})
	if base != "" {
		oid, err := s.commit(ctx, base)
		if err != nil {
			return 0, err
		}
		if oid != "" {
			args = append(args, oid)
		}
	}
	n, err := s.count(ctx, args, "")
	if err != nil || n == 0 || s.at.url == "" {
		return n, err
	}
	has, err := s.remoteHas(ctx)
	if err != nil {
		return n, nil //nolint:nilerr // what the remote cannot say counts as not pushed
	}
	return s.count(ctx, append(args, "--ignore-missing", "--stdin"), has)
}

func (s *source) count(ctx context.Context, args []string, stdin string) (int, error) {
	out, err := s.m.run(ctx, call{args: args, repo: s.repo, stdin: stdin, held: s.held})
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		return 0, fmt.Errorf("count commits: %w", err)
	}
	return n, nil
}

// remoteHas asks for the objects of all references of the remote, pull requests
// included, and returns them as rev-list excludes them.
func (s *source) remoteHas(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
	defer cancel()
	out, err := s.network(ctx, "asking for the branches of", "ls-remote", "--", s.at.url)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for line := range strings.Lines(out) {
		if oid, _, ok := strings.Cut(line, "\t"); ok {
			b.WriteString("^" + oid + "\n")
		}
	}
	return b.String(), nil
}

// stashed counts the stashes that were made here. Worktrees share them too: one
// that was made on a branch goes by the branch, another by the commit it is on.
func (s *source) stashed(ctx context.Context, all bool, branches []string) (int, error) {
	if oid, err := s.commit(ctx, "refs/stash"); err != nil || oid == "" {
		return 0, err
	}
	out, err := s.git(ctx, "log", "--walk-reflogs", "--no-show-signature", "--format=%P%x09%gs", "refs/stash", "--")
	if err != nil {
		return 0, err
	}
	been := map[string]bool{}
	err = s.reflog(func(line string) {
		if words := strings.Fields(line); len(words) > 1 {
			been[words[0]], been[words[1]] = true, true
		}
	})
	if err != nil {
		return 0, err
	}
	n := 0
	for line := range strings.Lines(out) {
		parents, subject, _ := strings.Cut(line, "\t")
		on, _, _ := strings.Cut(parents, " ")
		subject = strings.TrimPrefix(strings.TrimPrefix(subject, "WIP on "), "On ")
		branch, _, _ := strings.Cut(subject, ": ")
		if all || slices.Contains(branches, localHeads+branch) || branch == "(no branch)" && been[on] {
			n++
		}
	}
	return n, nil
}
