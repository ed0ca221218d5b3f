package session_test

import (
	"os"
	"path/filepath"
	"testing"

	"loopfleet/pkg/workitem"
)

// Forget removes what is the item's and nothing else, follows no link, and finds
// nothing to do the second time.
func TestForget(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	d := e.Driver
	other := ref(t, "github:octo/hello#7")
	outside := t.TempDir()
	keep := filepath.Join(outside, "keep")
	for _, dir := range []string{d.PlainDir(e.item), d.PlainDir(other), e.dirOf(e.item), e.dirOf(other)} {
		if err := os.MkdirAll(filepath.Join(dir, "deep"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range map[string]string{keep: "mine", filepath.Join(d.PlainDir(e.item), "deep", "f"): "x"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(d.PlainDir(e.item), "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(d.PlainDir(e.item), "deep"), 0o500); err != nil {
		t.Fatal(err)
	}
	dir, err := d.Forget(t.Context(), e.item)
	if err != nil || dir != d.PlainDir(e.item) {
		t.Fatalf("%q, %v", dir, err)
	}
	for path, want := range map[string]bool{
		d.PlainDir(e.item): false, e.dirOf(e.item): false, d.PlainDir(other): true, e.dirOf(other): true, keep: true,
	} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %t", path, err, want)
		}
	}
	if dir, err := d.Forget(t.Context(), e.item); err != nil || dir != "" {
		t.Errorf("the second time: %q, %v", dir, err)
	}

	// The directory itself may be a link that somebody put there.
	if err := os.Symlink(outside, d.PlainDir(e.item)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Forget(t.Context(), e.item); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(keep); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
	if _, err := d.Forget(t.Context(), workitem.Ref{}); err == nil {
		t.Error("no item was forgotten")
	}
}

func (e *env) dirOf(item workitem.Ref) string {
	return filepath.Join(e.cfg.Dir, "sessions", item.DirName())
}
