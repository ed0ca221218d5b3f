package loopfleet_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"

	"loopfleet/pkg/config"
	"loopfleet/pkg/event"
)

var update = flag.Bool("update", false, "rewrite the generated parts of the documents")

const (
	beginGenerated = "<!-- generated: go test . -run TestDocs -update -->\n"
	endGenerated   = "<!-- end of generated -->\n"
)

// generated compares what stands between the marks of a document with what the
// code says, or rewrites it.
func generated(t *testing.T, name, want string) {
	t.Helper()
	doc := document(t, name)
	head, rest, ok := strings.Cut(doc, beginGenerated)
	got, tail, ok2 := strings.Cut(rest, endGenerated)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the lines %q and %q", name, beginGenerated, endGenerated)
	}
	if *update {
		if err := os.WriteFile(name, []byte(head+beginGenerated+want+endGenerated+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("%s is not what the code says; rewrite it with: go test . -run TestDocs -update (-doc +code)\n%s", name, diff)
	}
}

func document(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// cell is s inside a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// rule: RR-24
func TestDocs_EventLog(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("| type | meaning |\n|---|---|\n")
	for _, typ := range slices.Sorted(maps.Keys(event.Catalogue)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", typ, cell(event.Catalogue[typ]))
	}
	generated(t, "docs/events.md", b.String())
}

// TestDocs_LogKeys wants every shared field of log lines explained.
func TestDocs_LogKeys(t *testing.T) {
	t.Parallel()
	rows := firstCells(document(t, "docs/events.md"))
	n := 0
	for _, f := range sources(t) {
		if f.dir() != "pkg/logkey" || f.test() {
			continue
		}
		for name, value := range literals(f.ast) {
			n++
			if !rows[value] {
				t.Errorf("docs/events.md does not explain the field %s (logkey.%s)", value, name)
			}
		}
	}
	if n == 0 {
		t.Error("no names in pkg/logkey")
	}
}

func TestDocs_Configuration(t *testing.T) {
	t.Parallel()
	raw, err := config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("| key | type | default | meaning |\n|---|---|---|---|\n")
	keys(&b, "", &s)
	if strings.Count(b.String(), "\n") < 30 {
		t.Fatalf("only these keys:\n%s", b.String())
	}
	generated(t, "docs/configuration.md", b.String())
}

// keys writes a line for each key below a schema.
func keys(b *strings.Builder, prefix string, s *jsonschema.Schema) {
	for p := s.Properties.Oldest(); p != nil; p = p.Next() {
		name, v := prefix+p.Key, p.Value
		switch {
		case v.Properties != nil && v.Properties.Len() > 0:
			keys(b, name+".", v)
		case v.AdditionalProperties != nil && v.AdditionalProperties.Properties != nil:
			keys(b, name+".NAME.", v.AdditionalProperties)
		case v.Items != nil && v.Items.Properties != nil:
			keys(b, name+"[].", v.Items)
		default:
			fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", name, cell(kind(v)), cell(standard(v)), cell(meaning(v.Description)))
		}
	}
}

// meaning is a key's description without the verb that the key's name is the
// subject of: "Is HOST:PORT", "Are the logins".
func meaning(s string) string {
	for _, verb := range []string{"Is ", "Are "} {
		if rest, ok := strings.CutPrefix(s, verb); ok {
			return strings.ToUpper(rest[:1]) + rest[1:]
		}
	}
	return s
}

// kind is a key's type and limits.
func kind(s *jsonschema.Schema) string {
	if s.Type == "array" && s.Items != nil {
		return "list of " + kind(s.Items)
	}
	var limits []string
	if s.Minimum != "" {
		limits = append(limits, "at least "+s.Minimum.String())
	}
	if s.Maximum != "" {
		limits = append(limits, "at most "+s.Maximum.String())
	}
	if len(s.Enum) > 0 {
		var words []string
		for _, w := range s.Enum {
			words = append(words, fmt.Sprintf("`%v`", w))
		}
		return strings.ReplaceAll(strings.Join(words, ", "), "``", "empty")
	}
	return strings.Join(append([]string{s.Type}, limits...), ", ")
}

func standard(s *jsonschema.Schema) string {
	switch s.Default {
	case nil:
		return ""
	case "":
		return "empty"
	}
	b, err := json.Marshal(s.Default)
	if err != nil {
		return err.Error()
	}
	return "`" + strings.Trim(string(b), `"`) + "`"
}

// literals returns name and value of a file's string constants.
func literals(f *ast.File) map[string]string {
	out := map[string]string{}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v, ok := s.(*ast.ValueSpec)
			if !ok || len(v.Values) == 0 {
				continue
			}
			if value, ok := text(v.Values[0]); ok {
				out[v.Names[0].Name] = value
			}
		}
	}
	return out
}

// text is the value of a string literal.
func text(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}

// reasons finds every reason the code can give: constants that are called so or
// have such a type, what the decision table says, and literals given as one.
func reasons(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, why := range []string{event.IssueClosed, event.PRMerged, event.PRClosed, event.Stopped} {
		out[why] = "pkg/event"
	}
	consts := map[string]string{} // by directory and name
	for _, f := range sources(t) {
		for name, value := range literals(f.ast) {
			consts[f.dir()+"."+name] = value
		}
	}
	for _, f := range sources(t) {
		if f.test() || !strings.HasPrefix(f.path, "pkg/") || strings.HasPrefix(f.path, testutil) {
			continue
		}
		for name, value := range literals(f.ast) {
			if strings.HasPrefix(name, "Reason") && f.dir() != "pkg/logkey" || f.dir() == "pkg/decide" {
				out[value] = f.path
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				if id, ok := n.Type.(*ast.Ident); ok && (id.Name == "Reason" || id.Name == "rejection") && len(n.Values) > 0 {
					if value, ok := text(n.Values[0]); ok {
						out[value] = f.path
					}
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.SelectorExpr); ok && key.Sel.Name == "Reason" {
					if value, ok := text(n.Value); ok {
						out[value] = f.path
					}
				}
			case *ast.CallExpr:
				if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "dead" && len(n.Args) > 1 {
					if value, ok := text(n.Args[1]); ok {
						out[value] = f.path
					} else if id, ok := n.Args[1].(*ast.Ident); ok && consts[f.dir()+"."+id.Name] != "" {
						out[consts[f.dir()+"."+id.Name]] = f.path
					}
				}
			}
			return true
		})
	}
	for _, do := range constants(t, "pkg/decide", "Do") {
		delete(out, do)
	}
	// What is said in a sentence explains itself.
	maps.DeleteFunc(out, func(reason, _ string) bool { return strings.Contains(reason, " ") })
	return out
}

// firstCells returns the code spans that begin the rows of a document's tables.
func firstCells(doc string) map[string]bool {
	out := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`(?:, `([^`]+)`)? \\|").FindAllStringSubmatch(doc, -1) {
		out[m[1]] = true
		if m[2] != "" {
			out[m[2]] = true
		}
	}
	return out
}

// TestDocs_Reasons wants each reason the code can give, and no other, explained
// in the page that people look into.
func TestDocs_Reasons(t *testing.T) {
	t.Parallel()
	code := reasons(t)
	for _, known := range []string{"unauthorized-actor", "signature-missing", "duplicate", "already", "dialog", "crash-loop", "no-room", "pr-merged"} {
		if code[known] == "" {
			t.Errorf("the search for reasons does not find %s", known)
		}
	}
	rows := firstCells(document(t, "docs/troubleshooting.md"))
	for _, reason := range slices.Sorted(maps.Keys(code)) {
		if !rows[reason] {
			t.Errorf("docs/troubleshooting.md does not explain the reason %s (%s)", reason, code[reason])
		}
		delete(rows, reason)
	}
	for reason := range rows {
		t.Errorf("docs/troubleshooting.md explains %s, which is no reason", reason)
	}
}

// TestDocs_States wants the states of a record in the chart, and no others.
func TestDocs_States(t *testing.T) {
	t.Parallel()
	_, rest, _ := strings.Cut(document(t, "ARCHITECTURE.md"), "```mermaid\nstateDiagram-v2\n")
	chart, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("ARCHITECTURE.md has no state chart")
	}
	states := map[string]bool{}
	for _, value := range constants(t, "pkg/record", "State") {
		states[value] = true
	}
	left := maps.Clone(states)
	for line := range strings.Lines(chart) {
		m := regexp.MustCompile(`^\s+(\S+) --> (\S+) : \S`).FindStringSubmatch(line)
		if m == nil {
			t.Errorf("not a transition with its cause: %q", line)
			continue
		}
		for _, s := range m[1:] {
			if s != "[*]" && !states[s] {
				t.Errorf("%s is no state of a record", s)
			}
			delete(left, s)
		}
	}
	for s := range left {
		t.Errorf("the chart lacks the state %s", s)
	}
}

// TestDocs_Packages wants the table of packages to be that of layers_test.go.
func TestDocs_Packages(t *testing.T) {
	t.Parallel()
	want := map[string]string{}
	for row, entries := range layers {
		for _, e := range entries {
			want[e] = strconv.Itoa(row)
		}
	}
	left := maps.Clone(want)
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \| ([^|]+) \|`).FindAllStringSubmatch(document(t, "ARCHITECTURE.md"), -1) {
		for _, p := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(m[2], -1) {
			if want[p[1]] != m[1] {
				t.Errorf("ARCHITECTURE.md has %s in row %s; layers_test.go in row %q", p[1], m[1], want[p[1]])
			}
			delete(left, p[1])
		}
	}
	for p, row := range left {
		if _, err := os.Stat(strings.TrimSuffix(p, "/...")); err != nil {
			continue // nobody has made it yet
		}
		t.Errorf("the table in ARCHITECTURE.md lacks %s, row %s", p, row)
	}
}

// markdown lists the documents.
func markdown(t *testing.T) []string {
	t.Helper()
	var docs []string
	err := walk(func(name string) error {
		if strings.HasSuffix(name, ".md") && !strings.Contains(name, "testdata/") {
			docs = append(docs, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) < 8 {
		t.Fatalf("only %q", docs)
	}
	return docs
}

func TestDocs_Links(t *testing.T) {
	t.Parallel()
	for _, name := range markdown(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(document(t, name), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := name
			if target != "" {
				file = path.Join(path.Dir(name), target)
			}
			if _, err := os.Stat(filepath.FromSlash(file)); err != nil {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			} else if anchor != "" && !anchors(document(t, file))[anchor] {
				t.Errorf("%s links to %s, which has no such heading", name, m[1])
			}
		}
	}
}

// anchors are the names of a document's headings, as forges make them.
func anchors(doc string) map[string]bool {
	out := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(doc, -1) {
		slug := strings.ReplaceAll(strings.ToLower(m[1]), " ", "-")
		out[regexp.MustCompile(`[^a-z0-9_-]`).ReplaceAllString(slug, "")] = true
	}
	return out
}

// TestDocs_Commands wants the make targets and the commands in documents to be
// there.
func TestDocs_Commands(t *testing.T) {
	t.Parallel()
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(document(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	commands := map[string]bool{}
	for _, f := range sources(t) {
		if f.dir() == "cmd/loopfleet" && !f.test() {
			for _, m := range regexp.MustCompile(`(?:Use:\s+|newGroup\()"([a-z-]+)`).FindAllSubmatch(f.src, -1) {
				commands[string(m[1])] = true
			}
		}
	}
	for _, name := range markdown(t) {
		doc := document(t, name)
		for _, m := range regexp.MustCompile("(?m)(?:^|`|&& )make ([a-z-]+)").FindAllStringSubmatch(doc, -1) {
			if !targets[m[1]] {
				t.Errorf("%s names `make %s`, which the Makefile lacks", name, m[1])
			}
		}
		for _, m := range regexp.MustCompile("(?m)(?:^|`|\\$ )(?:bin/)?loopfleet ([a-z][a-z-]+)").FindAllStringSubmatch(doc, -1) {
			if !commands[m[1]] {
				t.Errorf("%s names `loopfleet %s`, which is no command", name, m[1])
			}
		}
	}
}
