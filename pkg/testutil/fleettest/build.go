package fleettest

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// programs are the packages of the binaries.
var programs = []string{"./cmd/ingress", "./cmd/loopfleet", "./cmd/worker", "github.com/nats-io/nats-server/v2"}

var built struct {
	once sync.Once
	dir  string
	err  error
}

// Main runs the tests of a package and removes the binaries they had built. Call
// it from TestMain and exit with what it returns.
func Main(m *testing.M) int {
	defer func() {
		if built.dir != "" {
			_ = os.RemoveAll(built.dir)
		}
	}()
	return m.Run()
}

// binaries builds the programs once per test process and returns their
// directory.
func binaries(tb testing.TB) string {
	tb.Helper()
	built.once.Do(func() { built.dir, built.err = build() })
	if built.err != nil {
		tb.Fatal(built.err)
	}
	return built.dir
}

func build() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return "", fmt.Errorf("build the binaries: where the sources are is not known")
	}
	root := filepath.Join(filepath.Dir(file), "..", "..", "..")
	if err := lookAtSources(root); err != nil {
		return "", fmt.Errorf("build the binaries: %w", err)
	}
	dir, err := os.MkdirTemp("", "lfbin")
	if err != nil {
		return "", fmt.Errorf("build the binaries: %w", err)
	}
	cmd := exec.Command("go", append([]string{"build", "-o", dir + "/"}, programs...)...) //nolint:noctx // shared by all tests of the process
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="+os.Getenv("GOFLAGS")+" -buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("build the binaries: %w\n%s", err, out)
	}
	return dir, nil
}

// lookAtSources makes cached test results depend on the programs' sources: go
// test notes which files a test looks at, and not what its children do.
func lookAtSources(root string) error {
	for _, top := range []string{"cmd", "pkg", "streams", "go.mod"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			_, err = os.Stat(path)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
