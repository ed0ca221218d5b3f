package main

import (
	"strings"
	"testing"
)

func TestWrapped(t *testing.T) {
	t.Parallel()
	long := `{"a":1,"b":"two","c":[` + strings.TrimSuffix(strings.Repeat("3,", 200), ",") + "]}"
	for name, tc := range map[string]struct {
		in, want string
	}{
		"what fits":       {"loop.events", "  loop.events\n"},
		"nothing":         {"", "  \n"},
		"at its commas":   {`{"a":"one","b":"two"}`, "  {\"a\":\"one\",\n  \"b\":\"two\"}\n"},
		"without a comma": {strings.Repeat("x", 30), "  " + strings.Repeat("x", 17) + "…\n"},
		"too much":        {long, "  {\"a\":1,\"b\":\"two\",\n  \"c\":[3,3,3,3,3,3,\n" + strings.Repeat("  3,3,3,3,3,3,3,3,3,\n", 3) + "  …\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := wrapped(tc.in, 20); got != tc.want {
				t.Errorf("got\n%swant\n%s", got, tc.want)
			}
		})
	}
}
