package workspace_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loopfleet/pkg/testutil/gittest"
	"loopfleet/pkg/workspace"
)

func TestPrepare_StartsFromTheDefaultBranch(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := setup(t, strategy)
			b.Commit("refs/heads/main", "refs/heads/trunk", "a trap", gittest.Files{"trap": ""})
			head := b.Git("rev-parse", "refs/heads/trunk")

			c := b.prepare(t, b.issue(t, "1"))
			want := workspace.Checkout{Dir: b.m.Dir(item(t, "octo/hello#1")), Branch: "loopfleet/issue-1", Commit: head}
			if d := cmp.Diff(want, c); d != "" {
				t.Fatal(d)
			}
			if read(t, c.Dir, "README.md") != "hello\n" || exists(c.Dir, "trap") {
				t.Error("wrong files")
			}
			if got := b.in(t, c, "status", "--porcelain", "--branch"); got != "## loopfleet/issue-1" {
				t.Errorf("the agent's git says %q", got)
			}
			if got := b.in(t, c, "rev-parse", "origin/HEAD"); got != head {
				t.Errorf("origin/HEAD is %s", got)
			}

			// The default branch is renamed while we know it by its old name.
			next := b.Commit("refs/heads/develop", "refs/heads/trunk", "second", gittest.Files{"new": "x"})
			b.Git("symbolic-ref", "HEAD", "refs/heads/develop")
			b.Git("update-ref", "-d", "refs/heads/trunk")
			if c := b.prepare(t, b.issue(t, "2")); c.Commit != next {
				t.Errorf("started from %s, not from the new default branch", c.Commit)
			}
		})
	}
}

func TestPrepare_AgentCanCommitAndPush(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := setup(t, strategy)
			c := b.prepare(t, b.issue(t, "1"))
			write(t, "x", c.Dir, "new")
			b.in(t, c, "add", ".")
			b.in(t, c, "commit", "-qm", "work")
			b.in(t, c, "push", "--quiet", "-u", "origin", "HEAD")
			if b.Git("rev-parse", "refs/heads/loopfleet/issue-1") != b.in(t, c, "rev-parse", "HEAD") {
				t.Error("the push did not arrive")
			}
			// What the session keeps out of git's sight must have a place.
			exclude := b.in(t, c, "rev-parse", "--git-path", "info/exclude")
			if !filepath.IsAbs(exclude) {
				exclude = filepath.Join(c.Dir, exclude)
			}
			write(t, ".loopfleet/\n", exclude)
			write(t, "x", c.Dir, ".loopfleet", "inbox", "e.md")
			if got := b.in(t, c, "status", "--porcelain"); got != "" {
				t.Errorf("status: %s", got)
			}
		})
	}
}

func TestPrepare_AdoptsWithoutTouching(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := setup(t, strategy)
			c := b.prepare(t, b.issue(t, "1"))
			write(t, "mine", c.Dir, "README.md")
			b.in(t, c, "switch", "-qc", "elsewhere")
			b.Commit("refs/heads/trunk", "", "second", gittest.Files{"later": ""})
			if err := os.Rename(b.Dir, b.Dir+".away"); err != nil { // it needs no network
				t.Fatal(err)
			}
			got := b.prepare(t, b.issue(t, "1"))
			want := workspace.Checkout{Dir: c.Dir, Branch: "elsewhere", Commit: c.Commit, Adopted: true}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			b.in(t, c, "checkout", "-q", "--detach")
			if got := b.prepare(t, b.issue(t, "1")); got.Branch != "" || !got.Adopted {
				t.Errorf("detached: %+v", got)
			}
			if read(t, c.Dir, "README.md") != "mine" {
				t.Error("the agent's work is gone")
			}
			// The record is lost, the work is not.
			if err := os.Remove(filepath.Join(b.root, ".loopfleet", "state", filepath.Base(c.Dir)+".json")); err != nil {
				t.Fatal(err)
			}
			if got := b.prepare(t, b.issue(t, "1")); !got.Adopted || read(t, c.Dir, "README.md") != "mine" {
				t.Errorf("without a record: %+v", got)
			}
		})
	}
}

func TestPrepare_BranchThatExists(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := setup(t, strategy)
			there := b.Commit("refs/heads/loopfleet/issue-3", "refs/heads/trunk", "earlier", gittest.Files{"earlier": ""})
			c := b.prepare(t, b.issue(t, "3"))
			if c.Commit != there || c.Branch != "loopfleet/issue-3" {
				t.Errorf("%+v", c)
			}
			// A checkout whose directory was deleted by hand is made again, with
			// what was committed in it.
			if strategy == workspace.Clone {
				return
			}
			write(t, "x", c.Dir, "new")
			b.in(t, c, "add", ".")
			b.in(t, c, "commit", "-qm", "not pushed")
			local := b.in(t, c, "rev-parse", "HEAD")
			if err := os.RemoveAll(c.Dir); err != nil {
				t.Fatal(err)
			}
			if c := b.prepare(t, b.issue(t, "3")); c.Commit != local || c.Adopted {
				t.Errorf("made again: %+v, want commit %s", c, local)
			}
		})
	}
}

// bug report 8
func TestPrepare_PullRequest(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := setup(t, strategy)
			b.Commit("refs/heads/feature/x", "refs/heads/trunk", "feature", gittest.Files{"f": ""})
			head := b.Git("rev-parse", "refs/heads/feature/x")
			fork := b.Commit("refs/pull/7/head", "refs/heads/trunk", "from a fork", gittest.Files{"g": ""})
			b.Commit("refs/pull/8/head", "refs/heads/trunk", "merged", gittest.Files{"h": ""})
			gone := b.Git("rev-parse", "refs/pull/8/head")
			for _, tc := range []struct {
				name    string
				number  string
				head    string
				fork    bool
				branch  string
				commit  string
				warning string
			}{
				{"branch of the repository", "6", "feature/x", false, "feature/x", head, ""},
				{"fork", "7", "trunk", true, "loopfleet/pull-7", fork, "another repository"},
				{"branch deleted", "8", "deleted", false, "loopfleet/pull-8", gone, "gone from the remote"},
			} {
				req := b.issue(t, tc.number)
				req.PullRequest, req.HeadRef, req.Fork = true, tc.head, tc.fork
				c := b.prepare(t, req)
				if c.Branch != tc.branch || c.Commit != tc.commit {
					t.Errorf("%s: %+v", tc.name, c)
				}
				if (len(c.Warnings) > 0) != (tc.warning != "") || !warned(c, tc.warning) {
					t.Errorf("%s: warnings %q", tc.name, c.Warnings)
				}
			}
			// A push goes to the head without being told where.
			c := b.prepare(t, workspace.Request{Item: item(t, "octo/hello#6"), CloneURL: b.Dir})
			write(t, "x", c.Dir, "new")
			b.in(t, c, "add", ".")
			b.in(t, c, "commit", "-qm", "work")
			b.in(t, c, "push", "--quiet")
			if b.Git("rev-parse", "refs/heads/feature/x") != b.in(t, c, "rev-parse", "HEAD") {
				t.Error("the push went elsewhere")
			}
			if _, err := b.m.Prepare(t.Context(), workspace.Request{
				Item: item(t, "octo/hello#99"), CloneURL: b.Dir, PullRequest: true, Fork: true,
			}); err == nil || !strings.Contains(err.Error(), "refs/pull/99/head") {
				t.Errorf("a pull request that is not there: %v", err)
			}
		})
	}
}

func TestPrepare_BranchInTwoItems(t *testing.T) {
	t.Parallel()
	b := setup(t, workspace.Worktree)
	c := b.prepare(t, b.issue(t, "1"))
	b.in(t, c, "push", "--quiet", "origin", "HEAD")
	req := b.issue(t, "2")
	req.PullRequest, req.HeadRef = true, "loopfleet/issue-1"
	_, err := b.m.Prepare(t.Context(), req)
	var used *workspace.BranchInUseError
	if !errors.As(err, &used) || used.Dir != c.Dir || used.Branch != "loopfleet/issue-1" {
		t.Fatalf("got %v", err)
	}
	if r, err := b.m.Remove(t.Context(), item(t, "octo/hello#1"), false); err != nil || !r.Removed {
		t.Fatal(r, err)
	}
	if c := b.prepare(t, req); c.Branch != "loopfleet/issue-1" {
		t.Errorf("%+v", c)
	}
}

func TestPrepare_BranchThatBlocksOurs(t *testing.T) {
	t.Parallel()
	b := setup(t, workspace.Worktree)
	b.Commit("refs/heads/loopfleet", "refs/heads/trunk", "x", gittest.Files{"x": ""})
	c := b.prepare(t, b.issue(t, "1"))
	if c.Branch != "loopfleet-issue-1" || !warned(c, "loopfleet-issue-1") {
		t.Fatalf("%+v", c)
	}
	b.in(t, c, "push", "--quiet", "origin", "HEAD")
}

func TestPrepare_Refuses(t *testing.T) {
	t.Parallel()
	b := setup(t, workspace.Worktree)
	for name, head := range map[string]string{
		"option": "--upload-pack=touch pwn", "dash": "-x", "ref": "refs/heads/trunk", "head": "HEAD", "dots": "a..b",
		"space": "a b", "control": "a\x1bb", "lock": "a.lock", "at": "@{-1}", "long": strings.Repeat("x", 300),
	} {
		req := b.issue(t, "1")
		req.PullRequest, req.HeadRef = true, head
		if _, err := b.m.Prepare(t.Context(), req); !errors.Is(err, workspace.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.m.Prepare(t.Context(), workspace.Request{}); !errors.Is(err, workspace.ErrInvalid) {
		t.Errorf("no item: %v", err)
	}
	empty := gittest.New(t, b.environ, filepath.Join(t.TempDir(), "e.git"), "main")
	req := b.issue(t, "1")
	req.CloneURL = empty.Dir
	if _, err := b.m.Prepare(t.Context(), req); !errors.Is(err, workspace.ErrEmpty) {
		t.Errorf("empty repository: %v", err)
	}
	req.CloneURL = filepath.Join(t.TempDir(), "gone")
	var ge *workspace.GitError
	if _, err := b.m.Prepare(t.Context(), req); !errors.As(err, &ge) || !strings.Contains(err.Error(), "git ls-remote") {
		t.Errorf("repository that is gone: %v", err)
	}
	// None of that stands in the way of what works.
	if c := b.prepare(t, b.issue(t, "1")); c.Branch == "" {
		t.Errorf("%+v", c)
	}
	write(t, "precious", b.m.Dir(item(t, "octo/hello#9")), "file")
	if _, err := b.m.Prepare(t.Context(), b.issue(t, "9")); !errors.Is(err, workspace.ErrNotOurs) {
		t.Errorf("a directory that is in the way: %v", err)
	}
	if read(t, b.m.Dir(item(t, "octo/hello#9")), "file") != "precious" {
		t.Error("it was touched")
	}
}

// bug report 25
func TestPrepare_NamesOfRepositories(t *testing.T) {
	t.Parallel()
	b := setup(t, workspace.Worktree)
	dirs := map[string]string{}
	for _, s := range []string{"octo/next.js#1", "octo/next-js#1", "octo/.github#1", "octo/" + strings.Repeat("x", 200) + "#1"} {
		c := b.prepare(t, workspace.Request{Item: item(t, s), CloneURL: b.Dir})
		if other, ok := dirs[c.Dir]; ok {
			t.Errorf("%s and %s share %s", s, other, c.Dir)
		}
		dirs[c.Dir] = s
		if b.in(t, c, "status", "--porcelain") != "" {
			t.Errorf("%s: not clean", s)
		}
	}
}

func TestPrepare_RepositoryThatMoved(t *testing.T) {
	t.Parallel()
	b := setup(t, workspace.Worktree)
	b.prepare(t, b.issue(t, "1"))
	to := b.Dir + ".renamed"
	if err := os.Rename(b.Dir, to); err != nil {
		t.Fatal(err)
	}
	req := b.issue(t, "2")
	req.CloneURL = to
	c := b.prepare(t, req)
	if got := b.in(t, c, "remote", "get-url", "origin"); got != to {
		t.Errorf("origin is %s", got)
	}
}

// bug report 39
func TestPrepare_SubmodulesAndLFS(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := setup(t, strategy, func(c *workspace.Config) { c.Environ = gittest.Without(t, c.Environ, "git-lfs") })
			b.environ = b.cfg.Environ
			// The operator's configuration asks for a git-lfs that is not there.
			conf := filepath.Join(gittest.Home(t, b.environ), ".gitconfig")
			write(t, read(t, conf)+"[filter \"lfs\"]\n\tsmudge = git-lfs smudge -- %f\n\tprocess = git-lfs filter-process\n\trequired = true\n", conf)
			deep := gittest.New(t, b.environ, filepath.Join(t.TempDir(), "deep.git"), "main")
			deepest := deep.Commit("refs/heads/main", "", "deep", gittest.Files{"deep.txt": "deep"})
			sub := gittest.New(t, b.environ, filepath.Join(filepath.Dir(b.Dir), "sub.git"), "main")
			subbed := sub.Commit("refs/heads/main", "", "sub", gittest.Files{"sub.txt": "sub"}.Submodule("deep", "nested", deep.Dir, deepest))
			b.Commit("refs/heads/trunk", "", "submodules", gittest.Files{
				".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n",
				"big.bin":        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
			}.Submodule("vendor/sub", "vendor/sub", "../sub.git", subbed))

			c := b.prepare(t, b.issue(t, "1"))
			if read(t, c.Dir, "vendor/sub/sub.txt") != "sub" || read(t, c.Dir, "vendor/sub/nested/deep.txt") != "deep" {
				t.Error("submodules are not populated")
			}
			if !strings.HasPrefix(read(t, c.Dir, "big.bin"), "version https://git-lfs") || !warned(c, "git-lfs is not installed") {
				t.Errorf("pointers: warnings %q", c.Warnings)
			}
			if got := b.in(t, c, "submodule", "status"); !strings.HasPrefix(got, " "+subbed) {
				t.Errorf("the agent's git says %q of the submodules", got)
			}
			if d, err := b.m.State(t.Context(), c.Dir); err != nil || !d.Clean() {
				t.Errorf("%+v %v", d, err)
			}

			// One that cannot be had, and one that is not to be had.
			b.Commit("refs/heads/trunk", "", "gone", gittest.Files{".gitmodules": ""}.
				Submodule("vendor/sub", "vendor/sub", "../sub.git", subbed).
				Submodule("ext", "ext", "ext::sh -c touch% "+filepath.Join(b.root, "pwn"), subbed))
			c = b.prepare(t, b.issue(t, "2"))
			if !warned(c, "not all submodules") || exists(b.root, "pwn") {
				t.Errorf("warnings %q", c.Warnings)
			}
		})
	}
}
