package session

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	looseDir   = ".loopfleet"
	inboxDir   = "inbox"
	exclude    = looseDir + "/"
	gitTimeout = 30 * time.Second
)

// resentNote tells the agent what we cannot know.
const resentNote = "Note: Loopfleet may have sent you this event before. If you have already acted on it, do nothing more.\n\n"

func (p Prompt) content() string {
	if p.Resent {
		return resentNote + p.Text
	}
	return p.Text
}

// stage writes the prompt's file into the inbox of the directory that the agent
// works in. That directory is hostile: a link or a tracked file in the way is an
// *InboxError, and nothing outside is ever touched. Staging again is harmless.
func (d *Driver) stage(ctx context.Context, cwd string, p Prompt) error {
	if err := d.keepOutOfGit(ctx, cwd); err != nil {
		return &InboxError{Path: inboxPath(p.EventID), Err: err}
	}
	if err := writeInbox(cwd, p); err != nil {
		return &InboxError{Path: inboxPath(p.EventID), Err: err}
	}
	return nil
}

func writeInbox(cwd string, p Prompt) error {
	root, err := os.OpenRoot(cwd)
	if err != nil {
		return fmt.Errorf("open the working directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	loose, err := openDir(root, looseDir)
	if err != nil {
		return err
	}
	defer func() { _ = loose.Close() }()
	inbox, err := openDir(loose, inboxDir)
	if err != nil {
		return err
	}
	defer func() { _ = inbox.Close() }()
	name, content := p.EventID+".md", []byte(p.content())
	fi, err := inbox.Lstat(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	case !fi.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file but %s", name, fi.Mode().Type())
	case sameContent(inbox, name, content):
		return nil
	}
	// A file of our own making takes the place in one step: a reader never
	// sees half of it, and a link planted meanwhile is replaced, not followed.
	tmp := ".new-" + rand.Text()
	f, err := inbox.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = inbox.Rename(tmp, name)
	}
	if err != nil {
		return errors.Join(err, inbox.Remove(tmp))
	}
	return nil
}

// openDir opens the real directory name in root, making it when it is missing.
func openDir(root *os.Root, name string) (*os.Root, error) {
	const private = 0o700
	if err := root.Mkdir(name, private); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	before, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, fmt.Errorf("%s is no directory but %s", name, before.Mode().Type())
	}
	sub, err := root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	// Opening follows links within root: what was opened must be what was seen.
	after, err := sub.Stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = fmt.Errorf("%s changed while it was opened", name)
	}
	if err != nil {
		return nil, errors.Join(err, sub.Close())
	}
	return sub, nil
}

func sameContent(inbox *os.Root, name string, content []byte) bool {
	f, err := inbox.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, int64(len(content))+1))
	return err == nil && bytes.Equal(b, content)
}

// keepOutOfGit makes git ignore the inbox of a checkout, and refuses one whose
// inbox is part of the repository: writing there would change the agent's work.
func (d *Driver) keepOutOfGit(ctx context.Context, cwd string) error {
	if _, err := os.Lstat(filepath.Join(cwd, ".git")); errors.Is(err, os.ErrNotExist) {
		return nil // no checkout of ours; one further up is none of our business
	}
	tracked, err := d.git(ctx, cwd, "ls-files", "-z", "--", looseDir+"/"+inboxDir, looseDir)
	if err != nil {
		return fmt.Errorf("ask git what it tracks: %w", err)
	}
	for path := range strings.SplitSeq(tracked, "\x00") {
		if path == looseDir || path == looseDir+"/"+inboxDir || strings.HasPrefix(path, looseDir+"/"+inboxDir+"/") {
			return fmt.Errorf("the repository tracks %q, which is Loopfleet's", path)
		}
	}
	out, err := d.git(ctx, cwd, "rev-parse", "--git-path", "info/exclude")
	if err != nil {
		return fmt.Errorf("ask git for its exclude file: %w", err)
	}
	path := strings.TrimSuffix(out, "\n")
	if !filepath.IsAbs(path) {
		path = filepath.Join(cwd, path)
	}
	return addLine(path, exclude)
}

// addLine appends line to the file unless it is there.
func addLine(path, line string) error {
	b, err := os.ReadFile(path) //nolint:gosec // git names it
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if slices.Contains(strings.Split(string(b), "\n"), line) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600) //nolint:gosec // git names it
	if err != nil {
		return err
	}
	text := line + "\n"
	if len(b) > 0 && b[len(b)-1] != '\n' {
		text = "\n" + text
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// git runs git in the agent's checkout, without any program that its
// configuration may name.
func (d *Driver) git(ctx context.Context, cwd string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	argv := append([]string{"-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"}, args...)
	cmd := exec.CommandContext(ctx, "git", argv...) //nolint:gosec // fixed arguments
	cmd.Dir = cwd
	for _, e := range d.environ {
		// GIT_DIR and its like would answer for another repository.
		if !strings.HasPrefix(e, "GIT_") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C")
	cmd.WaitDelay = time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, oneLine(stderr.String()))
	}
	return string(out), nil
}
