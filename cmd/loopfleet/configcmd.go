package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"loopfleet/pkg/config"
	"loopfleet/pkg/eventlog"
)

func newConfigCommand(a *app) *cobra.Command {
	return newGroup("config", "Check and describe the configuration",
		newConfigCheckCommand(a), newConfigExampleCommand(a), newConfigSchemaCommand(a))
}

// checked is the JSON of `config check`.
type checked struct {
	// File is empty when there is none and the defaults hold.
	File     string           `json:"file"`
	Valid    bool             `json:"valid"`
	Problems []config.Problem `json:"problems"`
	Warnings []string         `json:"warnings"`
}

func newConfigCheckCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check the configuration, and report everything that is wrong at once",
		Long: `Check the configuration file: FILE, else what every command would read. All
problems are reported at once, with line, column and key; then the exit status
is 1. Warnings are about what is legal and perhaps not meant.`,
		Example: `  loopfleet config check
  loopfleet config check loopfleet.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef(cmd, "%s takes one file, not also %q", cmd.CommandPath(), args[1])
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			file := a.flags.ConfigFile
			if len(args) == 1 {
				file = args[0]
			}
			return a.checkConfig(file, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) checkConfig(file string, asJSON bool) error {
	out := checked{File: config.Path(file, a.getenv), Problems: []config.Problem{}, Warnings: []string{}}
	cfg, err := config.Load(file, a.getenv)
	var problems config.Errors
	switch {
	case errors.As(err, &problems):
		out.Problems = problems
	case err != nil:
		return err
	default:
		out.Valid = true
		out.Warnings = append(out.Warnings, config.Warnings(cfg)...)
	}
	if asJSON {
		if perr := a.printJSON(out); perr != nil {
			return perr
		}
		if err != nil {
			return &quietError{err: err}
		}
		return nil
	}
	if err != nil {
		return err
	}
	for _, w := range out.Warnings {
		fmt.Fprintf(a.stderr, "warning: %s\n", eventlog.Escape(w))
	}
	if out.File == "" {
		return a.print("ok: there is no file, the defaults hold\n")
	}
	return a.printf("ok: %s\n", eventlog.Escape(out.File))
}

func newConfigExampleCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "example",
		Short:   "Print a complete configuration with comments",
		Long:    `Print a configuration with every key, its default, and what it means.`,
		Example: `  loopfleet config example > loopfleet.yaml`,
		Args:    exactly(),
		RunE:    func(*cobra.Command, []string) error { return a.print(config.Example()) },
	}
}

func newConfigSchemaCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration, for editors",
		Long: `Print the JSON Schema of the configuration file. An editor with a YAML language
server uses it with this first line in the file:

  # yaml-language-server: $schema=./loopfleet.schema.json`,
		Example: `  loopfleet config schema > loopfleet.schema.json`,
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			b, err := config.Schema()
			if err != nil {
				return err
			}
			return a.print(string(b))
		},
	}
}
