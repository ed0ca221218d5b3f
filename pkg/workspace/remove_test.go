package workspace_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"loopfleet/pkg/testutil/gittest"
	"loopfleet/pkg/workspace"
)

// leftovers are what an agent does in its checkout, with ORIGIN for the bare
// repository, and what of it would be lost (nothing when it is empty).
var leftovers = map[string]struct{ does, lost string }{
	"nothing":   {":", ""},
	"modified":  {"echo x >README.md", "1 file with uncommitted changes"},
	"untracked": {"echo x >new; mkdir other; echo x >other/a; echo x >other/b", "2 files with uncommitted changes"},
	"ignored": {`mkdir -p .loopfleet/inbox node_modules; touch .loopfleet/inbox/e.md node_modules/x
		echo /node_modules/ >>"$(git rev-parse --git-path info/exclude)"`, ""},
	"deleted":               {"rm README.md", "1 file with uncommitted changes"},
	"staged":                {"echo x >new; git add .", "1 file with uncommitted changes"},
	"committed":             {"work one; work two; echo x >README.md", "1 file with uncommitted changes, 2 commits that were not pushed"},
	"pushed":                {"work one; git push -q origin HEAD", ""},
	"pushed, then one more": {"work one; git push -q origin HEAD; work two", "1 commit that was not pushed"},
	// The forge squashes, and deletes the branch: only the pull request's head
	// still has the commit.
	"merged and deleted": {`work one; git push -q origin HEAD HEAD:refs/pull/9/head
		git -C "$ORIGIN" update-ref -d refs/heads/loopfleet/issue-1; git fetch -q --prune`, ""},
	"deleted without a merge": {`work one; git push -q origin HEAD
		git -C "$ORIGIN" update-ref -d refs/heads/loopfleet/issue-1; git fetch -q --prune`, "1 commit that was not pushed"},
	"amended after the push":   {"work one; git push -q origin HEAD; git commit -q --amend -m other; git push -qf origin HEAD", ""},
	"detached":                 {"git checkout -q --detach; work one", "1 commit that was not pushed"},
	"on another branch":        {"git switch -qc side; work one; git switch -q loopfleet/issue-1", "1 commit that was not pushed"},
	"stash":                    {"echo x >README.md; git stash -q", "1 stash"},
	"named stash":              {"echo x >README.md; git stash push -qm 'for: later'", "1 stash"},
	"stash of a detached head": {"git checkout -q --detach; echo x >README.md; git stash -q", "1 stash"},
	"the remote is away":       {`work one; mv "$ORIGIN" "$ORIGIN.away"`, "1 commit that was not pushed"},
	"a branch named HEAD":      {"work one; git update-ref refs/heads/HEAD HEAD~1", "1 commit that was not pushed"},
}

// agent runs a script of the shell in a checkout.
func agent(t *testing.T, b *bench, c workspace.Checkout, script string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", `work() { echo x >"$1"; git add -- "$1"; git commit -qm "$1"; }; `+script)
	cmd.Dir, cmd.Env = c.Dir, slices.Concat(b.environ, []string{"ORIGIN=" + b.Dir})
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// inClones are the leftovers that a clone of its own makes a difference for.
var inClones = []string{"committed", "merged and deleted", "on another branch", "stash"}

func TestRemove_NeverDestroysWork(t *testing.T) {
	t.Parallel()
	for name, tc := range leftovers {
		for _, strategy := range strategies {
			if strategy == workspace.Clone && !slices.Contains(inClones, name) {
				continue
			}
			t.Run(name+", "+strategy, func(t *testing.T) {
				t.Parallel()
				b := setup(t, strategy)
				c := b.prepare(t, b.issue(t, "1"))
				agent(t, b, c, tc.does)
				before := b.in(t, c, "for-each-ref")
				d, err := b.m.State(t.Context(), c.Dir)
				if err != nil || d.Summary != tc.lost || d.Clean() != (tc.lost == "") {
					t.Fatalf("%+v %v, want %q", d, err, tc.lost)
				}
				r, err := b.m.Remove(t.Context(), item(t, "octo/hello#1"), false)
				if err != nil || r.Removed != (tc.lost == "") || !strings.HasSuffix(r.KeptReason, tc.lost) || exists(c.Dir) == r.Removed {
					t.Fatalf("%+v %v", r, err)
				}
				if r.Removed {
					return
				}
				if after := b.in(t, c, "for-each-ref"); after != before {
					t.Errorf("references changed:\n%s\n%s", before, after)
				}
				// It is adopted as it is, and removed when a person says so.
				if c := b.prepare(t, b.issue(t, "1")); !c.Adopted {
					t.Errorf("%+v", c)
				}
				if r, err := b.m.Remove(t.Context(), item(t, "octo/hello#1"), true); err != nil || !r.Removed || exists(c.Dir) {
					t.Errorf("with force: %+v %v", r, err)
				}
			})
		}
	}
}

// A neighbour's work in the shared clone is not this checkout's.
func TestRemove_LooksAtItsOwnWorkOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, workspace.Worktree)
	one, two := b.prepare(t, b.issue(t, "1")), b.prepare(t, b.issue(t, "2"))
	agent(t, b, two, "work one; echo x >README.md; git stash -q")
	if r, err := b.m.Remove(t.Context(), item(t, "octo/hello#1"), false); err != nil || !r.Removed || exists(one.Dir) {
		t.Errorf("%+v %v", r, err)
	}
	if d, err := b.m.State(t.Context(), two.Dir); err != nil || d.Unpushed != 1 || d.Stashed != 1 {
		t.Errorf("%+v %v", d, err)
	}
	if got := b.in(t, two, "worktree", "list", "--porcelain"); strings.Contains(got, one.Dir) || strings.Contains(got, "prunable") {
		t.Errorf("git still knows the removed worktree:\n%s", got)
	}
	if got := b.in(t, two, "branch", "--list", "--format=%(refname)", "loopfleet/issue-1"); got != "" {
		t.Errorf("branches are left: %s", got)
	}
	// A reopened item starts from what is there now.
	head := b.Commit("refs/heads/trunk", "", "later", gittest.Files{"later": ""})
	if c := b.prepare(t, b.issue(t, "1")); c.Adopted || c.Commit != head {
		t.Errorf("%+v, want commit %s", c, head)
	}
}

func TestRemove_KeptMissingAndRepeated(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := setup(t, strategy, func(c *workspace.Config) { c.Keep = true })
			it := item(t, "octo/hello#1")
			if r, err := b.m.Remove(t.Context(), it, false); err != nil || r != (workspace.Removal{}) {
				t.Errorf("missing: %+v %v", r, err)
			}
			c := b.prepare(t, b.issue(t, "1"))
			if r, err := b.m.Remove(t.Context(), it, false); err != nil || !strings.Contains(r.KeptReason, "keepCheckoutOnClose") || !exists(c.Dir) {
				t.Errorf("kept: %+v %v", r, err)
			}
			for i, want := range []bool{true, false} {
				if r, err := b.m.Remove(t.Context(), it, true); err != nil || r.Removed != want {
					t.Errorf("time %d: %+v %v", i+1, r, err)
				}
			}
			// Nothing of it is left but what is shared.
			for _, dir := range []string{"state", "trash", "locks"} {
				left, err := os.ReadDir(filepath.Join(b.root, ".loopfleet", dir))
				for _, e := range left {
					if err != nil || strings.Contains(e.Name(), ".hello.1") {
						t.Errorf("left: %s/%s %v", dir, e.Name(), err)
					}
				}
			}
			// Broken by hand: what cannot be told is not removed.
			c = b.prepare(t, b.issue(t, "2"))
			gitDir := b.in(t, c, "rev-parse", "--absolute-git-dir")
			if err := os.Rename(gitDir, gitDir+".away"); err != nil {
				t.Fatal(err)
			}
			b.cfg.Keep = false
			b.m = b.manager(t)
			if r, err := b.m.Remove(t.Context(), item(t, "octo/hello#2"), false); err != nil || !strings.Contains(r.KeptReason, "cannot tell") {
				t.Errorf("broken: %+v %v", r, err)
			}
			if _, err := b.m.Prepare(t.Context(), b.issue(t, "2")); err == nil || !strings.Contains(err.Error(), "move it away") {
				t.Errorf("broken: %v", err)
			}
			if r, err := b.m.Remove(t.Context(), item(t, "octo/hello#2"), true); err != nil || !r.Removed {
				t.Errorf("broken, with force: %+v %v", r, err)
			}
		})
	}
}

func TestState_Submodules(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := setup(t, strategy)
			sub := gittest.New(t, b.environ, filepath.Join(filepath.Dir(b.Dir), "sub.git"), "main")
			oid := sub.Commit("refs/heads/main", "", "sub", gittest.Files{"sub.txt": "sub"})
			b.Commit("refs/heads/trunk", "", "submodule", gittest.Files{}.Submodule("sub", "lib/sub", "../sub.git", oid))
			c := b.prepare(t, b.issue(t, "1"))
			in := workspace.Checkout{Dir: filepath.Join(c.Dir, "lib", "sub")}
			write(t, "x", in.Dir, "sub.txt")
			if d, err := b.m.State(t.Context(), c.Dir); err != nil || d.Summary != "1 file with uncommitted changes" {
				t.Errorf("modified: %+v %v", d, err)
			}
			b.in(t, in, "commit", "-qam", "work")
			if d, err := b.m.State(t.Context(), c.Dir); err != nil || d.Uncommitted != 1 || d.Unpushed != 1 {
				t.Errorf("committed: %+v %v", d, err)
			}
			b.in(t, in, "push", "-q", "origin", "HEAD:refs/heads/work")
			b.in(t, c, "commit", "-qam", "record it")
			if d, err := b.m.State(t.Context(), c.Dir); err != nil || d.Summary != "1 commit that was not pushed" {
				t.Errorf("recorded: %+v %v", d, err)
			}
			b.in(t, c, "push", "-q", "origin", "HEAD")
			if d, err := b.m.State(t.Context(), c.Dir); err != nil || !d.Clean() {
				t.Errorf("pushed: %+v %v", d, err)
			}
			if err := os.RemoveAll(in.Dir); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("/etc", in.Dir); err != nil {
				t.Fatal(err)
			}
			if d, err := b.m.State(t.Context(), c.Dir); err != nil || d.Clean() {
				t.Errorf("a link in its place: %+v %v", d, err)
			}
		})
	}
}
