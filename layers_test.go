// Package loopfleet_test holds the tests that keep the repository's own rules:
// the order of its packages, their documentation, and the lists that code and
// catalogues must agree on.
package loopfleet_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	module     = "loopfleet/"
	natsServer = "github.com/nats-io/nats-server/v2"
	testutil   = "pkg/testutil/"
)

// layers lists the packages from the bottom up. A package may import only
// packages of lower rows, and those of its own entry when that ends in "/...".
// One that is not listed fails the test. Packages below pkg/testutil are for
// tests: no other package may import them outside its tests.
var layers = [][]string{
	{"pkg/workitem", "pkg/logkey", "pkg/fault", "pkg/tmux"},
	{"pkg/event", "pkg/config"},
	{"pkg/record"},
	{"pkg/router", "pkg/decide", "pkg/webhook", "pkg/harness/...", "pkg/natsconn", "pkg/forge/...", "pkg/ghshim", "pkg/workspace", "streams"},
	{"pkg/registry", "pkg/eventlog", "pkg/process"},
	{"pkg/queue", "pkg/session"},
	{"pkg/deadletter"},
	{"pkg/notice"},
	{"pkg/doctor", "pkg/status", "pkg/ingress", "pkg/worker"},
	{"cmd/internal/..."},
	{"cmd/ingress", "cmd/worker", "cmd/loopfleet/..."},
	{"pkg/testutil/...", "test/..."},
}

// serverOwners are the only packages that may link nats-server.
var serverOwners = []string{"pkg/testutil/natstest", "cmd/loopfleet"}

func TestLayers(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	imports := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		imports[words[0]] = words[1:]
	}
	if len(imports) < 10 {
		t.Fatalf("go list shows only %d packages:\n%s", len(imports), out)
	}
	for _, b := range breaches(imports) {
		t.Error(b)
	}
}

// breaches returns what is wrong with a map of packages to what they import.
func breaches(imports map[string][]string) []string {
	var out []string
	for pkg, imps := range imports {
		from, ours := strings.CutPrefix(pkg, module)
		if !ours {
			continue // the root itself
		}
		at, own, ok := place(from)
		if !ok {
			out = append(out, from+" is in no layer: add it to layers")
			continue
		}
		for _, imp := range imps {
			if strings.HasPrefix(imp, natsServer) && !slices.Contains(serverOwners, from) {
				out = append(out, from+" may not import nats-server")
			}
			to, ours := strings.CutPrefix(imp, module)
			if !ours {
				continue
			}
			row, entry, _ := place(to)
			switch {
			case strings.HasPrefix(to, testutil) && !strings.HasPrefix(from, testutil):
				out = append(out, fmt.Sprintf("%s may import %s in tests only", from, to))
			case row >= at && (entry != own || !strings.HasSuffix(own, "/...")):
				out = append(out, fmt.Sprintf("%s (row %d) may not import %s (row %d)", from, at, to, row))
			}
		}
	}
	slices.Sort(out)
	return out
}

// place finds a package's row and the entry that lists it.
func place(pkg string) (row int, entry string, ok bool) {
	for i, entries := range layers {
		for _, e := range entries {
			tree, isTree := strings.CutSuffix(e, "/...")
			if e == pkg || isTree && (tree == pkg || strings.HasPrefix(pkg, tree+"/")) {
				return i, e, true
			}
		}
	}
	return 0, "", false
}

func TestBreaches(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pkg, imp string
		want     []string
	}{
		"downwards":            {"pkg/queue", "loopfleet/pkg/workitem", nil},
		"upwards":              {"pkg/workitem", "loopfleet/pkg/event", []string{"pkg/workitem (row 0) may not import pkg/event (row 1)"}},
		"sideways":             {"pkg/router", "loopfleet/pkg/webhook", []string{"pkg/router (row 3) may not import pkg/webhook (row 3)"}},
		"within a tree":        {"pkg/harness", "loopfleet/pkg/harness/demoagent", nil},
		"not listed":           {"pkg/util", "fmt", []string{"pkg/util is in no layer: add it to layers"}},
		"test helper":          {"pkg/queue", "loopfleet/pkg/testutil/natstest", []string{"pkg/queue may import pkg/testutil/natstest in tests only"}},
		"helper of helpers":    {"pkg/testutil/natstest", "loopfleet/pkg/testutil/waitfor", nil},
		"server":               {"pkg/queue", natsServer + "/server", []string{"pkg/queue may not import nats-server"}},
		"server where allowed": {"cmd/loopfleet", natsServer + "/server", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, breaches(map[string][]string{module + tc.pkg: {tc.imp}})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
