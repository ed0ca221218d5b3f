package notice_test

import (
	"os"
	"testing"

	"loopfleet/pkg/testutil/faulttest"
)

func TestMain(m *testing.M) {
	faulttest.Lag()
	os.Exit(m.Run()) //nolint:forbidigo // a test's main
}
