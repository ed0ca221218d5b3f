package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"loopfleet/pkg/config"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/process"
)

// exitCode is the status that the process ends with.
type exitCode int

// The exit statuses; scripts rely on them.
const (
	exitDone   exitCode = 0
	exitFailed exitCode = 1
	exitUsage  exitCode = 2
)

// app is what every command shares: its surroundings and the persistent flags.
type app struct {
	getenv         func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer

	flags process.Flags
}

// run is the program without the process around it.
func run(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) exitCode {
	a := &app{getenv: getenv, stdin: stdin, stdout: stdout, stderr: stderr}
	root := newRoot(a) //nolint:contextcheck // the commands get ctx from ExecuteContext
	if args == nil {
		args = []string{} // nil would mean os.Args
	}
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	a.report(err)
	if _, usage := errors.AsType[*usageError](err); usage {
		return exitUsage
	}
	return exitFailed
}

// report prints an error for people. Its lines may quote what strangers wrote.
func (a *app) report(err error) {
	if _, quiet := errors.AsType[*quietError](err); quiet {
		return
	}
	prefix := "loopfleet: "
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(a.stderr, "%s%s\n", prefix, eventlog.Escape(line))
		prefix = "  "
	}
	type hinter interface {
		error
		Hint() string
	}
	if h, ok := errors.AsType[hinter](err); ok && h.Hint() != "" {
		fmt.Fprintf(a.stderr, "hint: %s\n", eventlog.Escape(h.Hint()))
	}
}

// usageError says that the command line is wrong.
type usageError struct {
	err  error
	hint string
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }
func (e *usageError) Hint() string  { return e.hint }

// hintError is a failure that a person can do something about.
type hintError struct {
	err  error
	hint string
}

func (e *hintError) Error() string { return e.err.Error() }
func (e *hintError) Unwrap() error { return e.err }
func (e *hintError) Hint() string  { return e.hint }

// quietError is a failure that the command has already explained.
type quietError struct{ err error }

func (e *quietError) Error() string { return e.err.Error() }
func (e *quietError) Unwrap() error { return e.err }

// newRoot builds the whole command tree.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "loopfleet",
		Short: "Turn what happens on the forge into input for the right coding agent",
		Long: `Loopfleet starts a coding agent for a labelled issue or pull request, and turns
comments, reviews and failed checks into prompts for it, in order and once.

Commands find the fleet through --nats-url, else nats.url of the configuration,
else the server that ` + "`loopfleet up`" + ` runs on this machine.

Exit status: 0 done, 1 failed, 2 wrong usage.`,
		Example: `  loopfleet sessions list
  loopfleet sessions attach octo/hello#42
  loopfleet events --follow --work-item octo/hello#42`,
		Version:       process.Build(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          subcommandsOnly,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{err: err, hint: "see `" + cmd.CommandPath() + " --help`"}
	})
	a.flags.Register(root.PersistentFlags())
	root.AddCommand(
		newConfigCommand(a),
		newDeadLettersCommand(a),
		newDeliveriesCommand(a),
		newDemoCommand(a),
		newDemoAgentCommand(a),
		newDoctorCommand(a),
		newEventsCommand(a),
		newManCommand(a),
		newSendHookCommand(a),
		newSessionsCommand(a),
		newStreamsCommand(a),
		newUpCommand(a),
		newWorkersCommand(a),
	)
	return root
}

// newGroup is a command that does nothing without one of its subcommands.
func newGroup(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  subcommandsOnly,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usagef(cmd, "%s needs a subcommand: %s", cmd.CommandPath(), strings.Join(subcommands(cmd), ", "))
		},
	}
	cmd.AddCommand(subs...)
	return cmd
}

func subcommands(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// subcommandsOnly refuses arguments that are no subcommand.
func subcommandsOnly(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = max(cmd.SuggestionsMinimumDistance, 2)
	err := usagef(cmd, "unknown command %q for %s", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		err.hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return err
}

func usagef(cmd *cobra.Command, format string, args ...any) *usageError {
	return &usageError{err: fmt.Errorf(format, args...), hint: "see `" + cmd.CommandPath() + " --help`"}
}

// exactly wants the arguments that names lists.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef(cmd, "%s needs %s", cmd.CommandPath(), strings.Join(names[len(args):], " "))
		case len(args) > len(names):
			return usagef(cmd, "%s takes %s, not also %q", cmd.CommandPath(), orNothing(names), args[len(names)])
		}
		return nil
	}
}

func orNothing(names []string) string {
	if len(names) == 0 {
		return "no arguments"
	}
	return strings.Join(names, " ")
}

// settings loads the configuration and applies the persistent flags.
func (a *app) settings() (config.Config, error) { return a.flags.Settings(a.getenv) }

// logger writes to standard error. Level holds unless --log-level says another.
func (a *app) logger(level zerolog.Level) (zerolog.Logger, error) {
	log, err := a.flags.Logger(a.stderr, level, a.getenv)
	if errors.Is(err, process.ErrLogLevel) {
		err = &usageError{err: err}
	}
	return log, err
}
