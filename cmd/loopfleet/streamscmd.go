package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"loopfleet/streams"
)

func newStreamsCommand(a *app) *cobra.Command {
	return newGroup("streams", "Compare a server with the streams Loopfleet needs, and set them up",
		newStreamsPlanCommand(a), newStreamsApplyCommand(a))
}

// streamsFlags are the flags of both commands.
type streamsFlags struct {
	replicas     int
	json, dryRun bool
}

func (fl *streamsFlags) add(cmd *cobra.Command) {
	cmd.Flags().IntVar(&fl.replicas, "replicas", 0, "copies of every stream, 1, 3 or 5 (default: as LOOP_EVENTS has now, else 1)")
	cmd.Flags().BoolVar(&fl.json, "json", false, "print JSON")
}

func newStreamsPlanCommand(a *app) *cobra.Command {
	var fl streamsFlags
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Print how the server differs from the definitions; change nothing",
		Long: `Compare the server's streams, buckets and consumers with the definitions, and
print what apply would create (+), update (~) and refuse (!). Nothing is changed,
and a difference is no failure.`,
		Example: `  loopfleet streams plan
  loopfleet streams plan --replicas 3 --nats-url nats://nats.example.com:4222`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.streams(cmd, fl, true) },
	}
	fl.add(cmd)
	return cmd
}

func newStreamsApplyCommand(a *app) *cobra.Command {
	var fl streamsFlags
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Create and update what the server lacks",
		Long: `Create the streams, buckets and consumers that are missing, and update those that
differ. Nothing is ever deleted, and no change is made that could lose messages:
such a difference is refused, with the step to take by hand, and then nothing at
all is changed. It may run twice.`,
		Example: `  loopfleet streams apply --dry-run
  loopfleet streams apply`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.streams(cmd, fl, fl.dryRun) },
	}
	fl.add(cmd)
	cmd.Flags().BoolVar(&fl.dryRun, "dry-run", false, "print what would be done, and do nothing")
	return cmd
}

func (a *app) streams(cmd *cobra.Command, fl streamsFlags, dryRun bool) error {
	if n := fl.replicas; cmd.Flags().Changed("replicas") && n != 1 && n != 3 && n != 5 {
		return usagef(cmd, "--replicas %d: it is 1, 3 or 5", n)
	}
	ctx := cmd.Context()
	f, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	opts := streams.Options{Replicas: fl.replicas}
	var d streams.Diff
	if dryRun {
		d, err = streams.Plan(ctx, f.js, opts)
	} else {
		d, err = streams.Apply(ctx, f.js, opts)
	}
	if err != nil {
		return err
	}
	switch {
	case fl.json:
		return a.printJSON(d)
	case dryRun:
		return a.print(d.String())
	default:
		return a.print(applied(d))
	}
}

// applied tells what Apply did, from what it found before.
func applied(d streams.Diff) string {
	var b strings.Builder
	for _, o := range d.Objects {
		switch o.Action {
		case streams.Create:
			fmt.Fprintf(&b, "created %s %s\n", o.Kind, o.Name)
		case streams.Update:
			fmt.Fprintf(&b, "updated %s %s\n", o.Kind, o.Name)
			for _, f := range o.Fields {
				fmt.Fprintf(&b, "    %s: %s -> %s\n", f.Name, f.Have, f.Want)
			}
		case streams.OK, streams.Refuse:
		}
	}
	fmt.Fprintf(&b, "%d created, %d updated, %d as defined before\n", d.Count(streams.Create), d.Count(streams.Update), d.Count(streams.OK))
	return b.String()
}
