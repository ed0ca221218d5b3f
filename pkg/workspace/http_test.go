package workspace_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"loopfleet/pkg/testutil/gittest"
	"loopfleet/pkg/workspace"
)

const token = "ghs_not-a-'real\"$token"

// The token reaches the server and nothing else.
func TestToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "to ken")
	write(t, token+"\n", file)
	for strategy, opt := range map[string]func(*workspace.Config){
		workspace.Worktree: func(c *workspace.Config) { c.TokenFile = file },
		workspace.Clone:    func(c *workspace.Config) { c.TokenFunc = func(context.Context) (string, error) { return token, nil } },
	} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			environ := gittest.Environ(t)
			// An operator's helper that stores what worked.
			stored := filepath.Join(gittest.Home(t, environ), "stored")
			conf := filepath.Join(gittest.Home(t, environ), ".gitconfig")
			write(t, read(t, conf)+"[credential]\n\thelper = store --file="+stored+"\n", conf)
			var log strings.Builder
			b := setup(t, strategy, func(c *workspace.Config) { c.Environ = environ })
			srv := gittest.Serve(t, environ, filepath.Dir(b.Dir), token, nil)
			b.cfg.TokenHost = strings.TrimPrefix(srv.URL, "http://")
			opt(&b.cfg)
			b.m = b.manager(t)
			req := b.issue(t, "1")
			req.CloneURL = srv.URL + "/hello.git"
			req.Progress = func(line string) { log.WriteString(line + "\n") }
			c := b.prepare(t, req)
			if read(t, c.Dir, "README.md") != "hello\n" {
				t.Error("wrong files")
			}
			if !slices.Contains(srv.Passwords(), token) {
				t.Error("the server has not seen the token")
			}
			if _, err := b.m.State(t.Context(), c.Dir); err != nil {
				t.Error(err)
			}
			if exists(stored) || strings.Contains(log.String(), token) {
				t.Error("the token was given away")
			}
			contains(t, b.root, token)
		})
	}
}

// contains fails the test when any file below dir holds s.
func contains(t *testing.T, dir, s string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), s) {
			t.Errorf("%s holds the token", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Without credentials, and with those of another host, nobody is asked and the
// call fails at once.
func TestToken_OfAnotherHost(t *testing.T) {
	t.Parallel()
	b := setup(t, workspace.Worktree)
	srv := gittest.Serve(t, b.environ, filepath.Dir(b.Dir), token, nil)
	b.cfg.TokenFunc = func(context.Context) (string, error) { return token, nil }
	b.m = b.manager(t)
	req := b.issue(t, "1")
	req.CloneURL = srv.URL + "/hello.git"
	_, err := b.m.Prepare(t.Context(), req)
	var ge *workspace.GitError
	if !errors.As(err, &ge) || ge.Status < 1 {
		t.Fatalf("got %v", err)
	}
	for _, p := range srv.Passwords() {
		if p != "" {
			t.Errorf("the server was given %q", p)
		}
	}
	b.cfg.TokenHost, b.cfg.TokenFunc = strings.TrimPrefix(srv.URL, "http://"), nil
	b.cfg.TokenFile = filepath.Join(t.TempDir(), "missing")
	b.m = b.manager(t)
	if _, err := b.m.Prepare(t.Context(), req); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a token file that is missing: %v", err)
	}
}

// The caller's variables do not lead git elsewhere.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	b := setup(t, workspace.Worktree)
	other := gittest.New(t, b.environ, filepath.Join(t.TempDir(), "other.git"), "main")
	b.cfg.Environ = append(b.cfg.Environ, "GIT_DIR="+other.Dir, "GIT_WORK_TREE=/", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=remote.origin.url",
		"GIT_CONFIG_VALUE_0="+other.Dir, "GIT_TRACE="+filepath.Join(b.root, "trace"), "GIT_INDEX_FILE=/nowhere", "GIT_EXTERNAL_DIFF=false")
	b.m = b.manager(t)
	c := b.prepare(t, b.issue(t, "1"))
	if read(t, c.Dir, "README.md") != "hello\n" || exists(b.root, "trace") || other.Git("for-each-ref") != "" {
		t.Error("a variable was obeyed")
	}
}

func TestNew_Refuses(t *testing.T) {
	t.Parallel()
	ok := workspace.Config{Root: t.TempDir(), Environ: gittest.Environ(t)}
	for name, tc := range map[string]struct {
		change func(*workspace.Config)
		want   string
	}{
		"relative": {func(c *workspace.Config) { c.Root = "x" }, "not absolute"},
		"strategy": {func(c *workspace.Config) { c.Strategy = "x" }, "worktree or clone"},
		"protocol": {func(c *workspace.Config) { c.Protocol = "git" }, "https or ssh"},
		"no git":   {func(c *workspace.Config) { c.Environ = []string{"PATH=/nowhere"} }, "install it"},
		"not here": {func(c *workspace.Config) { c.Environ = []string{"PATH=.:"} }, "install it"},
		"two tokens": {func(c *workspace.Config) {
			c.TokenFile = "/x"
			c.TokenFunc = func(context.Context) (string, error) { return "", nil }
		}, "both"},
		"root": {func(c *workspace.Config) { c.Root = "/dev/null/x" }, "root"},
	} {
		cfg := ok
		tc.change(&cfg)
		if _, err := workspace.New(cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
