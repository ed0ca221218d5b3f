package workspace

import (
	"context"
	"fmt"
)

// settle decides the branch and the commit to work on and makes that branch in
// the repository.
func (k *making) settle(ctx context.Context, src *source, hasPull bool) error {
	var err error
	if k.req.PullRequest {
		err = k.pullStart(ctx, src, hasPull)
	} else {
		err = k.issueStart(ctx, src)
	}
	if err != nil {
		return err
	}
	b := &k.start
	if dir := branchUser(src.repo.common, k.item.repo.gitDir, b.branch); dir != "" {
		return &BranchInUseError{Branch: b.branch, Dir: dir}
	}
	if b.old != "" && b.old != b.commit {
		if err := k.reconcile(ctx, src); err != nil {
			return err
		}
	}
	if b.old != b.commit {
		// With the old value, so that it fails when an agent was quicker.
		if _, err := src.git(ctx, "update-ref", localHeads+b.branch, b.commit, b.old); err != nil {
			return err
		}
	}
	if b.tracks != "" {
		if err := src.tell(ctx, "branch."+b.branch+".remote", "origin"); err != nil {
			return err
		}
		return src.tell(ctx, "branch."+b.branch+".merge", localHeads+b.tracks)
	}
	return nil
}

// reconcile chooses between the local branch and the remote one: nothing that is
// local only is ever given up.
func (k *making) reconcile(ctx context.Context, src *source) error {
	b := &k.start
	behind, err := src.ancestor(ctx, b.old, b.commit)
	if err != nil || behind {
		return err
	}
	ahead, err := src.ancestor(ctx, b.commit, b.old)
	if err != nil {
		return err
	}
	if !ahead {
		k.warn("branch %s has commits here that the remote does not have, and the other way round: it is checked out as it is here",
			printable(b.branch))
	}
	b.commit = b.old
	return nil
}

// issueStart: a branch of ours, adopted where it exists, else from the default
// branch.
func (k *making) issueStart(ctx context.Context, src *source) error {
	b := &k.start
	b.branch = "loopfleet/issue-" + k.req.Item.Number
	dashed := "loopfleet-issue-" + k.req.Item.Number
	found, err := src.commits(ctx, originHead, originHeads+"loopfleet", localHeads+"loopfleet",
		originHeads+b.branch, localHeads+b.branch, originHeads+dashed, localHeads+dashed)
	if err != nil {
		return err
	}
	if found[originHeads+"loopfleet"]+found[localHeads+"loopfleet"] != "" {
		b.branch = dashed
		k.warn("the repository has a branch named loopfleet, so no branch can be named loopfleet/...: using %s", dashed)
	}
	b.old = found[localHeads+b.branch]
	if b.commit = found[originHeads+b.branch]; b.commit != "" {
		b.tracks = b.branch
		return nil
	}
	if b.commit = found[originHead]; b.commit == "" {
		return fmt.Errorf("the default branch has no commit: %w", ErrEmpty)
	}
	if b.old == "" {
		return nil
	}
	// Commits that are here only are work that was not pushed. Without any, the
	// branch is what an interrupted call has left, and may be old.
	merged, err := src.ancestor(ctx, b.old, b.commit)
	if !merged {
		b.commit = b.old
	}
	return err
}

// pullStart: the head of the pull request.
func (k *making) pullStart(ctx context.Context, src *source, hasPull bool) error {
	b := &k.start
	b.branch = "loopfleet/pull-" + k.number()
	names := []string{localHeads + b.branch, pulls + k.number()}
	byName := !k.req.Fork && k.req.HeadRef != ""
	if byName {
		names = append(names, localHeads+k.req.HeadRef, originHeads+k.req.HeadRef)
	}
	found, err := src.commits(ctx, names...)
	if err != nil {
		return err
	}
	if byName {
		if oid := found[originHeads+k.req.HeadRef]; oid != "" {
			*b = start{branch: k.req.HeadRef, tracks: k.req.HeadRef, commit: oid, old: found[localHeads+k.req.HeadRef]}
			return nil
		}
		k.warn("branch %s is gone from the remote: the last head of the pull request is checked out instead", printable(k.req.HeadRef))
	}
	if !hasPull {
		return fmt.Errorf("the remote has neither the head branch nor %s: is it a pull request, and does it still exist?", k.pullRef())
	}
	b.old, b.commit = found[localHeads+b.branch], found[pulls+k.number()]
	switch {
	case b.commit == "":
		return fmt.Errorf("%s names no commit", k.pullRef())
	case k.req.Fork:
		k.warn("the head of the pull request is in another repository: a push to origin does not reach it")
	case k.req.HeadRef == "":
		k.warn("the head branch of the pull request is not known: branch %s is the head as it is now", b.branch)
	}
	return nil
}
