package router

import (
	"slices"

	"loopfleet/pkg/event"
	"loopfleet/pkg/workitem"
)

// View is what is recorded about a Routing's candidates.
type View struct {
	// Links are the items recorded for each pull request of a FromLink
	// candidate.
	Links map[workitem.Ref][]workitem.Ref
	// Commit are the items recorded for the commit of a FromCommit candidate.
	Commit []workitem.Ref
	// Known says of each other candidate whether it has a record or anything in
	// its stream.
	Known map[workitem.Ref]bool
}

// Link is a binding to record. Recording one twice changes nothing.
type Link struct {
	// PR is the pull request that delivers the item; zero when SHA is set.
	PR workitem.Ref
	// SHA is the commit that belongs to the item, in the repository RepoID.
	SHA    string
	RepoID int64
	Item   workitem.Ref
}

// Selection is the outcome.
type Selection struct {
	// Drop is why there are no events.
	Drop Reason
	// Events are to be published, each to its work item.
	Events []event.Event
	// Links are to be recorded, before the events are published: a crash in
	// between then repeats both.
	Links []Link
}

// Select makes the events of a Routing, one for each work item that is
// concerned, and the links to record, which may come without an event.
func Select(r Routing, v View) Selection {
	switch {
	case r.Event.Kind == event.Close && r.pull && r.Drop == "":
		return r.closePull(v)
	case r.Drop != "":
		return Selection{Drop: r.Drop, Links: r.links(r.bound(v), v)}
	}
	items, drop := r.resolve(v)
	if len(items) == 0 {
		return Selection{Drop: drop}
	}
	return Selection{Events: r.events(items), Links: r.links(items, v)}
}

// resolve lists the work items that an event goes to.
func (r *Routing) resolve(v View) (items []workitem.Ref, drop Reason) {
	if r.Event.Kind == event.CI {
		return r.resolveCheck(v)
	}
	if r.pull {
		items = r.bound(v)
	}
	if len(items) == 0 && (r.labeled || r.Event.Kind == event.Label || v.Known[r.About]) {
		items = []workitem.Ref{r.About}
	}
	return items, NotArmed
}

// bound lists the items that a pull request is bound to, or would be now: the
// recorded ones, else the known ones that its text closes, else itself if known.
func (r *Routing) bound(v View) []workitem.Ref {
	if !r.pull {
		return nil
	}
	var items []workitem.Ref
	for _, c := range r.Candidates {
		switch c.Source {
		case FromLink:
			if links := v.Links[c.Ref]; len(links) > 0 {
				return unique(links)
			}
		case FromKeyword:
			if v.Known[c.Ref] {
				items = append(items, c.Ref)
			}
		case FromPullRequest:
			if len(items) == 0 && v.Known[c.Ref] {
				items = append(items, c.Ref)
			}
		case FromIssue, FromCommit:
		}
	}
	return items
}

func (r *Routing) resolveCheck(v View) (items []workitem.Ref, drop Reason) {
	drop = UnresolvedHead
	for _, c := range r.Candidates {
		switch c.Source {
		case FromLink:
			items = append(items, v.Links[c.Ref]...)
		case FromPullRequest:
			if drop = NotArmed; len(v.Links[c.Ref]) == 0 && v.Known[c.Ref] {
				items = append(items, c.Ref)
			}
		case FromCommit:
			if len(items) == 0 {
				items = v.Commit
			}
		case FromIssue, FromKeyword:
		}
	}
	return unique(items), drop
}

// closePull ends only a session of the pull request's own.
func (r *Routing) closePull(v View) Selection {
	self := []workitem.Ref{r.About}
	items := r.bound(v)
	switch {
	case v.Known[r.About] || slices.Contains(items, r.About):
		return Selection{Events: r.events(self)}
	case len(items) > 0:
		return Selection{Drop: LinkedPRClosed}
	case r.labeled:
		return Selection{Events: r.events(self)}
	default:
		return Selection{Drop: NotArmed}
	}
}

func (r *Routing) events(items []workitem.Ref) []event.Event {
	out := make([]event.Event, 0, len(items))
	via := r.via()
	for _, item := range items {
		e := r.Event
		e.Checks = slices.Clone(e.Checks)
		e.WorkItem = item
		if item != via && !via.Zero() {
			// The label that was seen is the pull request's.
			e.Via, e.Labeled = via, e.Kind == event.Label
		}
		out = append(out, e)
	}
	return out
}

// via is the pull request it happened on, if there is just one.
func (r *Routing) via() workitem.Ref {
	if r.pull {
		return r.About
	}
	var via workitem.Ref
	for _, c := range r.Candidates {
		if c.Source != FromPullRequest {
			continue
		}
		if !via.Zero() {
			return workitem.Ref{}
		}
		via = c.Ref
	}
	return via
}

// links lists what is to be recorded and is not yet.
func (r *Routing) links(items []workitem.Ref, v View) []Link {
	var out []Link
	for _, item := range items {
		if r.pull && !slices.Contains(v.Links[r.About], item) {
			out = append(out, Link{PR: r.About, Item: item})
		}
		if r.sha != "" && !slices.Contains(v.Commit, item) {
			out = append(out, Link{SHA: r.sha, RepoID: r.Event.RepoID, Item: item})
		}
	}
	return out
}

// unique drops repetitions and keeps the order. The argument stays as it is.
func unique(refs []workitem.Ref) []workitem.Ref {
	var out []workitem.Ref
	for _, r := range refs {
		if !r.Zero() && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}
