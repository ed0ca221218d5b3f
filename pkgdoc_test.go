package loopfleet_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const maxLines = 600

// goFile is one parsed Go file of the repository.
type goFile struct {
	path string // with slashes, from the root
	src  []byte
	ast  *ast.File
}

func (f goFile) test() bool  { return strings.HasSuffix(f.path, "_test.go") }
func (f goFile) dir() string { return path.Dir(f.path) }

// skipped are directories that hold nothing of ours.
var skipped = []string{".git", ".cache", "bin", "dist", "node_modules"}

// walk calls fn for every file of ours, with its path from the root.
func walk(fn func(name string) error) error {
	return filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(skipped, d.Name()):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		default:
			return fn(filepath.ToSlash(name))
		}
	})
}

// goFiles parses the repository once.
var goFiles = sync.OnceValues(func() ([]goFile, error) {
	var files []goFile
	fset := token.NewFileSet()
	err := walk(func(name string) error {
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, goFile{name, src, f})
		return nil
	})
	return files, err
})

func sources(t *testing.T) []goFile {
	t.Helper()
	files, err := goFiles()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("only %d Go files found: is this the root?", len(files))
	}
	return files
}

// TestPackageDocs wants each package's guarantees where a reader looks first:
// in doc.go, in main.go for a command, in the only file of a small package.
func TestPackageDocs(t *testing.T) {
	t.Parallel()
	files := map[string][]goFile{}
	for _, f := range sources(t) {
		if !f.test() {
			files[f.dir()] = append(files[f.dir()], f)
		}
	}
	for dir, fs := range files {
		name := fs[0].ast.Name.Name
		want, opening := "doc.go", "Package "+name+" "
		switch {
		case name == "main":
			want, opening = "main.go", "Command "+path.Base(dir)+" "
		case len(fs) == 1:
			want = path.Base(fs[0].path)
		}
		i := slices.IndexFunc(fs, func(f goFile) bool { return path.Base(f.path) == want })
		if i < 0 {
			t.Errorf("%s has no %s", dir, want)
			continue
		}
		if doc := fs[i].ast.Doc.Text(); !strings.HasPrefix(doc, opening) || len(doc) < len(opening)+40 {
			t.Errorf("%s: the package comment must begin with %q and say what it guarantees", fs[i].path, opening)
		}
	}
}

func TestFilesAreShort(t *testing.T) {
	t.Parallel()
	for _, f := range sources(t) {
		if n := bytes.Count(f.src, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines; split it, %d is the limit", f.path, n, maxLines)
		}
	}
}

// TestNoSleep: wait on a condition, or on a timer and ctx.Done(); a test waits for
// the recorded outcome.
//
// rule: LAG-03
func TestNoSleep(t *testing.T) {
	t.Parallel()
	for _, f := range sources(t) {
		if strings.HasPrefix(f.path, testutil) || strings.HasSuffix(f.path, "_bubble_test.go") {
			continue
		}
		for name := range selectors(f.ast, "time") {
			if name == "Sleep" {
				t.Errorf("%s calls time.Sleep", f.path)
			}
		}
	}
}

// TestNoRegistryHosts keeps out where one machine happened to fetch its
// packages from.
func TestNoRegistryHosts(t *testing.T) {
	t.Parallel()
	// Written in halves, as this file is in the tree too.
	hosts := []string{
		"registry.npm" + "js.org", "npm" + "js.com", "yarnpkg." + "com", "proxy." + "golang.org", "sum." + "golang.org",
		"goproxy." + "io", "goproxy." + "cn", "pypi." + "org", "files.python" + "hosted.org", "deb.deb" + "ian.org",
		"security.deb" + "ian.org", "registry-1." + "docker.io", "ghcr." + "io", "quay." + "io", "artifactory" + ".", "\"resolved\": " + "\"http",
	}
	n := 0
	err := walk(func(name string) error {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		n++
		for _, h := range hosts {
			if bytes.Contains(b, []byte(h)) {
				t.Errorf("%s names the package registry %s", name, h)
			}
		}
		return nil
	})
	if err != nil || n < 20 {
		t.Fatalf("%d files read: %v", n, err)
	}
}

// selectors yields the names that the file takes from a package by its usual
// name, where they are more than compared with.
func selectors(f *ast.File, pkg string) map[string]bool {
	names := map[string]bool{}
	add := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			return n.Op != token.EQL && n.Op != token.NEQ
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok && id.Name == pkg {
				names[n.Sel.Name] = true
			}
		}
		return true
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if c, ok := n.(*ast.CaseClause); ok {
			for _, s := range c.Body {
				ast.Inspect(s, add)
			}
			return false
		}
		return add(n)
	})
	return names
}

func TestSelectors(t *testing.T) {
	t.Parallel()
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
func f(l event.LogType) {
	if l == event.Compared { return }
	switch l {
	case event.Cased:
		emit(event.InCase)
	}
	switch {
	case l != event.Compared2:
		switch { case true: emit(event.Nested) }
	}
	g := E{Type: event.Literal}
	event.Func(func() { _ = event.InFunc })
}`, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	got := selectors(f, "event")
	for _, name := range []string{"LogType", "InCase", "Literal", "Func", "InFunc", "Nested"} {
		if !got[name] {
			t.Errorf("%s is not found", name)
		}
	}
	for _, name := range []string{"Compared", "Cased", "Compared2"} {
		if got[name] {
			t.Errorf("%s is only compared with", name)
		}
	}
}
