package workspace_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loopfleet/pkg/testutil/gittest"
	"loopfleet/pkg/workspace"
)

// plant fills an agent's repository with programs that git would run.
func plant(t *testing.T, b *bench, c workspace.Checkout) (marker string) {
	t.Helper()
	marker = filepath.Join(t.TempDir(), "pwn")
	script := filepath.Join(t.TempDir(), "script")
	write(t, "#!/bin/sh\necho \"$0 $*\" >>'"+marker+"'\n", script)
	hooks := filepath.Join(t.TempDir(), "hooks")
	for _, name := range []string{"post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc", "post-update"} {
		write(t, read(t, script), hooks, name)
	}
	common := filepath.Dir(b.in(t, c, "rev-parse", "--path-format=absolute", "--git-path", "config"))
	for _, name := range []string{"post-checkout", "reference-transaction", "post-index-change"} {
		write(t, read(t, script), common, "hooks", name)
	}
	for _, dir := range []string{script, hooks, filepath.Join(common, "hooks")} {
		if err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, _ error) error { return os.Chmod(p, 0o700) }); err != nil {
			t.Fatal(err)
		}
	}
	included := filepath.Join(t.TempDir(), "config")
	write(t, "[alias]\n\tstatus = !"+script+"\n[core]\n\teditor = "+script+"\n", included)
	for key, value := range map[string]string{
		"core.hooksPath": hooks, "core.fsmonitor": script, "core.sshCommand": script, "core.gitProxy": script, "core.pager": script,
		"core.askPass": script, "credential.helper": "!" + script, "diff.external": script, "filter.evil.smudge": script,
		"filter.evil.clean": script, "filter.evil.process": script, "filter.evil.required": "true", "diff.evil.textconv": script,
		"remote.origin.uploadpack": script, "http.proxy": "http://127.0.0.1:1", "gpg.program": script, "submodule.sub.update": "!" + script,
		"core.worktree": t.TempDir(), "include.path": included,
	} {
		gittest.Run(t, b.environ, "/", "config", "--file", filepath.Join(common, "config"), key, value)
	}
	return marker
}

// What an agent, or what it runs, has put into the configuration that worktrees
// share is not what our calls of git obey.
func TestHostile_ConfigurationAndHooks(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := setup(t, strategy)
			sub := gittest.New(t, b.environ, filepath.Join(filepath.Dir(b.Dir), "sub.git"), "main")
			oid := sub.Commit("refs/heads/main", "", "sub", gittest.Files{"sub.txt": "sub"})
			b.Commit("refs/heads/trunk", "", "attributes", gittest.Files{
				".gitattributes": "*.md filter=evil diff=evil\n", "links": "symlink /etc",
			}.Submodule("sub", "sub", "../sub.git", oid))
			c := b.prepare(t, b.issue(t, "1"))
			marker := plant(t, b, c)
			// In the submodule too, which git status would enter.
			module := filepath.Dir(gittest.Run(t, b.environ, filepath.Join(c.Dir, "sub"), "rev-parse", "--path-format=absolute", "--git-path", "config"))
			gittest.Run(t, b.environ, "/", "config", "--file", filepath.Join(module, "config"), "core.fsmonitor", "touch "+marker)

			b.prepare(t, b.issue(t, "1"))
			write(t, "changed", c.Dir, "README.md")
			if d, err := b.m.State(t.Context(), c.Dir); err != nil || d.Uncommitted != 1 {
				t.Errorf("%+v %v", d, err)
			}
			other := b.prepare(t, b.issue(t, "2"))
			if read(t, other.Dir, "README.md") != "hello\n" || !exists(other.Dir, "sub", "sub.txt") {
				t.Error("the second checkout is not whole")
			}
			for _, n := range []string{"1", "2"} {
				if r, err := b.m.Remove(t.Context(), item(t, "octo/hello#"+n), true); err != nil || !r.Removed {
					t.Errorf("%+v %v", r, err)
				}
			}
			if exists(marker) {
				t.Errorf("ran: %s", read(t, marker))
			}
		})
	}
}

// The plants do grow: the agent's own git runs them.
func TestHostile_PlantsAreReal(t *testing.T) {
	t.Parallel()
	b := setup(t, workspace.Worktree)
	c := b.prepare(t, b.issue(t, "1"))
	marker := plant(t, b, c)
	common := filepath.Join(b.root, "repos", "github=2Ecom.octo.hello.git", "config")
	gittest.Run(t, b.environ, "/", "config", "--file", common, "--unset", "core.worktree")
	b.in(t, c, "checkout", "-q", "--detach")
	if got := read(t, marker); !strings.Contains(got, "post-checkout") || !strings.Contains(got, "reference-transaction") {
		t.Errorf("ran only: %s", got)
	}
}

// What an agent has made of its own checkout leads us nowhere else.
func TestHostile_Checkout(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := setup(t, strategy)
			c := b.prepare(t, b.issue(t, "1"))
			victim := t.TempDir()
			write(t, "precious", victim, "file")
			// A link in place of the directory: it is removed, what it names is not.
			if err := os.Rename(c.Dir, c.Dir+".moved"); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(victim, c.Dir); err != nil {
				t.Fatal(err)
			}
			if _, err := b.m.State(t.Context(), c.Dir); err == nil {
				t.Error("a link was looked into")
			}
			if _, err := b.m.Remove(t.Context(), item(t, "octo/hello#1"), true); err != nil {
				t.Fatal(err)
			}
			if exists(c.Dir) || read(t, victim, "file") != "precious" {
				t.Error("the link was followed")
			}

			// Directories that cannot be written to, links out of the tree.
			c = b.prepare(t, b.issue(t, "2"))
			write(t, "x", c.Dir, "cache", "mod", "file")
			if err := os.Symlink(victim, filepath.Join(c.Dir, "cache", "mod", "out")); err != nil {
				t.Fatal(err)
			}
			for _, d := range []string{"cache/mod", "cache"} {
				if err := os.Chmod(filepath.Join(c.Dir, d), 0o500); err != nil {
					t.Fatal(err)
				}
			}
			if r, err := b.m.Remove(t.Context(), item(t, "octo/hello#2"), true); err != nil || !r.Removed || exists(c.Dir) {
				t.Errorf("%+v %v", r, err)
			}
			if read(t, victim, "file") != "precious" {
				t.Error("the link was followed")
			}

			if _, err := b.m.State(t.Context(), victim); !errors.Is(err, workspace.ErrNotOurs) {
				t.Errorf("a directory of somebody else: %v", err)
			}
			if _, err := b.m.State(t.Context(), b.root+"/items/.."); !errors.Is(err, workspace.ErrNotOurs) {
				t.Errorf("a path out of ours: %v", err)
			}
		})
	}
}
