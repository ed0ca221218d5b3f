package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"loopfleet/pkg/logkey"
	"loopfleet/pkg/workitem"
)

// Prepare returns the item's checkout, and makes it when it is not there. A
// failed or cancelled call leaves nothing that a later one cannot deal with.
// Errors that wrap ErrInvalid will be the same next time.
func (m *Manager) Prepare(ctx context.Context, req Request) (Checkout, error) {
	out, err := m.prepare(ctx, req)
	if err != nil {
		return Checkout{}, fmt.Errorf("prepare the checkout of %s: %w", req.Item, err)
	}
	return out, nil
}

func (m *Manager) prepare(ctx context.Context, req Request) (Checkout, error) {
	if req.Item.Zero() {
		return Checkout{}, fmt.Errorf("%w: no work item", ErrInvalid)
	}
	name := req.Item.DirName()
	held, err := m.acquire(ctx, "i-"+name, "another call for this checkout", req.Progress)
	if err != nil {
		return Checkout{}, err
	}
	defer held.release()
	st, err := m.known(req.Item)
	if err != nil {
		return Checkout{}, err
	}
	switch {
	case st != nil && st.Phase == phaseReady && isDir(m.Dir(req.Item)):
		return m.adopt(ctx, st, held)
	case st != nil:
		// Half made, half removed, or its directory was deleted: no agent's work
		// is in what is left of it. In the last case it may be in the branch.
		if st.Phase == phaseReady {
			st.Branch = ""
		}
		if err := m.clear(ctx, st, held); err != nil {
			return Checkout{}, err
		}
	}
	return m.create(ctx, req, held)
}

// known is what is known of the item's checkout, also when the record is lost.
func (m *Manager) known(item workitem.Ref) (*state, error) {
	st, err := m.load(item.DirName())
	dir := m.Dir(item)
	if st != nil || err != nil || emptyOrMissing(dir) {
		return st, err
	}
	for _, strategy := range []string{Clone, Worktree} {
		st := &state{Item: item, Phase: phaseReady, Strategy: strategy, Created: time.Now().UTC()}
		repo, err := m.checkoutRepo(st)
		if err != nil {
			return nil, err
		}
		if isDir(dir) && isDir(repo.gitDir) && repo.whole() {
			m.cfg.Log.Warn().Stringer(logkey.WorkItem, item).Str("dir", dir).Msg("found a checkout that no record tells of")
			return st, m.save(*st)
		}
	}
	return nil, fmt.Errorf("%s is in the way and %w: move it away", dir, ErrNotOurs)
}

// adopt returns a checkout as it is.
func (m *Manager) adopt(ctx context.Context, st *state, held *lock) (Checkout, error) {
	repo, err := m.checkoutRepo(st)
	if err != nil {
		return Checkout{}, err
	}
	if !repo.whole() {
		return Checkout{}, fmt.Errorf("%s: %w", m.Dir(st.Item), ErrBroken)
	}
	if err := repo.open(st.URL); err != nil {
		return Checkout{}, err
	}
	s := &source{m: m, repo: repo, held: []*lock{held}}
	out := Checkout{Dir: repo.worktree, Adopted: true}
	out.Branch, err = s.branch(ctx)
	if err != nil {
		return Checkout{}, err
	}
	out.Commit, err = s.commit(ctx, "HEAD")
	return out, err
}

// branch is what HEAD is on; empty when it is detached.
func (s *source) branch(ctx context.Context) (string, error) {
	out, err := s.git(ctx, "symbolic-ref", "--quiet", "HEAD")
	var ge *GitError
	if errors.As(err, &ge) && ge.Status == 1 {
		return "", nil
	}
	return strings.TrimPrefix(out, localHeads), err
}

func (m *Manager) create(ctx context.Context, req Request, held *lock) (Checkout, error) {
	at, err := m.remoteOf(req.Item, req.CloneURL)
	if err != nil {
		return Checkout{}, err
	}
	if req.PullRequest && !req.Fork && req.HeadRef != "" {
		if err := m.checkBranch(ctx, req.HeadRef); err != nil {
			return Checkout{}, err
		}
	}
	st := &state{Item: req.Item, Phase: phaseCreating, Strategy: m.cfg.Strategy, URL: at.url, Created: time.Now().UTC()}
	if err := m.save(*st); err != nil {
		return Checkout{}, err
	}
	repo, err := m.checkoutRepo(st)
	if err != nil {
		return Checkout{}, err
	}
	made := &making{m: m, req: req, st: st, at: at, item: &source{
		m: m, repo: repo, at: at, held: []*lock{held}, say: req.Progress, label: req.Item.Owner + "/" + req.Item.Repo,
	}}
	if st.Strategy == Clone {
		err = made.clone(ctx)
	} else {
		err = made.worktree(ctx, time.Now())
	}
	if err == nil {
		err = made.fill(ctx)
	}
	if err != nil {
		return Checkout{}, err
	}
	st.Phase, st.Branch, st.Base = phaseReady, made.start.branch, made.start.commit
	if err := m.save(*st); err != nil {
		return Checkout{}, err
	}
	m.cfg.Log.Info().Stringer(logkey.WorkItem, req.Item).Str("dir", repo.worktree).Str("strategy", st.Strategy).
		Str("commit", st.Base).Dur("took", time.Since(st.Created)).Msg("prepared a checkout")
	return Checkout{Dir: repo.worktree, Branch: st.Branch, Commit: st.Base, Warnings: made.warnings}, nil
}

// making is one checkout in the making.
type making struct {
	m        *Manager
	req      Request
	st       *state
	at       remote
	item     *source
	start    start
	warnings []string
}

// start is where work starts.
type start struct {
	branch string
	commit string
	// old is the commit of the local branch; empty when there is none.
	old string
	// tracks is the remote branch that a push goes to, if that is clear.
	tracks string
}

func (k *making) warn(format string, args ...any) {
	k.warnings = append(k.warnings, fmt.Sprintf(format, args...))
}

// clone makes the item's own repository in its directory.
func (k *making) clone(ctx context.Context) error {
	if err := os.MkdirAll(k.item.repo.worktree, private); err != nil {
		return err
	}
	if err := k.item.init(ctx); err != nil {
		return err
	}
	pull := k.pullRef()
	hasPull, err := k.item.fetch(ctx, k.number(), pull)
	if err != nil {
		return err
	}
	return k.settle(ctx, k.item, hasPull)
}

// worktree makes a worktree of the shared clone, which it makes or brings up to
// date. The repository's lock is held for that long.
func (k *making) worktree(ctx context.Context, asked time.Time) error {
	name, err := repoName(k.req.Item)
	if err != nil {
		return err
	}
	held, err := k.m.acquire(ctx, "r-"+name, "another checkout of "+k.item.label, k.req.Progress)
	if err != nil {
		return err
	}
	defer held.release()
	src := &source{
		m: k.m, repo: k.m.sharedRepo(name), at: k.at, held: append([]*lock{held}, k.item.held...), say: k.req.Progress, label: k.item.label,
	}
	hasPull, err := k.refresh(ctx, src, asked)
	if err != nil {
		return err
	}
	if err := k.settle(ctx, src, hasPull); err != nil {
		return err
	}
	// There is no such directory, so what git knows of it is of no use, but would
	// be in the way.
	if err := removeTree(k.item.repo.gitDir); err != nil {
		return err
	}
	dir := k.item.repo.worktree
	args := []string{"worktree", "add", "--detach", "--no-checkout", "--", dir, k.start.commit}
	if _, err := src.git(ctx, args...); err != nil {
		return err
	}
	// Git wrote the path through our view, which is not the agent's.
	if err := writeFile(dir+"/.git", []byte("gitdir: "+k.item.repo.gitDir+"\n")); err != nil {
		return err
	}
	if !k.item.repo.whole() {
		return fmt.Errorf("%w: git did not make %s", ErrBroken, k.item.repo.gitDir)
	}
	return k.item.repo.open(k.at.url)
}

// refresh brings the shared clone up to date.
func (k *making) refresh(ctx context.Context, src *source, asked time.Time) (hasPull bool, err error) {
	mark := src.repo.view + ".fetched"
	fi, err := os.Stat(mark)
	fresh := err == nil
	if !fresh || !src.repo.whole() {
		// Never complete so far: whatever lock lies there is a dead git's.
		if err := k.m.clearStale(ctx, src.repo.gitDir, 0); err != nil {
			return false, err
		}
		if emptyOrMissing(filepath.Join(src.repo.gitDir, "worktrees")) {
			// Nobody's work is in it, and a power cut may have damaged it.
			if err := removeTree(src.repo.gitDir); err != nil {
				return false, err
			}
		}
		if err := src.init(ctx); err != nil {
			return false, err
		}
	} else if err := k.m.clearStale(ctx, src.repo.gitDir, staleLock); err != nil {
		return false, err
	}
	pull := k.pullRef()
	if pull == "" && fresh && fi.ModTime().After(asked) {
		return false, src.address(ctx) // somebody fetched while we waited for the lock
	}
	began := time.Now()
	hasPull, err = src.fetch(ctx, k.number(), pull)
	if err != nil {
		return false, err
	}
	if !fresh {
		if err := writeFile(mark, nil); err != nil {
			return false, err
		}
	}
	return hasPull, os.Chtimes(mark, began, began)
}

// number is the item's number without the letter that tells its kind.
func (k *making) number() string { return strings.TrimLeft(k.req.Item.Number, "im") }

// pullRef is the remote's reference to the head of the pull request, wherever
// its branch is; empty for an issue.
func (k *making) pullRef() string {
	switch {
	case !k.req.PullRequest:
		return ""
	case strings.HasPrefix(k.req.Item.Number, "m"):
		return "refs/merge-requests/" + k.number() + "/head"
	default:
		return "refs/pull/" + k.number() + "/head"
	}
}
