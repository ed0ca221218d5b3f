package gittest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Environ is an environment for git that has nothing but PATH and a home of its
// own, with a name to commit by.
func Environ(tb testing.TB) []string {
	tb.Helper()
	home := tb.TempDir()
	conf := "[user]\n\tname = Test\n\temail = test@example.com\n[init]\n\tdefaultBranch = main\n"
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(conf), 0o600); err != nil {
		tb.Fatal(err)
	}
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LC_ALL=C"}
}

// Without is the environment with a PATH on which all programs are but one.
func Without(tb testing.TB, environ []string, program string) []string {
	tb.Helper()
	bin := tb.TempDir()
	out := slices.Clone(environ)
	for i, e := range out {
		path, ok := strings.CutPrefix(e, "PATH=")
		if !ok {
			continue
		}
		out[i] = "PATH=" + bin
		for _, dir := range filepath.SplitList(path) {
			entries, err := os.ReadDir(dir)
			if err != nil {
				continue // PATH may name what is not there
			}
			for _, entry := range entries {
				if entry.Name() == program {
					continue
				}
				// The first directory wins.
				if err := os.Symlink(filepath.Join(dir, entry.Name()), filepath.Join(bin, entry.Name())); err != nil && !os.IsExist(err) {
					tb.Fatal(err)
				}
			}
		}
	}
	return out
}

// Home is the home directory of an environment.
func Home(tb testing.TB, environ []string) string {
	tb.Helper()
	for _, e := range environ {
		if home, ok := strings.CutPrefix(e, "HOME="); ok {
			return home
		}
	}
	tb.Fatal("no HOME")
	return ""
}

// Run runs git in dir and returns what it prints, without the last newline.
func Run(tb testing.TB, environ []string, dir string, args ...string) string {
	tb.Helper()
	out, err := try(tb, environ, dir, "", args...)
	if err != nil {
		tb.Fatalf("git %s in %s: %v\n%s", strings.Join(args, " "), dir, err, out)
	}
	return out
}

// Fails runs git in dir, which must fail, and returns what it prints.
func Fails(tb testing.TB, environ []string, dir string, args ...string) string {
	tb.Helper()
	out, err := try(tb, environ, dir, "", args...)
	if err == nil {
		tb.Fatalf("git %s in %s succeeds:\n%s", strings.Join(args, " "), dir, out)
	}
	return out
}

func try(tb testing.TB, environ []string, dir, stdin string, args ...string) (string, error) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, append(slices.Clone(environ), "GIT_CONFIG_NOSYSTEM=1", "GIT_ALLOW_PROTOCOL=file:http"), strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return strings.TrimSuffix(string(out), "\n"), err
}

// Files is what a commit changes: the content by path. A content that begins
// with "gitlink " makes a submodule's entry of the commit that follows, one that
// begins with "symlink " a link.
type Files map[string]string

// Origin is a bare repository to clone from.
type Origin struct {
	// Dir is its path, which is its address too.
	Dir     string
	Environ []string

	tb testing.TB
}

// New makes an empty repository whose default branch is to be the given one, at
// dir, which must not exist.
func New(tb testing.TB, environ []string, dir, branch string) *Origin {
	tb.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		tb.Fatal(err)
	}
	Run(tb, environ, dir, "init", "--quiet", "--template=", "--bare", "--initial-branch="+branch, ".")
	return &Origin{Dir: dir, Environ: environ, tb: tb}
}

// Git runs git in the repository.
func (o *Origin) Git(args ...string) string {
	o.tb.Helper()
	return Run(o.tb, o.Environ, o.Dir, args...)
}

// Commit adds a commit to a reference, which it makes from the full reference
// or object named by from ("" is the reference itself, if it is there), and
// returns the commit's id.
func (o *Origin) Commit(ref, from, message string, files Files) string {
	o.tb.Helper()
	if from == "" {
		if _, err := try(o.tb, o.Environ, o.Dir, "", "rev-parse", "--verify", "--quiet", ref); err == nil {
			from = ref
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "commit %s\nmark :1\ncommitter Test <test@example.com> 1700000000 +0000\ndata %d\n%s\n", ref, len(message), message)
	if from != "" {
		fmt.Fprintf(&b, "from %s^0\n", from)
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		content := files[path]
		mode := "100644"
		if oid, ok := strings.CutPrefix(content, "gitlink "); ok {
			fmt.Fprintf(&b, "M 160000 %s %s\n", oid, path)
			continue
		}
		if to, ok := strings.CutPrefix(content, "symlink "); ok {
			mode, content = "120000", to
		}
		fmt.Fprintf(&b, "M %s inline %s\ndata %d\n%s\n", mode, path, len(content), content)
	}
	b.WriteString("\nget-mark :1\ndone\n")
	out, err := try(o.tb, o.Environ, o.Dir, b.String(), "fast-import", "--quiet", "--force", "--done")
	if err != nil {
		o.tb.Fatalf("make a commit on %s: %v\n%s", ref, err, out)
	}
	return out
}

// Submodule adds a submodule to what a commit changes.
func (f Files) Submodule(name, path, url, commit string) Files {
	f[".gitmodules"] += fmt.Sprintf("[submodule %q]\n\tpath = %s\n\turl = %s\n", name, path, url)
	f[path] = "gitlink " + commit
	return f
}
