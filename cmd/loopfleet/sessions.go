package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
)

func newSessionsCommand(a *app) *cobra.Command {
	return newGroup("sessions", "See the agents' sessions, look into them, end, pause and retry them",
		newSessionsListCommand(a), newSessionsShowCommand(a), newSessionsPeekCommand(a), newSessionsAttachCommand(a),
		newSessionsCloseCommand(a), newSessionsPauseCommand(a), newSessionsResumeCommand(a), newSessionsRetryCommand(a),
		newSessionsCleanupCommand(a))
}

func newSessionsListCommand(a *app) *cobra.Command {
	var all, asJSON, wideRows bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List work items with their sessions",
		Long: `List every open work item with its session: running, waiting, failed or lost.

States: waiting (reason no-room, no-harness), starting, active (reason
waiting-for-person, no-receipt), paused, sleeping, dead (exit status), lost (the
worker that is gone), failed (last error), closed (issue-closed, pr-merged,
pr-closed, stopped). A session whose worker is gone is lost, whatever its worker
wrote last.

With --json: an array of objects with work_item, state, incarnation, worker,
harness, harness_session_id, tmux_target, tmux_socket, cwd, last_event_at, reason.`,
		Example: `  loopfleet sessions list
  loopfleet sessions list --json | jq -r '.[] | select(.state=="failed").work_item'`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withRegistry(cmd.Context(), func(ctx context.Context, _ *fleet, reg *registry.Registry) error {
				sessions, err := loadSessions(ctx, reg)
				if err != nil {
					return err
				}
				return a.listSessions(sessions, all, asJSON, wideRows)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also items that are closed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&wideRows, "wide", false, "cut nothing to fit the screen")
	return cmd
}

// withRegistry runs fn with a connection and its buckets.
func (a *app) withRegistry(ctx context.Context, fn func(context.Context, *fleet, *registry.Registry) error) error {
	f, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	reg, err := f.registry(ctx)
	if err != nil {
		return err
	}
	return fn(ctx, f, reg)
}

func (a *app) listSessions(sessions []seen, all, asJSON, wideRows bool) error {
	views := []sessionView{} // an empty list is [], never null
	hidden := 0
	for i := range sessions {
		v := &sessions[i].sessionView
		if listed(v, all) {
			views = append(views, *v)
		} else if v.State == record.StateClosed {
			hidden++
		}
	}
	if asJSON {
		return a.printJSON(views)
	}
	if len(views) == 0 {
		if hidden > 0 {
			return a.printf("no open items; %d closed (--all shows them)\n", hidden)
		}
		return a.print("no items yet: they come with the first labelled issue or pull request\n")
	}
	now := time.Now()
	rows := make([][]string, len(views))
	for i := range views {
		v := &views[i]
		last := ""
		if v.LastEventAt != nil {
			last = ago(now, *v.LastEventAt)
		}
		rows[i] = []string{short(v.WorkItem), string(v.State), v.Reason, strconv.Itoa(v.Incarnation), v.Worker, v.Harness, last}
	}
	width := a.width()
	if wideRows {
		width = 0
	}
	return a.table([]column{
		{head: "ITEM", least: 14, rank: 4, keepEnd: true},
		{head: "STATE", paint: paintState},
		{head: "REASON", least: 12, rank: 1},
		{head: "INC", right: true},
		{head: "WORKER", least: 8, rank: 2},
		{head: "HARNESS", least: 7, rank: 3},
		{head: "LAST EVENT"},
	}, rows, width)
}

// paintState colours a state by whether somebody has to look.
func paintState(cell string) string {
	switch record.State(cell) {
	case record.StateActive:
		return green + cell + reset
	case record.StateWaiting, record.StateStarting, record.StatePaused:
		return yellow + cell + reset
	case record.StateDead, record.StateLost, record.StateFailed:
		return red + cell + reset
	case record.StateClosed, record.StateSleeping:
		return dim + cell + reset
	default:
		return cell
	}
}
