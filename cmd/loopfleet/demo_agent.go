package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"loopfleet/pkg/harness/demoagent"
)

func newDemoAgentCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "demo-agent [PROMPT]",
		Short: "A harness without a model: it shows the prompts that it is given",
		Long: `demo-agent is what the harness "demo" runs. It takes prompts the way a coding agent
does, prints the file that each leads to and gives a receipt for it. It shows what
an agent would see, and tests run it.`,
		DisableFlagParsing: true, // the last argument is a prompt, whatever it begins with
		Hidden:             true,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := demoagent.Run(cmd.Context(), demoagent.Config{Args: args, Environ: os.Environ(), Stdin: a.stdin, Stdout: a.stdout})
			if errors.Is(err, demoagent.ErrUsage) {
				return &usageError{err: err}
			}
			return err
		},
	}
}
