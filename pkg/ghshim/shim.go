package ghshim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"loopfleet/pkg/event"
)

// name is the command's.
const name = "gh"

// Exit statuses of the shim itself, as shells have them.
const (
	exitFailed   = 1
	exitNotFound = 127
)

// maxText bounds what is read of a text: GitHub takes 64 Ki characters.
const maxText = 16 << 20

// Called reports whether the program was started under gh's name, so that its
// main has to be the shim.
func Called(argv []string) bool { return len(argv) > 0 && filepath.Base(argv[0]) == name }

// Install puts a gh into dir, which is made, that starts the program; a session
// gets dir as the first of its PATH. The program's main must ask Called.
func Install(dir, program string) error {
	if !filepath.IsAbs(program) {
		return fmt.Errorf("install the gh shim: program %q is not absolute", program)
	}
	const private = 0o700
	if err := os.MkdirAll(dir, private); err != nil {
		return fmt.Errorf("install the gh shim: %w", err)
	}
	// Sessions may be using the one that is there: it is replaced, not removed.
	fresh := filepath.Join(dir, fmt.Sprintf(".%s-%d", name, os.Getpid()))
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("install the gh shim: %w", err)
	}
	if err := os.Symlink(program, fresh); err != nil {
		return fmt.Errorf("install the gh shim: %w", err)
	}
	if err := os.Rename(fresh, filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("install the gh shim: %w", err)
	}
	return nil
}

// Main is the shim: it adds the marker and becomes the real gh. It returns, with
// an exit status, only when that cannot be.
func Main(argv, environ []string, stdin io.Reader, stderr io.Writer) int {
	gh, err := find(argv[0], environ)
	if err != nil {
		fmt.Fprintf(stderr, "gh: %v\n", err)
		return exitNotFound
	}
	args, err := rewrite(argv[1:], stdin)
	if err != nil {
		fmt.Fprintf(stderr, "gh: mark the text as an agent's own: %v\n", err)
		return exitFailed
	}
	err = syscall.Exec(gh, append([]string{gh}, args...), environ) //nolint:gosec // G204: standing in for gh is what this is for
	fmt.Fprintf(stderr, "gh: start %s: %v\n", gh, err)
	return exitFailed
}

// rewrite returns the arguments with every text marked. Texts from files and
// standard input go through files that have no name any more, which the real gh
// inherits open.
func rewrite(args []string, stdin io.Reader) ([]string, error) {
	p, posts := parse(args)
	if !posts {
		return args, nil
	}
	out := slices.Clone(args)
	for _, t := range p.texts {
		value := out[t.at][t.from:]
		if t.file {
			path, err := markedFile(value, stdin)
			if err != nil {
				return nil, err
			}
			out[t.at] = out[t.at][:t.from] + path
			continue
		}
		out[t.at] = out[t.at][:t.from] + marked(value)
	}
	if p.addBody {
		out = slices.Insert(out, p.end, "--body", event.Marker)
	}
	return out, nil
}

// markedFile returns the path of a marked copy. A file that cannot be read is
// left to gh, which says so in its own words.
func markedFile(file string, stdin io.Reader) (string, error) {
	var body []byte
	var err error
	if file == "-" {
		if body, err = io.ReadAll(io.LimitReader(stdin, maxText+1)); err != nil {
			return "", fmt.Errorf("read standard input: %w", err)
		}
	} else {
		f, err := os.Open(file) //nolint:gosec // G304: gh would open it
		if err != nil {
			return file, nil // gh reports it
		}
		defer func() { _ = f.Close() }()
		if body, err = io.ReadAll(io.LimitReader(f, maxText+1)); err != nil {
			return file, nil // gh reports it
		}
	}
	if len(body) > maxText {
		return "", fmt.Errorf("the text is longer than %d bytes, and GitHub takes 65536 characters", maxText)
	}
	return inherited(marked(string(body)))
}

// inherited writes a file without a name that the next program has open, and
// returns a path to it.
func inherited(body string) (string, error) {
	f, err := os.CreateTemp("", "loopfleet-gh-")
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	if err := os.Remove(f.Name()); err != nil {
		return "", err
	}
	if _, err := f.WriteString(body); err != nil {
		return "", fmt.Errorf("write the marked text: %w", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", fmt.Errorf("write the marked text: %w", err)
	}
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		return "", fmt.Errorf("keep the marked text open: %w", err)
	}
	return fmt.Sprintf("/dev/fd/%d", fd), nil // a duplicate outlives exec
}

// errNoGH says that there is nothing to stand in front of.
var errNoGH = errors.New("not found in PATH, behind the shim that Loopfleet puts in front of it")

// find returns the gh that would be found without the shim: the first one in
// PATH behind the shim's own directory that is not this program. Shims of other
// workers, if there are, come one after the other.
func find(called string, environ []string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find out what runs: %w", err)
	}
	me, err := os.Stat(self)
	if err != nil {
		return "", fmt.Errorf("find out what runs: %w", err)
	}
	dirs := filepath.SplitList(env(environ, "PATH"))
	own := func(dir string) bool {
		fi, err := os.Stat(filepath.Join(dir, name))
		return err == nil && os.SameFile(fi, me)
	}
	from := 0
	for i, dir := range dirs {
		if strings.ContainsRune(called, '/') {
			// Its last place: going on behind an earlier one could come back here
			// by way of another worker's shim.
			if filepath.Clean(dir) == filepath.Dir(called) {
				from = i + 1
			}
		} else if own(dir) {
			from = i + 1
			break
		}
	}
	for _, dir := range dirs[from:] {
		if !filepath.IsAbs(dir) { // the checkout is hostile
			continue
		}
		path := filepath.Join(dir, name)
		fi, err := os.Stat(path)
		if err != nil || !fi.Mode().IsRegular() || unix.Access(path, unix.X_OK) != nil || os.SameFile(fi, me) {
			continue
		}
		return path, nil
	}
	return "", errNoGH
}

// env is the value of a variable; the last one counts, as for the program.
func env(environ []string, key string) string {
	for _, e := range slices.Backward(environ) {
		if v, ok := strings.CutPrefix(e, key+"="); ok {
			return v
		}
	}
	return ""
}

// FirstInPath returns environ with dirs in front of its PATH.
func FirstInPath(environ, dirs []string) []string {
	if len(dirs) == 0 {
		return environ
	}
	path := strings.Join(dirs, string(os.PathListSeparator))
	if old := env(environ, "PATH"); old != "" {
		path += string(os.PathListSeparator) + old
	}
	out := slices.DeleteFunc(slices.Clone(environ), func(e string) bool { return strings.HasPrefix(e, "PATH=") })
	return append(out, "PATH="+path)
}
