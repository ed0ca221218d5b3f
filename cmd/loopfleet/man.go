package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/process"
)

func newManCommand(a *app) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "man --dir DIR",
		Short: "Write the manual pages",
		Long: `Write a manual page for every command into a directory, which is made if it is not
there. Pages of the same names are replaced.`,
		Example: `  loopfleet man --dir ~/.local/share/man/man1
  man loopfleet-sessions-close`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return usagef(cmd, "%s needs --dir DIR", cmd.CommandPath())
			}
			return a.man(cmd.Root(), dir)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "`directory` to write into")
	return cmd
}

func (a *app) man(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // G301: manuals are for everybody
		return fmt.Errorf("write the manual pages: %w", err)
	}
	root.DisableAutoGenTag = true // no date: the same program writes the same pages
	root.InitDefaultCompletionCmd()
	head := &doc.GenManHeader{Title: "LOOPFLEET", Section: "1", Source: "Loopfleet " + process.Build(), Manual: "Loopfleet"}
	if err := doc.GenManTree(root, head, dir); err != nil {
		return fmt.Errorf("write the manual pages: %w", err)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "loopfleet*.1"))
	if err != nil {
		return fmt.Errorf("write the manual pages: %w", err)
	}
	return a.print(eventlog.Escape(fmt.Sprintf("%d pages in %s", len(pages), dir)) + "\n")
}
