package ingress

import (
	"context"
	"time"

	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/record"
	"loopfleet/pkg/router"
	"loopfleet/pkg/workitem"
)

// route takes a decoded delivery to the stream.
func (s *Server) route(ctx context.Context, f event.Facts) (Answer, *refusal) {
	// Names that can be no item's are the router's to drop, and not to record.
	if _, err := f.Ref("1"); err == nil {
		f.Repo.KeyOwner, f.Repo.KeyName, err = s.deps.Registry.Canonical(ctx, f.Host, f.Repo.ID, f.Repo.Owner, f.Repo.Name)
		if err != nil {
			return Answer{}, away(err)
		}
	}
	r := router.Route(f, s.soft.Load().routing)
	view, err := s.view(ctx, f.Host, r)
	if err != nil {
		return Answer{}, away(err)
	}
	sel := router.Select(r, view)
	for _, l := range sel.Links {
		if err := s.link(ctx, f.Host, f.DeliveryID, l); err != nil {
			return Answer{}, away(err)
		}
	}
	if len(sel.Events) == 0 {
		return s.dropped(ctx, r, sel.Drop)
	}
	a := Answer{DeliveryID: f.DeliveryID, Outcome: Duplicate, Reason: string(ReasonDuplicate)}
	for _, e := range sel.Events {
		isNew, err := s.publish(ctx, &e)
		if err != nil {
			return Answer{}, away(err)
		}
		if isNew {
			a.Outcome, a.Reason = Routed, ""
		}
		a.Events = append(a.Events, EventAnswer{EventID: e.ID, WorkItem: e.WorkItem, Duplicate: !isNew})
	}
	return a, nil
}

// view looks up what the candidates are recorded as; it asks nothing that
// cannot change the selection.
func (s *Server) view(ctx context.Context, host string, r router.Routing) (router.View, error) {
	v := router.View{Links: map[workitem.Ref][]workitem.Ref{}, Known: map[workitem.Ref]bool{}}
	linked := false // a pull request's recorded links outrank all other candidates
	for _, c := range r.Candidates {
		var err error
		switch c.Source {
		case router.FromLink:
			v.Links[c.Ref], err = s.deps.Registry.PRLinks(ctx, c.Ref)
			linked = len(v.Links[c.Ref]) > 0
		case router.FromCommit:
			v.Commit, err = s.deps.Registry.SHALinks(ctx, host, r.Event.RepoID, c.SHA)
		case router.FromIssue:
			if !r.Event.Labeled {
				v.Known[c.Ref], err = s.known(ctx, c.Ref)
			}
		case router.FromKeyword:
			if !linked {
				v.Known[c.Ref], err = s.known(ctx, c.Ref)
			}
		case router.FromPullRequest:
			if !linked || r.Event.Kind == event.Close {
				v.Known[c.Ref], err = s.known(ctx, c.Ref)
			}
		}
		if err != nil {
			return v, err
		}
	}
	return v, nil
}

// known reports whether the item has a record or anything in its stream.
func (s *Server) known(ctx context.Context, item workitem.Ref) (bool, error) {
	e, err := s.deps.Registry.Get(ctx, item)
	if err != nil || e.Revision != 0 {
		return err == nil, err
	}
	seq, err := s.deps.Stream.LastSeq(ctx, item)
	return seq > 0, err
}

func (s *Server) link(ctx context.Context, host, deliveryID string, l router.Link) error {
	fields := map[string]any{}
	var added bool
	var err error
	if l.SHA != "" {
		fields["sha"] = l.SHA
		added, err = s.deps.Registry.LinkSHA(ctx, host, l.RepoID, l.SHA, l.Item)
	} else {
		fields["pull_request"] = l.PR
		added, err = s.deps.Registry.LinkPR(ctx, l.PR, l.Item)
	}
	if err == nil && added {
		s.deps.Events.Post(eventlog.Entry{Type: event.LinkRecorded, WorkItem: l.Item, Delivery: deliveryID, Fields: fields})
	}
	return err
}

// dropped answers a delivery that brought no event.
func (s *Server) dropped(ctx context.Context, r router.Routing, why router.Reason) (Answer, *refusal) {
	e := entry(&r.Event)
	e.WorkItem = r.About
	var tried []string
	for _, c := range r.Candidates {
		if !c.Ref.Zero() && c.Ref != r.About {
			tried = append(tried, c.Ref.String())
		}
	}
	e.Fields["tried"] = tried
	if err := s.drop(ctx, e, why); err != nil {
		return Answer{}, away(err)
	}
	return Answer{DeliveryID: r.Event.DeliveryID, Outcome: Dropped, Reason: string(why)}, nil
}

// entry is a log entry about the event.
func entry(e *event.Event) eventlog.Entry {
	return eventlog.Entry{WorkItem: e.WorkItem, EventID: e.ID, Delivery: e.DeliveryID, Fields: map[string]any{
		logkey.EventName: e.Name, logkey.Action: e.Action, logkey.Actor: e.Actor.Login, "kind": string(e.Kind),
	}}
}

// sureOf is how old an event may be for the stream alone to know whether it is
// there already. The stream remembers ids for an hour; the rest of it is left to
// clocks that differ.
const sureOf = 30 * time.Minute

// publish stores the event in the first generation that was not given up; isNew
// is false when it is there already. The generation rises only when the one
// before is dead and its outcome names this very delivery: that is somebody
// pressing Redeliver.
//
// Outcomes are read first, unless the event is so young that the stream would
// know it: then only when it does, which saves most deliveries a request.
func (s *Server) publish(ctx context.Context, e *event.Event) (isNew bool, err error) {
	// The events of one commit share an id, so their time says nothing.
	young := e.Kind != event.CI && s.now().Sub(e.At) < sureOf
	for ; ; e.Generation++ {
		if !young {
			o, ended, err := s.deps.Registry.Outcome(ctx, e.WorkItem, e.ID, e.Generation)
			switch {
			case err != nil:
				return false, err
			case ended && again(o, e):
				continue
			case ended:
				return false, s.duplicate(ctx, e, string(o.Kind))
			}
		}
		receipt, err := s.deps.Publisher.Publish(ctx, *e)
		if err != nil {
			return false, err
		}
		if !receipt.Duplicate {
			s.routed(e, receipt.Seq)
			return true, nil
		}
		o, ended, err := s.outcome(ctx, e)
		switch {
		case err != nil:
			return false, err
		case !ended:
			return false, s.duplicate(ctx, e, "")
		case !again(o, e):
			return false, s.duplicate(ctx, e, string(o.Kind))
		}
		young = false
	}
}

// outcome reads how the event's generation ended, be it in the item's record
// only: it may have ended a moment ago.
func (s *Server) outcome(ctx context.Context, e *event.Event) (o record.Outcome, ended bool, err error) {
	o, ended, err = s.deps.Registry.Outcome(ctx, e.WorkItem, e.ID, e.Generation)
	if err != nil || ended {
		return o, ended, err
	}
	rec, err := s.deps.Registry.Get(ctx, e.WorkItem)
	if err != nil {
		return o, false, err
	}
	o, ended = rec.Record.Outcome(e.ID, e.Generation)
	return o, ended, nil
}

func (s *Server) routed(e *event.Event, seq uint64) {
	s.counters.published.Add(1)
	l := entry(e)
	l.Type, l.Fields[logkey.Seq] = event.RoutingRouted, seq
	if e.Generation > 0 {
		l.Fields["generation"] = e.Generation
	}
	if !e.Via.Zero() {
		l.Fields["via"] = e.Via
	}
	s.deps.Events.Post(l)
}

// again reports whether the event of this delivery is to be tried once more.
func again(o record.Outcome, e *event.Event) bool {
	return o.Kind == record.Dead && o.Delivery != "" && o.Delivery == e.DeliveryID
}

// duplicate logs an event that is stored, or ended as outcome says, already.
func (s *Server) duplicate(ctx context.Context, e *event.Event, outcome string) error {
	l := entry(e)
	l.Fields["outcome"] = outcome
	if err := s.drop(ctx, l, ReasonDuplicate); err != nil {
		return err
	}
	s.counters.duplicates.Add(1)
	return nil
}
