package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/status"
)

func newDeliveriesCommand(a *app) *cobra.Command {
	return newGroup("deliveries", "Find out what became of an event", newDeliveriesStatusCommand(a))
}

func newDeliveriesStatusCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status ID",
		Short: "Tell what became of an event or of a delivery",
		Long: `Tell what became of an event: a line per work item that it concerned, which begins
with its status: done, dropped, dead, in-flight or unhandled. ID is an event id,
or the GUID of a delivery as the forge shows it (X-GitHub-Delivery).

The exit status is 0 whatever the answer is.

With --json: an array of objects with event_id, work_item, status, attempts,
reason, last_error, delivery_ids.`,
		Example: `  loopfleet deliveries status 72d3162e-cc78-11e3-81ab-4c9367dc0958
  loopfleet deliveries status comment-mzxw6ytboi3a4qwerty23456`,
		Args: exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withRegistry(cmd.Context(), func(ctx context.Context, f *fleet, reg *registry.Registry) error {
				found, err := status.Find(ctx, status.Deps{Registry: reg, JS: f.js}, args[0])
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(found)
				}
				for i := range found {
					if err := a.print(deliveryLine(&found[i]) + "\n"); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// deliveryLine is a status for people: what they asked for first, what explains
// it next.
func deliveryLine(d *status.Delivery) string {
	parts := []string{string(d.Status)}
	add := func(name, value string) {
		if value == "" {
			return
		}
		if name != "" {
			value = name + "=" + value
		}
		parts = append(parts, value)
	}
	add("", d.WorkItem.String())
	add("reason", d.Reason)
	if d.Attempts > 0 {
		add("attempts", fmt.Sprint(d.Attempts))
	}
	add("event", d.EventID)
	add("deliveries", strings.Join(d.DeliveryIDs, ","))
	add("error", d.LastError)
	return eventlog.Escape(strings.Join(parts, " "))
}
