package config

import (
	"fmt"
	"os"
	"strings"
)

// Secret returns the webhook secret: the value of the variable that SecretEnv
// names, or the contents of the file that the variable <SecretEnv>_FILE names,
// without one newline at the end. Neither set, or empty: "", which means that
// there is none. Both set, or a file that cannot be read, is an error; it never
// shows the secret.
func (g GHWebhook) Secret(getenv func(string) string) (string, error) {
	fileEnv := g.SecretEnv + "_FILE"
	value, file := getenv(g.SecretEnv), getenv(fileEnv)
	switch {
	case value != "" && file != "":
		return "", fmt.Errorf("webhook secret: both %s and %s are set: leave one out", g.SecretEnv, fileEnv)
	case file != "":
		b, err := os.ReadFile(file) //nolint:gosec // the operator names it
		if err != nil {
			return "", fmt.Errorf("webhook secret: read the file that %s names: %w", fileEnv, err)
		}
		value = string(b)
	}
	if trimmed, ok := strings.CutSuffix(value, "\r\n"); ok {
		return trimmed, nil
	}
	return strings.TrimSuffix(value, "\n"), nil
}
