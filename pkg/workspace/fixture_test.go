package workspace_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"loopfleet/pkg/testutil/gittest"
	"loopfleet/pkg/workitem"
	"loopfleet/pkg/workspace"
)

// bench is one test's origin and workspace.
type bench struct {
	*gittest.Origin
	environ []string
	root    string
	m       *workspace.Manager
	cfg     workspace.Config
}

// setup makes an origin with one commit on branch "trunk", which is no branch
// that anybody would guess.
func setup(t *testing.T, strategy string, opts ...func(*workspace.Config)) *bench {
	t.Helper()
	environ := gittest.Environ(t)
	b := &bench{environ: environ, root: filepath.Join(t.TempDir(), "w s")}
	b.Origin = gittest.New(t, environ, filepath.Join(t.TempDir(), "octo", "hello.git"), "trunk")
	b.Commit("refs/heads/trunk", "", "first", gittest.Files{"README.md": "hello\n", "src/a.go": "package a\n"})
	b.cfg = workspace.Config{
		Root: b.root, Strategy: strategy, Environ: environ, Local: true,
		Log: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.InfoLevel),
	}
	for _, o := range opts {
		o(&b.cfg)
	}
	b.m = b.manager(t)
	return b
}

func (b *bench) manager(t *testing.T) *workspace.Manager {
	t.Helper()
	m, err := workspace.New(b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func item(t *testing.T, s string) workitem.Ref {
	t.Helper()
	r, err := workitem.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (b *bench) issue(t *testing.T, n string) workspace.Request {
	t.Helper()
	return workspace.Request{Item: item(t, "octo/hello#"+n), CloneURL: b.Dir}
}

func (b *bench) prepare(t *testing.T, req workspace.Request) workspace.Checkout {
	t.Helper()
	c, err := b.m.Prepare(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// in runs git in a checkout, as the agent does.
func (b *bench) in(t *testing.T, c workspace.Checkout, args ...string) string {
	t.Helper()
	return gittest.Run(t, b.environ, c.Dir, args...)
}

func write(t *testing.T, content string, path ...string) {
	t.Helper()
	p := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func exists(path ...string) bool {
	_, err := os.Lstat(filepath.Join(path...))
	return err == nil
}

// strategies are what most tests run with, one after the other.
var strategies = []string{workspace.Worktree, workspace.Clone}

func warned(c workspace.Checkout, word string) bool {
	return strings.Contains(strings.Join(c.Warnings, "\n"), word)
}

// The test binary is also a worker: it prepares one checkout and ends. Its
// arguments are the word, the root, the strategy, the item and the address.
func TestMain(m *testing.M) {
	if len(os.Args) == 6 && os.Args[1] == "prepare" {
		if err := prepareOnly(os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func prepareOnly(root, strategy, number, address string) error {
	m, err := workspace.New(workspace.Config{Root: root, Strategy: strategy, Local: true, Environ: os.Environ()})
	if err != nil {
		return err
	}
	ref, err := workitem.Parse("octo/hello#" + number)
	if err != nil {
		return err
	}
	_, err = m.Prepare(context.Background(), workspace.Request{Item: ref, CloneURL: address})
	return err
}

// process is the test binary as a worker that prepares one issue.
func (b *bench) process(t *testing.T, number, address string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "prepare", b.root, b.cfg.Strategy, number, address)
	cmd.Env = b.environ
	return cmd
}
