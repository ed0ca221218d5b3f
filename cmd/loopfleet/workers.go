package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
)

func newWorkersCommand(a *app) *cobra.Command {
	return newGroup("workers", "See who hosts the sessions", newWorkersListCommand(a))
}

// workerView is one worker in the JSON of `workers list`.
type workerView struct {
	ID    string      `json:"id"`
	State workerState `json:"state"`
	// Until is when a restarting worker is given up; null otherwise.
	Until *time.Time `json:"until"`
	// Sessions counts the sessions it hosts, by the registry.
	Sessions  int       `json:"sessions"`
	Capacity  int       `json:"capacity"`
	Harnesses []string  `json:"harnesses"`
	Host      string    `json:"host"`
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	Lease     bool      `json:"lease"`
	UpdatedAt time.Time `json:"updated_at"`
}

// workersView is the JSON of `workers list`.
type workersView struct {
	Workers []workerView `json:"workers"`
	// WaitingItems is how many items wait for room: the signal to scale on.
	WaitingItems int `json:"waiting_items"`
}

func newWorkersListCommand(a *app) *cobra.Command {
	var asJSON, wideRows bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the workers, their room, and how many items wait",
		Long: `List every worker that has ever described itself.

States: running, draining, restarting (until when its items are left alone),
stopped, lost (its lease is gone and it did not say that it stops).

"waiting items" is how many items wait for a worker with room: scale on it.`,
		Example: `  loopfleet workers list
  loopfleet workers list --json | jq .waiting_items`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withRegistry(cmd.Context(), func(ctx context.Context, _ *fleet, reg *registry.Registry) error {
				v, err := loadWorkersView(ctx, reg)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(v)
				}
				return a.listWorkers(v, wideRows)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&wideRows, "wide", false, "cut nothing to fit the screen")
	return cmd
}

func loadWorkersView(ctx context.Context, reg *registry.Registry) (workersView, error) {
	ws, list, err := loadWorkers(ctx, reg)
	if err != nil {
		return workersView{}, err
	}
	entries, err := reg.List(ctx)
	if err != nil {
		return workersView{}, err
	}
	out := workersView{Workers: []workerView{}}
	hosts := map[string]int{}
	for i := range entries {
		rec := &entries[i].Record
		switch s := rec.State; {
		case s == record.StateWaiting:
			out.WaitingItems++
		case rec.Session != nil && running(s):
			hosts[rec.Session.Host]++
		}
	}
	for i := range list {
		w := &list[i]
		v := workerView{
			ID: w.ID, State: ws.state(w.ID), Sessions: hosts[w.ID], Capacity: w.Capacity,
			Harnesses: append([]string{}, w.Harnesses...), Host: w.Host, PID: w.PID, Version: w.Version,
			Lease: ws.alive[w.ID], UpdatedAt: w.UpdatedAt.UTC(),
		}
		if v.State == workerState(registry.WorkerRestarting) {
			until := w.Until.UTC()
			v.Until = &until
		}
		out.Workers = append(out.Workers, v)
	}
	slices.SortFunc(out.Workers, func(a, b workerView) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

func (a *app) listWorkers(v workersView, wideRows bool) error {
	rows := make([][]string, len(v.Workers))
	for i := range v.Workers {
		w := &v.Workers[i]
		state := string(w.State)
		if w.Until != nil {
			state += " until " + w.Until.Local().Format(time.TimeOnly)
		}
		lease := "held"
		if !w.Lease {
			lease = "none"
		}
		rows[i] = []string{
			w.ID, state, fmt.Sprintf("%d/%d", w.Sessions, w.Capacity),
			strings.Join(w.Harnesses, ","), w.Host, w.Version, lease,
		}
	}
	width := a.width()
	if wideRows {
		width = 0
	}
	if len(rows) == 0 {
		if err := a.print("no workers yet: start `loopfleet up` or a worker\n"); err != nil {
			return err
		}
	} else if err := a.table([]column{
		{head: "ID", least: 12, rank: 4},
		{head: "STATE", paint: paintWorker},
		{head: "SESSIONS", right: true},
		{head: "HARNESSES", least: 9, rank: 3},
		{head: "HOST", least: 8, rank: 2},
		{head: "VERSION", least: 7, rank: 1},
		{head: "LEASE"},
	}, rows, width); err != nil {
		return err
	}
	return a.printf("waiting items: %d\n", v.WaitingItems)
}

func paintWorker(cell string) string {
	switch {
	case cell == string(registry.WorkerRunning):
		return green + cell + reset
	case cell == string(workerLost):
		return red + cell + reset
	case cell == string(registry.WorkerStopped):
		return dim + cell + reset
	default:
		return yellow + cell + reset
	}
}
