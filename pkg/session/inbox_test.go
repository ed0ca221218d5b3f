package session_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"loopfleet/pkg/session"
)

// git runs git in dir, away from the machine's configuration.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return string(out)
}

// checkout is a git checkout with one commit.
func checkout(t *testing.T, e *env) string {
	t.Helper()
	dir := filepath.Join(e.dir, "co")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "init", "-q", "-b", "main")
	write(t, filepath.Join(dir, "README"), "hello\n")
	git(t, dir, "add", "README")
	git(t, dir, "commit", "-qm", "first")
	return dir
}

func TestInbox_StaysOutOfGit(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"clone", "worktree"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e := setup(t, nil)
			dir := checkout(t, e)
			if kind == "worktree" {
				git(t, dir, "worktree", "add", "-q", "--detach", filepath.Join(e.dir, "wt"))
				dir = filepath.Join(e.dir, "wt")
			}
			req := e.request("demo")
			req.Cwd = dir
			s := e.spawn(req)
			for _, id := range []string{"comment-1", "comment-2"} {
				e.deliver(s, prompt(id, "x\n"))
			}
			if out := git(t, dir, "status", "--porcelain"); out != "" {
				t.Errorf("git sees %q", out)
			}
			exclude := strings.TrimSpace(git(t, dir, "rev-parse", "--path-format=absolute", "--git-path", "info/exclude"))
			b, err := os.ReadFile(exclude)
			if err != nil || strings.Count(string(b), ".loopfleet/\n") != 1 {
				t.Errorf("exclude %q, %v", b, err)
			}
		})
	}
}

func TestInbox_RefusesWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(t *testing.T, dir, outside string){
		"tracked file": func(t *testing.T, dir, _ string) {
			t.Helper()
			mkdir(t, filepath.Join(dir, ".loopfleet/inbox"))
			write(t, filepath.Join(dir, ".loopfleet/inbox/comment-1.md"), "theirs")
			git(t, dir, "add", "-f", ".loopfleet")
		},
		"tracked link": func(t *testing.T, dir, outside string) {
			t.Helper()
			link(t, outside, filepath.Join(dir, ".loopfleet"))
			git(t, dir, "add", "-f", ".loopfleet")
		},
		"link": func(t *testing.T, dir, outside string) {
			t.Helper()
			link(t, outside, filepath.Join(dir, ".loopfleet"))
		},
		"link inside": func(t *testing.T, dir, _ string) {
			t.Helper()
			mkdir(t, filepath.Join(dir, "src"))
			link(t, "src", filepath.Join(dir, ".loopfleet"))
		},
		"linked inbox": func(t *testing.T, dir, outside string) {
			t.Helper()
			mkdir(t, filepath.Join(dir, ".loopfleet"))
			link(t, outside, filepath.Join(dir, ".loopfleet/inbox"))
		},
		"linked file": func(t *testing.T, dir, outside string) {
			t.Helper()
			mkdir(t, filepath.Join(dir, ".loopfleet/inbox"))
			link(t, filepath.Join(outside, "victim"), filepath.Join(dir, ".loopfleet/inbox/comment-1.md"))
		},
		"file": func(t *testing.T, dir, _ string) {
			t.Helper()
			write(t, filepath.Join(dir, ".loopfleet"), "theirs")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := setup(t, nil)
			dir := checkout(t, e)
			outside := filepath.Join(e.dir, "outside")
			mkdir(t, outside)
			req := e.request("lines")
			req.Cwd = dir
			s := e.spawn(req)
			// A hostile agent, or a hostile commit it has checked out.
			if err := os.RemoveAll(filepath.Join(dir, ".loopfleet")); err != nil {
				t.Fatal(err)
			}
			plant(t, dir, outside)
			_, err := e.Deliver(t.Context(), s, prompt("comment-1", "x\n"))
			if _, ok := errors.AsType[*session.InboxError](err); !ok {
				t.Errorf("error %v, want InboxError", err)
			}
			if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
				t.Errorf("outside: %v, %v", entries, err)
			}
			if got := lines(t, filepath.Join(dir, "got"), 1); len(got) != 1 {
				t.Errorf("typed %q", got)
			}
		})
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
}

func TestInbox_OnlyItsOwnPartOfTheRepositoryMatters(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	dir := checkout(t, e)
	mkdir(t, filepath.Join(dir, ".loopfleet"))
	write(t, filepath.Join(dir, ".loopfleet/notes"), "theirs")
	git(t, dir, "add", "-f", ".loopfleet")
	req := e.request("demo")
	req.Cwd = dir
	s := e.spawn(req)
	wantTranscript(t, s, req.Boot)
}
