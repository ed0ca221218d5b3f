package loopfleet_test

import (
	"go/ast"
	"go/token"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"loopfleet/pkg/event"
	"loopfleet/pkg/fault"
)

// constants returns name and value of the string constants of a type, from the
// non-test files of a directory.
func constants(t *testing.T, dir, typ string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, f := range sources(t) {
		if f.dir() != dir || f.test() {
			continue
		}
		for _, d := range f.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				v, ok := s.(*ast.ValueSpec)
				if !ok {
					continue
				}
				if id, ok := v.Type.(*ast.Ident); !ok || id.Name != typ {
					continue
				}
				lit, ok := v.Values[0].(*ast.BasicLit)
				if !ok {
					t.Fatalf("%s: %s is not a plain text", f.path, v.Names[0].Name)
				}
				value, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				out[v.Names[0].Name] = value
			}
		}
	}
	if len(out) == 0 {
		t.Fatalf("no constants of type %s in %s", typ, dir)
	}
	return out
}

// used returns the names that code outside the tests takes from a package.
func used(t *testing.T, dir, pkg string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, f := range sources(t) {
		if !f.test() && f.dir() != dir && !strings.HasPrefix(f.path, testutil) {
			maps.Copy(out, selectors(f.ast, pkg))
		}
	}
	return out
}

// rule: RR-24
func TestLogTypes_CatalogueAndCodeAgree(t *testing.T) {
	t.Parallel()
	consts := constants(t, "pkg/event", "LogType")
	listed := map[string]bool{}
	for typ, what := range event.Catalogue {
		listed[string(typ)] = true
		if what == "" {
			t.Errorf("the catalogue does not say what %s means", typ)
		}
	}
	emitted := used(t, "pkg/event", "event")
	for _, name := range slices.Sorted(maps.Keys(consts)) {
		if !listed[consts[name]] {
			t.Errorf("event.%s (%s) is not in the catalogue", name, consts[name])
		}
		if !emitted[name] {
			t.Errorf("event.%s (%s) is emitted nowhere", name, consts[name])
		}
		delete(listed, consts[name])
	}
	for typ := range listed {
		t.Errorf("%s is in the catalogue and no constant", typ)
	}
}

// rule: RR-24
func TestLogTypes_OnlyConstants(t *testing.T) {
	t.Parallel()
	for _, f := range sources(t) {
		if f.test() || f.dir() == "pkg/event" || f.dir() == "pkg/eventlog" {
			continue
		}
		for _, what := range looseTypes(f.ast) {
			t.Errorf("%s: %s: log types are constants of package event", f.path, what)
		}
	}
}

// looseTypes finds log types made from anything else than the constants.
func looseTypes(f *ast.File) []string {
	var out []string
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "LogType" {
				out = append(out, "a conversion to event.LogType")
			}
		case *ast.CompositeLit:
			s, ok := n.Type.(*ast.SelectorExpr)
			if !ok || s.Sel.Name != "Entry" {
				return true
			}
			for _, e := range n.Elts {
				kv, ok := e.(*ast.KeyValueExpr)
				if !ok {
					continue
				}
				key, isType := kv.Key.(*ast.Ident)
				if _, lit := kv.Value.(*ast.BasicLit); isType && key.Name == "Type" && lit {
					out = append(out, "an entry with a literal type")
				}
			}
		}
		return true
	})
	return out
}

// rule: LAG-01
func TestFaultPoints_ListedAndPassed(t *testing.T) {
	t.Parallel()
	consts := constants(t, "pkg/fault", "Point")
	passed := used(t, "pkg/fault", "fault")
	for _, name := range slices.Sorted(maps.Keys(consts)) {
		if !slices.Contains(fault.Points, fault.Point(consts[name])) {
			t.Errorf("fault.%s is not in fault.Points", name)
		}
		if !passed[name] {
			t.Errorf("fault.%s is passed nowhere: the write it names is not delayed by DISPATCH_LAG", name)
		}
	}
	if len(fault.Points) != len(consts) || !slices.IsSorted(fault.Points) {
		t.Errorf("fault.Points must list each of the %d points once, sorted: %q", len(consts), fault.Points)
	}
}

// rule: LAG-02: the suite is run under lag by CI, and every package whose code
// passes a fault point lets its tests be delayed. That they are green is the
// run's to say.
func TestLag_ReachesEveryPackageWithFaultPoints(t *testing.T) {
	t.Parallel()
	passes, lags := map[string]bool{}, map[string]bool{}
	for _, f := range sources(t) {
		if !f.test() && strings.HasPrefix(f.path, "pkg/") && selectors(f.ast, "fault")["Pass"] {
			passes[f.dir()] = true
		}
		if f.test() && selectors(f.ast, "faulttest")["Lag"] {
			lags[f.dir()] = true
		}
	}
	if len(passes) < 5 {
		t.Errorf("only %d packages pass fault points: is the search right?", len(passes))
	}
	for _, dir := range slices.Sorted(maps.Keys(passes)) {
		if !lags[dir] {
			t.Errorf("%s passes fault points and its tests never call faulttest.Lag", dir)
		}
	}
	ci, err := os.ReadFile(".ci/run")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(ci), "make test-lag") {
		t.Error(".ci/run does not run the suite under lag")
	}
}
