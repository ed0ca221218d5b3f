package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"loopfleet/pkg/queue"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/workitem"
)

// parseItem reads an ITEM argument or flag; what is none is wrong usage.
func parseItem(text string) (workitem.Ref, error) {
	ref, err := workitem.Parse(text)
	if err != nil {
		return ref, &usageError{err: err}
	}
	return ref, nil
}

// errUnknownItem says that nothing is recorded of an item.
var errUnknownItem = errors.New("nothing is known of this item")

// find reads the item that a person means: after a rename the one kept under
// the repository's first name.
func (f *fleet) find(ctx context.Context, reg *registry.Registry, named workitem.Ref) (seen, error) {
	item, err := reg.Resolve(ctx, named)
	if err != nil {
		return seen{}, err
	}
	ws, _, err := loadWorkers(ctx, reg)
	if err != nil {
		return seen{}, err
	}
	entry, err := reg.Get(ctx, item)
	if err != nil {
		return seen{}, err
	}
	if entry.Revision == 0 || entry.Record.State == "" && entry.Record.Owner == "" && entry.Record.Floor == 0 && entry.Record.ControlSeq == 0 {
		return seen{}, f.unknown(ctx, reg, item)
	}
	if rec := &entry.Record; forgotten(rec) {
		return seen{}, &hintError{
			err:  fmt.Errorf("%s: %w any more: it was cleaned up at %s", item, errUnknownItem, rec.ForgottenAt.Local().Format(time.DateTime)),
			hint: "a new label starts it afresh",
		}
	}
	if err := ws.knowing(ctx, reg, holder(&entry.Record)); err != nil {
		return seen{}, err
	}
	return seen{sessionView: view(&entry.Record, ws), rec: entry.Record}, nil
}

// unknown explains why there is no record, and what may have been meant.
func (f *fleet) unknown(ctx context.Context, reg *registry.Registry, item workitem.Ref) error {
	e := &hintError{err: fmt.Errorf("%s: %w", item, errUnknownItem), hint: "`loopfleet sessions list --all` shows every item"}
	if links, err := reg.PRLinks(ctx, item); err == nil && len(links) > 0 {
		e.hint = fmt.Sprintf("it is a pull request that delivers %s: ask for that", list(links))
		return e
	}
	if r, err := queue.NewReader(ctx, f.js); err == nil {
		if last, err := r.LastSeq(ctx, item); err == nil && last > 0 {
			e.hint = "its events wait for a worker: `loopfleet workers list` shows who is there"
			return e
		}
	}
	entries, err := reg.List(ctx)
	if err != nil {
		return e // the answer stands without its hint
	}
	known := make([]workitem.Ref, len(entries))
	for i := range entries {
		known[i] = entries[i].Record.WorkItem
	}
	if near := closest(item, known); len(near) > 0 {
		e.hint = "did you mean " + list(near) + "? `loopfleet sessions list --all` shows every item"
	}
	return e
}

func list(items []workitem.Ref) string {
	names := make([]string, len(items))
	for i, it := range items {
		names[i] = short(it)
	}
	return strings.Join(names, " or ")
}

// closest returns up to three known items that item may be a slip of: another
// number of the same repository, or a name that is almost the same.
func closest(item workitem.Ref, known []workitem.Ref) []workitem.Ref {
	type candidate struct {
		ref  workitem.Ref
		cost int
	}
	const tooFar = 4
	var near []candidate
	for _, k := range known {
		cost := edits(item.Owner+"/"+item.Repo, k.Owner+"/"+k.Repo)
		if item.Host != k.Host {
			cost += 2
		}
		if n := edits(item.Number, k.Number); n > 0 {
			cost += min(n, 2)
		}
		if cost < tooFar {
			near = append(near, candidate{k, cost})
		}
	}
	slices.SortFunc(near, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.cost, b.cost), byItem(a.ref, b.ref)) })
	const most = 3
	var out []workitem.Ref
	for _, c := range near[:min(most, len(near))] {
		out = append(out, c.ref)
	}
	return out
}

// edits counts the insertions, deletions and replacements between two names.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// completeItem offers the items with a session to the shell.
func (a *app) completeItem(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	// A person waits at the prompt.
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer cancel()
	f, err := a.connect(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer f.close()
	reg, err := f.registry(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	sessions, err := loadSessions(ctx, reg)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for i := range sessions {
		if sessions[i].State != "" {
			out = append(out, short(sessions[i].WorkItem))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
