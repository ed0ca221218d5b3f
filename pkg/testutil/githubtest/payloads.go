package githubtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// PayloadsEnv names the environment variable that leads to a node_modules
// folder with the packages of test/payloads.
const PayloadsEnv = "LOOPFLEET_PAYLOADS"

// manifest is what npm installs from, below the repository's root.
var manifest = []string{"test/payloads/package.json", "test/payloads/package-lock.json", "test/payloads/.npmrc"}

// Example is one payload that GitHub publishes.
type Example struct {
	// Set is api.github.com or a version of GitHub Enterprise: ghes-35.
	Set   string
	Event string
	// Index is its place among the examples of this event.
	Index int
	Body  []byte
}

// Examples returns all the payload examples of @octokit/webhooks-examples.
func Examples(tb testing.TB) []Example {
	tb.Helper()
	root := filepath.Join(nodeModules(tb), "@octokit", "webhooks-examples")
	indexes, err := filepath.Glob(filepath.Join(root, "*", "index.json"))
	if err != nil || len(indexes) == 0 {
		tb.Fatalf("no examples under %s (%v)", root, err)
	}
	var out []Example
	for _, path := range indexes {
		var events []struct {
			Name     string            `json:"name"`
			Examples []json.RawMessage `json:"examples"`
		}
		readJSON(tb, path, &events)
		for _, e := range events {
			for i, body := range e.Examples {
				out = append(out, Example{Set: filepath.Base(filepath.Dir(path)), Event: e.Name, Index: i, Body: body})
			}
		}
	}
	return out
}

func readJSON(tb testing.TB, path string, into any) {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		tb.Fatalf("%s: %v", path, err)
	}
}

// nodeModules finds the installed packages: where PayloadsEnv says, in
// test/payloads, or in the user's cache, where they are installed at need.
func nodeModules(tb testing.TB) string {
	tb.Helper()
	if dir := os.Getenv(PayloadsEnv); dir != "" {
		if _, err := os.Stat(filepath.Join(dir, "@octokit")); err != nil {
			tb.Fatalf("%s=%s holds no payload packages: run `npm ci` in test/payloads and point it to node_modules there (%v)", PayloadsEnv, dir, err)
		}
		return dir
	}
	root := repositoryRoot(tb)
	if dir := filepath.Join(root, "test", "payloads", "node_modules"); exists(filepath.Join(dir, "@octokit")) {
		return dir
	}
	sum := sha256.New()
	files := map[string][]byte{}
	for _, name := range manifest {
		b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			tb.Fatal(err)
		}
		files[filepath.Base(name)] = b
		sum.Write(b)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	final := filepath.Join(cache, "loopfleet", "payloads-"+hex.EncodeToString(sum.Sum(nil))[:16])
	if !exists(final) {
		install(tb, files, final)
	}
	return filepath.Join(final, "node_modules")
}

// install runs npm in a folder beside the final one and renames it into place:
// the tests of several packages do so at once, and one may be killed.
func install(tb testing.TB, files map[string][]byte, final string) {
	tb.Helper()
	npm, err := exec.LookPath("npm")
	if err != nil {
		tb.Fatalf("the payload examples of GitHub come from npm, which is not installed: install Node.js, or point %s to a node_modules folder made by `npm ci` in test/payloads", PayloadsEnv)
	}
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		tb.Fatal(err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(final), "installing-")
	if err != nil {
		tb.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	cmd := exec.CommandContext(tb.Context(), npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		tb.Fatalf("npm ci for the payload examples of GitHub: %v\n%s\nwithout a network, point %s to a node_modules folder made by `npm ci` in test/payloads", err, out.Bytes(), PayloadsEnv)
	}
	if err := os.Rename(dir, final); err != nil && !exists(final) {
		tb.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// repositoryRoot is the folder of go.mod, above the test's own.
func repositoryRoot(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for !exists(filepath.Join(dir, "go.mod")) {
		up := filepath.Dir(dir)
		if up == dir {
			tb.Fatal("no go.mod above the test's folder")
		}
		dir = up
	}
	return dir
}
