package process

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// The exit statuses of a Program; scripts rely on them.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// errUsage marks a command line that is wrong.
var errUsage = errors.New("usage")

// Program is a binary that does one part of `loopfleet up`: it takes the common
// flags, no arguments, and serves until its context ends.
type Program struct {
	Name, Short, Long, Example string
	Serve                      func(ctx context.Context, flags *Flags) error
}

// Run is the program without the process around it. It returns the exit status
// and has said on stderr what went wrong and what to do.
func (p Program) Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var flags Flags
	cmd := &cobra.Command{
		Use: p.Name, Short: p.Short, Long: p.Long, Example: p.Example,
		Version:       Build(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("%w: %s takes no arguments, only flags: see %s --help", errUsage, p.Name, p.Name)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { //nolint:contextcheck // it is ctx, through cobra
			return p.Serve(cmd.Context(), &flags)
		},
	}
	flags.Register(cmd.Flags())
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	fmt.Fprintf(stderr, "%s: %v\n", p.Name, err)
	if hint, ok := errors.AsType[*HintError](err); ok {
		fmt.Fprintf(stderr, "hint: %s\n", hint.Hint())
	}
	if errors.Is(err, errUsage) || errors.Is(err, ErrLogLevel) {
		return exitUsage
	}
	return exitFailed
}
