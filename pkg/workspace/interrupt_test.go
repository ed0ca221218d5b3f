package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"loopfleet/pkg/testutil/gittest"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/workspace"
)

// bug report 37
func TestPrepare_EightAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, workspace.Worktree)
	var g errgroup.Group
	for i := range 4 {
		g.Go(func() error {
			_, err := b.m.Prepare(t.Context(), workspace.Request{Item: item(t, fmt.Sprintf("octo/hello#%d", i+1)), CloneURL: b.Dir})
			return err
		})
		g.Go(func() error {
			if out, err := b.process(t, fmt.Sprint(i+5), b.Dir).CombinedOutput(); err != nil {
				return fmt.Errorf("process %d: %w: %s", i+5, err, out)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		c := b.prepare(t, b.issue(t, fmt.Sprint(i+1)))
		if want := fmt.Sprintf("## loopfleet/issue-%d", i+1); b.in(t, c, "status", "--porcelain", "--branch") != want {
			t.Errorf("checkout %d is not as it should be", i+1)
		}
	}
	if got := len(strings.Split(b.in(t, b.prepare(t, b.issue(t, "1")), "worktree", "list"), "\n")); got != 9 {
		t.Errorf("git knows %d worktrees, want 8 and the shared clone", got)
	}
}

// Eight calls for one checkout make one.
func TestPrepare_SameItemAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, workspace.Worktree)
	var mu sync.Mutex
	made := 0
	var g errgroup.Group
	for range 8 {
		g.Go(func() error {
			c, err := b.m.Prepare(t.Context(), workspace.Request{Item: item(t, "octo/hello#1"), CloneURL: b.Dir})
			mu.Lock()
			defer mu.Unlock()
			if !c.Adopted {
				made++
			}
			return err
		})
	}
	if err := g.Wait(); err != nil || made != 1 {
		t.Fatalf("made %d times: %v", made, err)
	}
}

// Workers, or only their gits, are killed at random moments; the next one copes.
func TestPrepare_KilledAnywhere(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := setup(t, strategy)
			sub := gittest.New(t, b.environ, filepath.Join(filepath.Dir(b.Dir), "sub.git"), "main")
			oid := sub.Commit("refs/heads/main", "", "sub", gittest.Files{"sub.txt": "sub"})
			files := gittest.Files{}.Submodule("sub", "sub", "../sub.git", oid)
			for i := range 200 {
				files[fmt.Sprintf("dir%d/file", i)] = fmt.Sprint(i)
			}
			b.Commit("refs/heads/trunk", "", "many files", files)
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 0))
			began := time.Now()
			if out, err := b.process(t, "1", b.Dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			whole := time.Since(began)
			killed := 0
			for i := range 6 {
				cmd := b.process(t, "2", b.Dir)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				after := time.AfterFunc(time.Duration(rnd.Int64N(int64(whole))), func() {
					if i%2 == 0 {
						_ = cmd.Process.Kill()
					} else {
						killGits(cmd.Process.Pid)
					}
				})
				if cmd.Wait() != nil {
					killed++
				}
				after.Stop()
			}
			t.Logf("%d of 6 were interrupted", killed)
			c := b.prepare(t, b.issue(t, "2"))
			if got := b.in(t, c, "status", "--porcelain", "--branch"); got != "## loopfleet/issue-2" || read(t, c.Dir, "sub/sub.txt") != "sub" {
				t.Errorf("status %q", got)
			}
			b.in(t, c, "fsck", "--connectivity-only")
			if d, err := b.m.State(t.Context(), c.Dir); err != nil || !d.Clean() {
				t.Errorf("%+v %v", d, err)
			}
			if got := b.prepare(t, b.issue(t, "1")); !got.Adopted {
				t.Errorf("the neighbour was made anew: %+v", got)
			}
		})
	}
}

// killGits kills the children of a process, which are its gits.
func killGits(pid int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range tasks {
		b, _ := os.ReadFile(f)
		for child := range strings.FieldsSeq(string(b)) {
			var n int
			if _, err := fmt.Sscan(child, &n); err == nil && n > 0 {
				if p, err := os.FindProcess(n); err == nil {
					_ = p.Kill()
				}
			}
		}
	}
}

func TestPrepare_WhatADeadGitLeft(t *testing.T) {
	t.Parallel()
	b := setup(t, workspace.Worktree)
	c := b.prepare(t, b.issue(t, "1"))
	shared := filepath.Dir(b.in(t, c, "rev-parse", "--path-format=absolute", "--git-path", "config"))
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{
		"config.lock", "packed-refs.lock", "refs/remotes/origin/trunk.lock", "refs/remotes/origin/HEAD.lock", "refs/heads/loopfleet/issue-2.lock",
	} {
		write(t, "", shared, name)
		if err := os.Chtimes(filepath.Join(shared, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	b.Commit("refs/heads/trunk", "", "second", gittest.Files{"second": ""})
	if c := b.prepare(t, b.issue(t, "2")); !exists(c.Dir, "second") {
		t.Errorf("%+v", c)
	}

	// Half a clone, before the first one was ever complete: any lock is dead.
	b2 := setup(t, workspace.Worktree)
	half := filepath.Join(b2.root, "repos", filepath.Base(shared))
	gittest.Run(t, b.environ, "/", "init", "-q", "--bare", half)
	write(t, "", half, "config.lock")
	write(t, "", half, "HEAD")
	write(t, "junk", half, "objects", "pack", "tmp_pack_x")
	b2.prepare(t, b2.issue(t, "1"))

	// A directory with files of a checkout that was begun, and no repository.
	write(t, "half", b2.m.Dir(item(t, "octo/hello#5")), "README.md")
	write(t, `{"item":"octo/hello#5","phase":"creating","strategy":"worktree"}`,
		b2.root, ".loopfleet", "state", filepath.Base(b2.m.Dir(item(t, "octo/hello#5")))+".json")
	if c := b2.prepare(t, b2.issue(t, "5")); read(t, c.Dir, "README.md") != "hello\n" {
		t.Errorf("%+v", c)
	}
}

// Between any two steps of making or removing a checkout the worker may die.
func TestPrepare_InterruptedBetweenSteps(t *testing.T) {
	t.Parallel()
	b := setup(t, workspace.Worktree)
	one := b.prepare(t, b.issue(t, "1"))
	common := filepath.Join(b.root, "repos", "github=2Ecom.octo.hello.git")
	stateOf := func(n string) string {
		return filepath.Join(b.root, ".loopfleet", "state", filepath.Base(b.m.Dir(item(t, "octo/hello#"+n)))+".json")
	}
	// The branch was made, and then nothing: it is not taken for work.
	b.in(t, one, "update-ref", "refs/heads/loopfleet/issue-2", one.Commit)
	head := b.Commit("refs/heads/trunk", "", "later", gittest.Files{"later": ""})
	two := b.prepare(t, b.issue(t, "2"))
	if two.Commit != head {
		t.Errorf("made from %s, want %s", two.Commit, head)
	}
	// The directory is gone and so is the record; git still knows of it.
	for _, path := range []string{two.Dir, stateOf("2")} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	if c := b.prepare(t, b.issue(t, "2")); c.Adopted || b.in(t, c, "status", "--porcelain") != "" {
		t.Errorf("%+v", c)
	}
	// A removal had begun: it is completed, the branch included.
	write(t, strings.Replace(read(t, stateOf("2")), `"ready"`, `"removing"`, 1), stateOf("2"))
	if err := os.Rename(two.Dir, filepath.Join(b.root, ".loopfleet", "trash", filepath.Base(two.Dir)+".X")); err != nil {
		t.Fatal(err)
	}
	if r, err := b.m.Remove(t.Context(), item(t, "octo/hello#2"), false); err != nil || !r.Removed {
		t.Errorf("%+v %v", r, err)
	}
	if exists(common, "refs", "heads", "loopfleet", "issue-2") || exists(common, "worktrees", filepath.Base(two.Dir)) ||
		exists(b.root, ".loopfleet", "trash", filepath.Base(two.Dir)+".X") {
		t.Error("something is left of it")
	}
	// Somebody deletes the directory; what was committed in it is not deleted.
	agent(t, b, one, "work one")
	local := b.in(t, one, "rev-parse", "HEAD")
	if err := os.RemoveAll(one.Dir); err != nil {
		t.Fatal(err)
	}
	if _, err := b.m.Remove(t.Context(), item(t, "octo/hello#1"), false); err != nil {
		t.Error(err)
	}
	if c := b.prepare(t, b.issue(t, "1")); c.Commit != local {
		t.Errorf("%+v, want commit %s", c, local)
	}
}

// A worker is gone and its git is not: the next worker waits for it.
func TestPrepare_WaitsForAnOrphan(t *testing.T) {
	t.Parallel()
	b := setup(t, workspace.Worktree)
	held, hold := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var open sync.Once
	release := func() { open.Do(func() { close(hold) }) }
	srv := gittest.Serve(t, b.environ, filepath.Dir(b.Dir), "", func(*http.Request) {
		once.Do(func() { close(held) })
		<-hold
	})
	t.Cleanup(release)
	cmd := b.process(t, "1", srv.URL+"/hello.git")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-held
	_ = cmd.Process.Kill()
	_ = cmd.Wait()

	waiting := make(chan struct{})
	var told sync.Once
	req := b.issue(t, "1")
	req.Progress = func(line string) {
		if strings.HasPrefix(line, "waiting for another call for this checkout") {
			told.Do(func() { close(waiting) })
		}
	}
	done := make(chan error, 1)
	go func() {
		_, err := b.m.Prepare(t.Context(), req)
		done <- err
	}()
	select {
	case <-waiting:
	case err := <-done:
		t.Fatalf("did not wait: %v", err)
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestPrepare_ProgressAndCancel(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := setup(t, strategy, func(c *workspace.Config) { c.ProgressEvery = 10 * time.Millisecond })
			hold := make(chan struct{})
			open := sync.OnceFunc(func() { close(hold) })
			srv := gittest.Serve(t, b.environ, filepath.Dir(b.Dir), "", func(*http.Request) { <-hold })
			t.Cleanup(open)
			ctx, cancel := context.WithCancelCause(t.Context())
			lines := make(chan string, 1000)
			req := b.issue(t, "1")
			req.CloneURL = srv.URL + "/hello.git"
			req.Progress = func(line string) { lines <- line }
			done := make(chan error, 1)
			go func() {
				_, err := b.m.Prepare(ctx, req)
				done <- err
			}()
			if got := <-lines; got != "asking for the branches of octo/hello" {
				t.Errorf("first line: %q", got)
			}
			for range 3 { // and it goes on saying so
				if got := <-lines; !strings.HasPrefix(got, "asking for the branches of octo/hello (") {
					t.Errorf("later line: %q", got)
				}
			}
			closed := errors.New("the item was closed")
			cancel(closed)
			if err := <-done; !errors.Is(err, closed) {
				t.Errorf("got %v", err)
			}
			waitfor.Until(t, "git to be gone", func() bool { return !runs(b.root) })
			open()
			if c := b.prepare(t, b.issue(t, "1")); c.Adopted {
				t.Errorf("%+v", c)
			}
		})
	}
}

// runs says whether any process has a file or directory below root open.
func runs(root string) bool {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, root) {
			return true
		}
	}
	return false
}

func TestPrepare_Stalled(t *testing.T) {
	t.Parallel()
	b := setup(t, workspace.Worktree, func(c *workspace.Config) { c.StallAfter = 100 * time.Millisecond })
	hold := make(chan struct{})
	srv := gittest.Serve(t, b.environ, filepath.Dir(b.Dir), "", func(*http.Request) { <-hold })
	t.Cleanup(func() { close(hold) })
	req := b.issue(t, "1")
	req.CloneURL = srv.URL + "/hello.git"
	if _, err := b.m.Prepare(t.Context(), req); !errors.Is(err, workspace.ErrStalled) {
		t.Errorf("got %v", err)
	}
}
