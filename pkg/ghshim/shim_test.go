package ghshim_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loopfleet/pkg/event"
	"loopfleet/pkg/ghshim"
	"loopfleet/pkg/testutil/tmuxtest"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/tmux"
)

// realGH plays gh: it notes its arguments, the files and the input that it is
// given, and ends with a status of its own.
const realGH = `#!/bin/sh
printf '%s\0' "$0" "$@" > "$OUT/args"
for a in "$@"; do
	case "$a" in
	*/dev/fd/*) /bin/cat "/dev/fd/${a##*/dev/fd/}" > "$OUT/file" ;;
	esac
done
if [ -t 0 ]; then echo terminal > "$OUT/stdin"; else /bin/cat > "$OUT/stdin"; fi
echo out
echo err >&2
exit 7
`

// place is a PATH with a shim in front of a gh.
type place struct {
	t                  *testing.T
	shim, real, out    string
	path               []string
	stdout, stderr, in string
	args               []string
	status             int
	environ            []string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	dir := t.TempDir()
	p := &place{t: t, shim: filepath.Join(dir, "shim"), real: filepath.Join(dir, "real dir"), out: filepath.Join(dir, "out")}
	for _, d := range []string{p.real, p.out} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p.gh(p.real, realGH)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a worker that starts again finds its shim there
		if err := ghshim.Install(p.shim, self); err != nil {
			t.Fatal(err)
		}
	}
	p.path = []string{p.shim, p.real, "/usr/bin", "/bin"}
	return p
}

func (p *place) gh(dir, script string) {
	p.t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "gh"), []byte(script), 0o700); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) env() []string {
	return append([]string{"OUT=" + p.out, "PATH=" + strings.Join(p.path, ":")}, p.environ...)
}

// run starts gh as a shell does that found it in PATH.
func (p *place) run(args ...string) {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), filepath.Join(p.shim, "gh"), args...)
	cmd.Args[0] = "gh"
	cmd.Env = p.env()
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(p.in), &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	p.status, p.stdout, p.stderr = cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
	p.args = nil
	if got := p.read("args"); got != "" {
		p.args = strings.Split(strings.TrimSuffix(got, "\x00"), "\x00")
	}
}

func (p *place) read(file string) string {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.out, file))
	if err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	return string(b)
}

func TestShim_MarksTheBody(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.run("issue", "comment", "42", "--body", "hello\n'\"$(id)\" \\ \u202e")
	want := []string{filepath.Join(p.real, "gh"), "issue", "comment", "42", "--body", event.Marker + "\n\nhello\n'\"$(id)\" \\ \u202e"}
	if diff := cmp.Diff(want, p.args); diff != "" {
		t.Errorf("gh got (-want +got):\n%s", diff)
	}
	if p.status != 7 || p.stdout != "out\n" || p.stderr != "err\n" {
		t.Errorf("status %d, output %q, errors %q; want gh's own", p.status, p.stdout, p.stderr)
	}
}

func TestShim_HandsOnEverythingElse(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.in = "some\x00input"
	for _, args := range [][]string{
		{}, {"--version"}, {"pr", "list", "--json", "title"}, {"api", "-f", "body=x", "repos/o/r/issues/1/comments"}, {"issue", "comment", "1", ""},
	} {
		p.run(args...)
		if diff := cmp.Diff(append([]string{filepath.Join(p.real, "gh")}, args...), p.args); diff != "" {
			t.Errorf("%q: gh got (-want +got):\n%s", args, diff)
		}
		if got := p.read("stdin"); got != p.in {
			t.Errorf("%q: gh's input was %q, want %q", args, got, p.in)
		}
	}
}

func TestShim_MarksFiles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "body.md")
	const body = "from a file\n```\nopen code"
	if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"long": {"--body-file", file}, "long with =": {"--body-file=" + file}, "short": {"-F", file}, "short joined": {"-F" + file},
		"standard input": {"-F", "-"}, "standard input with =": {"--body-file=-"}, "group": {"-wF", file},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.in, p.environ = body, []string{"TMPDIR=" + t.TempDir()}
			p.run(append([]string{"issue", "create", "--title", "T"}, args...)...)
			if got := p.read("file"); got != event.Marker+"\n\n"+body {
				t.Errorf("gh read %q", got)
			}
			if b, err := os.ReadFile(file); err != nil || string(b) != body {
				t.Errorf("the agent's own file is %q now (%v)", b, err)
			}
			if left := glob(t, strings.TrimPrefix(p.environ[0], "TMPDIR="), "*"); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

func glob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A file that cannot be read is gh's to complain about.
func TestShim_FileThatIsNotThere(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.run("issue", "comment", "1", "-F", "/nonexistent/body.md")
	if !slices.Contains(p.args, "/nonexistent/body.md") || p.status != 7 {
		t.Errorf("gh got %q, status %d", p.args, p.status)
	}
}

// One shim behind another, as when an agent runs a worker of its own, marks once
// and ends at the real gh; so does one that is in PATH twice.
func TestShim_BehindAShim(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	other := filepath.Join(t.TempDir(), "shim")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Another build of the program: not the same file.
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	build := filepath.Join(t.TempDir(), "loopfleet")
	if err := os.WriteFile(build, b, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := ghshim.Install(other, build); err != nil {
		t.Fatal(err)
	}
	p.path = slices.Concat([]string{p.shim, other, p.shim}, p.path)
	p.run("issue", "comment", "1", "-b", "hello")
	if want := event.Marker + "\n\nhello"; len(p.args) == 0 || p.args[len(p.args)-1] != want {
		t.Errorf("gh got %q, want %q at the end", p.args, want)
	}
}

func TestShim_WithoutGH(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.path = []string{p.shim, "", ".", "relative", "/nonexistent"}
	p.run("issue", "list")
	if p.status != 127 || !strings.Contains(p.stderr, "gh: not found in PATH") || p.args != nil {
		t.Errorf("status %d, errors %q, gh got %q", p.status, p.stderr, p.args)
	}
}

// What is no program is passed over, as a shell does.
func TestShim_PassesOverWhatIsNoProgram(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	junk, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(junk, "gh"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "gh"), 0o700); err != nil {
		t.Fatal(err)
	}
	p.path = slices.Concat([]string{p.shim, junk, dir}, p.path[1:])
	p.run("--version")
	if p.status != 7 {
		t.Errorf("status %d, errors %q", p.status, p.stderr)
	}
}

// Started on a terminal, gh has the terminal.
func TestShim_KeepsTheTerminal(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	srv := tmuxtest.Server(t)
	err := srv.NewSession(t.Context(), tmux.Spec{
		Name: "loop-shim", Argv: []string{filepath.Join(p.shim, "gh"), "pr", "create", "--body", "x"}, Dir: p.out, Environ: p.env(),
	})
	if err != nil {
		t.Fatal(err)
	}
	waitfor.Until(t, "gh to look at its input", func() bool { return p.read("stdin") != "" })
	if got := p.read("stdin"); got != "terminal\n" {
		t.Errorf("gh's input is %q, want the terminal", got)
	}
}

func TestInstall_NeedsAWholePath(t *testing.T) {
	t.Parallel()
	if err := ghshim.Install(t.TempDir(), "loopfleet"); err == nil {
		t.Error("a relative program is taken")
	}
}

func TestFirstInPath(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ environ, dirs, want []string }{
		"in front":   {[]string{"A=1", "PATH=/bin:/usr/bin"}, []string{"/x", "/y"}, []string{"A=1", "PATH=/x:/y:/bin:/usr/bin"}},
		"no PATH":    {[]string{"A=1"}, []string{"/x"}, []string{"A=1", "PATH=/x"}},
		"two PATHs":  {[]string{"PATH=/a", "PATH=/b"}, []string{"/x"}, []string{"PATH=/x:/b"}},
		"no folders": {[]string{"PATH=/a"}, nil, []string{"PATH=/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, ghshim.FirstInPath(tt.environ, tt.dirs)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
