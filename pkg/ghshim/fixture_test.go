package ghshim_test

import (
	"os"
	"testing"

	"loopfleet/pkg/ghshim"
)

// This test binary is the shim when it is started as gh.
func TestMain(m *testing.M) {
	if ghshim.Called(os.Args) {
		os.Exit(ghshim.Main(os.Args, os.Environ(), os.Stdin, os.Stderr))
	}
	os.Exit(m.Run())
}
