package registry_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"loopfleet/pkg/registry"
	"loopfleet/pkg/testutil/waitfor"
)

const (
	lockEnv    = "REGISTRY_TEST_LOCK_DIR"
	heldLine   = "held "
	lockedLine = "locked"
)

// holdLock is the second process of TestLockDir_OneProcess: it says what it got
// and holds it until its input ends.
func holdLock(t *testing.T, dir string) {
	t.Helper()
	l, err := registry.LockDir(dir)
	switch {
	case errors.Is(err, registry.ErrLocked):
		_, _ = os.Stdout.WriteString(lockedLine + "\n")
		return
	case err != nil:
		t.Fatal(err)
	}
	_, _ = os.Stdout.WriteString(heldLine + l.Name() + "\n")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

// child starts the second process and returns its first line; end kills it.
func child(t *testing.T, dir string) (line string, end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLockDir_OneProcess$")
	cmd.Env = append(os.Environ(), lockEnv+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		_ = cmd.Process.Kill()
		_ = in.Close()
		_ = cmd.Wait()
	}
	r := bufio.NewReader(out)
	line, err = r.ReadString('\n')
	if err != nil {
		end()
		t.Fatalf("the child said %q: %v", line, err)
	}
	return strings.TrimSuffix(line, "\n"), end
}

func TestLockDir_OneProcess(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv(lockEnv); dir != "" { //nolint:forbidigo // set by this very test for its child
		holdLock(t, dir)
		return
	}
	dir := filepath.Join(t.TempDir(), "workers", "w1")
	mine, err := registry.LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	line, end := child(t, dir)
	end()
	if line != lockedLine {
		t.Errorf("a second process got: %q", line)
	}
	if _, err := registry.LockDir(dir); !errors.Is(err, registry.ErrLocked) {
		t.Errorf("the same process again: %v", err)
	}
	if err := mine.Unlock(); err != nil {
		t.Fatal(err)
	}
	line, end = child(t, dir)
	if line != heldLine+mine.Name() {
		end()
		t.Fatalf("after the unlock a second process got %q, want the same name %q", line, mine.Name())
	}
	if _, err := registry.LockDir(dir); !errors.Is(err, registry.ErrLocked) {
		t.Errorf("while the child holds it: %v", err)
	}
	end() // kill -9: the kernel drops the lock
	again := waitfor.Value(t, "the lock of a killed process", func() (*registry.Lock, bool) {
		l, err := registry.LockDir(dir)
		return l, err == nil
	})
	if again.Name() != mine.Name() {
		t.Errorf("the same folder is named %q and %q", mine.Name(), again.Name())
	}
	if err := again.Unlock(); err != nil {
		t.Error(err)
	}
}

func TestLockDir_FoldersHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	a, err := registry.LockDir(filepath.Join(t.TempDir(), "a"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := registry.LockDir(filepath.Join(t.TempDir(), "b"))
	if err != nil {
		t.Fatal(err)
	}
	if a.Name() == b.Name() {
		t.Errorf("both are %s", a.Name())
	}
	if err := errors.Join(a.Unlock(), b.Unlock()); err != nil {
		t.Error(err)
	}
}

func TestLockDir_SaysWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.LockDir(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file in place of the folder: %v", err)
	}
}
