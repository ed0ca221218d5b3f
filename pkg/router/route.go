package router

import (
	"strconv"
	"strings"
	"time"

	"loopfleet/pkg/config"
	"loopfleet/pkg/event"
	"loopfleet/pkg/workitem"
)

// CandidateSource is why a work item may be concerned.
type CandidateSource string

// Candidate sources. The caller looks each up as it says.
const (
	// FromIssue is the issue itself: is it known?
	FromIssue CandidateSource = "issue"
	// FromLink stands for the items recorded for the pull request in Ref: which
	// are they?
	FromLink CandidateSource = "link"
	// FromKeyword is an item that the pull request's text closes: is it known?
	FromKeyword CandidateSource = "keyword"
	// FromPullRequest is the pull request itself: is it known?
	FromPullRequest CandidateSource = "pull-request"
	// FromCommit stands for the items recorded for the commit in SHA: which
	// are they?
	FromCommit CandidateSource = "commit"
)

// Candidate is a work item that may be concerned, or where to look one up.
type Candidate struct {
	Source CandidateSource
	// Ref is the item; zero for FromCommit.
	Ref workitem.Ref
	// SHA is set for FromCommit only.
	SHA string
}

// Routing is what the facts alone say.
type Routing struct {
	// Drop is why nothing is published; empty when something may be. A dropped
	// event with candidates still binds: pass it to Select.
	Drop Reason
	// Event is the event without its work item. Of a dropped one only what is
	// worth logging is set.
	Event event.Event
	// About is the issue or pull request it happened on; zero for CI and ping.
	About workitem.Ref
	// Candidates are in order of authority. The caller looks them up for View.
	Candidates []Candidate

	pull    bool   // it happened on a pull request
	labeled bool   // About carries the routing label
	sha     string // the head to record, when it is the repository's own
}

// Route judges the facts. It never fails: what cannot be used is dropped.
func Route(f event.Facts, cfg config.Routing) Routing {
	r := Routing{Event: event.Event{
		Name: f.Name, Action: f.Action, Source: f.Source, DeliveryID: f.DeliveryID, RepoID: f.Repo.ID, Actor: f.Sender,
	}}
	kind, drop := classify(&f, cfg)
	r.Event.Kind = kind
	if f.Check != nil {
		r.check(&f, drop)
	} else if f.Item != nil {
		r.item(&f, cfg, drop)
	} else {
		r.Drop = drop
	}
	r.Event.Bound()
	return r
}

// classify says what kind of event the facts are, or why they are none.
func classify(f *event.Facts, cfg config.Routing) (event.Kind, Reason) {
	switch f.Name {
	case "issues", "pull_request":
		if f.Item != nil {
			return lifecycle(f, cfg)
		}
	case "issue_comment":
		if f.Item != nil && f.Post != nil {
			return posted(f.Action, "created", event.Comment)
		}
	case "pull_request_review":
		if f.Item != nil && f.Post != nil {
			return posted(f.Action, "submitted", event.Review)
		}
	case "pull_request_review_comment":
		if f.Item != nil && f.Post != nil {
			return posted(f.Action, "created", event.ReviewComment)
		}
	case "workflow_run", "check_run", "check_suite":
		switch {
		case f.Check == nil:
		case f.Action != "completed":
			return "", ActionIgnored
		default:
			return checked(f.Check.Conclusion)
		}
	case "status":
		if f.Check != nil {
			return checked(f.Check.Conclusion)
		}
	case "ping":
		return "", Ping
	}
	return "", UnknownEvent
}

func lifecycle(f *event.Facts, cfg config.Routing) (event.Kind, Reason) {
	switch f.Action {
	case "labeled":
		if !strings.EqualFold(f.Label, cfg.Label) {
			return "", OtherLabel
		}
		return event.Label, ""
	case "opened":
		if !f.Item.Labeled(cfg.Label) {
			return "", ActionIgnored
		}
		return event.Label, ""
	case "reopened":
		return event.Reopen, ""
	case "closed":
		return event.Close, ""
	case "edited":
		return "", Edited
	default:
		return "", ActionIgnored
	}
}

func posted(action, made string, kind event.Kind) (event.Kind, Reason) {
	switch action {
	case made:
		return kind, ""
	case "edited":
		return "", Edited
	case "deleted":
		return "", Deleted
	default:
		return "", ActionIgnored
	}
}

// checked knows the conclusions that an agent can do something about: a run
// that a person cancelled or must approve is none.
func checked(conclusion string) (event.Kind, Reason) {
	switch conclusion {
	case "failure", "timed_out", "startup_failure", "error":
		return event.CI, ""
	default:
		return "", NotAFailure
	}
}

// item fills in what happened on an issue or pull request.
func (r *Routing) item(f *event.Facts, cfg config.Routing, drop Reason) {
	it := f.Item
	about, err := f.Ref(strconv.FormatInt(it.Number, 10))
	if err != nil {
		r.Drop = InvalidItem
		return
	}
	r.About, r.pull, r.labeled = about, it.PullRequest, it.Labeled(cfg.Label)
	r.Drop = drop
	if drop == "" && f.Post != nil && selfAuthored(f.Post.Body) {
		r.Drop = SelfAuthored
	}
	if r.Drop == "" {
		r.Event.Actor, r.Drop = judge(f, r.Event.Kind, cfg)
	}
	if r.Drop == "" {
		r.describe(f)
	}
	switch {
	case !r.pull && r.Drop == "":
		r.Candidates = []Candidate{{Source: FromIssue, Ref: about}}
	case r.pull && (r.Drop == "" || binds(f, cfg)):
		r.Candidates = append(r.Candidates, Candidate{Source: FromLink, Ref: about})
		for _, ref := range closing(f, about) {
			r.Candidates = append(r.Candidates, Candidate{Source: FromKeyword, Ref: ref})
		}
		r.Candidates = append(r.Candidates, Candidate{Source: FromPullRequest, Ref: about})
	}
	if it.Head == event.HeadOwn {
		r.sha = it.HeadSHA
	}
}

// binds says whether a dropped event of a pull request may still record what
// the pull request delivers. Its text is a claim: it is believed from whoever
// can push to the repository, is on the list, or is one of our agents.
func binds(f *event.Facts, cfg config.Routing) bool {
	if f.Name != "pull_request" || f.Action == "closed" {
		return false
	}
	return f.Item.Head == event.HeadOwn || listed(cfg.AuthorizedUsers, f.Sender) || listed(cfg.AgentLogins, f.Sender)
}

// describe fills in the event of an item. Lifecycle events are identified by
// the item's number, which webhook and listing share, and the forge's time of
// the transition; posts by their own id.
func (r *Routing) describe(f *event.Facts) {
	e, it := &r.Event, f.Item
	e.Title, e.URL, e.Labeled = it.Title, it.URL, r.labeled
	object := strconv.FormatInt(it.Number, 10)
	var action string
	var at time.Time
	switch e.Kind {
	case event.Label:
		// GitHub announces a label given at creation twice: as opened and as
		// labeled. Both are one when no second has passed.
		action, at = "labeled", it.UpdatedAt
		if f.Action == "opened" {
			at = it.CreatedAt
		}
		e.Labeled = true
	case event.Reopen:
		action, at = "reopened", it.UpdatedAt
	case event.Close:
		action, at = "closed", it.ClosedAt
		e.Reason = closeReason(it)
	default:
		p := f.Post
		e.ID = event.NewID(e.Kind, f.Host, f.Repo.ID, strconv.FormatInt(p.ID, 10), "", time.Time{})
		e.At, e.Body, e.ReviewState, e.Path, e.Line = p.CreatedAt, lines(p.Body), p.ReviewState, p.Path, p.Line
		if p.URL != "" {
			e.URL = p.URL
		}
		return
	}
	if at.IsZero() {
		at = it.UpdatedAt
	}
	if e.Kind.Arming() {
		e.Body = lines(it.Body)
	}
	e.At = at
	e.ID = event.NewID(e.Kind, f.Host, f.Repo.ID, object, action, at)
}

func closeReason(it *event.Item) string {
	switch {
	case !it.PullRequest:
		return event.IssueClosed
	case it.Merged:
		return event.PRMerged
	default:
		return event.PRClosed
	}
}

// lines ends every line with LF alone, as the forge's own page does.
func lines(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }

// check fills in what CI says. All failures of one commit are one event.
func (r *Routing) check(f *event.Facts, drop Reason) {
	c, e := f.Check, &r.Event
	e.Actor = event.Actor{}
	e.SHA, e.At = c.SHA, c.At
	if r.Drop = drop; drop != "" {
		return
	}
	if c.Head == event.HeadFork {
		r.Drop = ForkHead
		return
	}
	// The numbers are of this repository, so any of them says if its names do.
	if _, err := f.Ref("1"); err != nil {
		r.Drop = InvalidItem
		return
	}
	e.ID = event.NewID(event.CI, f.Host, f.Repo.ID, c.SHA, "", time.Time{})
	e.Title, e.Body, e.URL = c.Title, lines(c.Summary), c.URL
	if c.Name != "" {
		e.Checks = []string{c.Name}
	}
	var skipped Reason
	for _, p := range c.PullRequests {
		switch ref, err := f.Ref(strconv.FormatInt(p.Number, 10)); {
		case p.Head != event.HeadOwn:
			skipped = ForkHead
		case p.HeadSHA != "" && p.HeadSHA != c.SHA:
			skipped = StaleHead
		case err == nil:
			r.sha = c.SHA
			r.Candidates = append(r.Candidates, Candidate{Source: FromLink, Ref: ref}, Candidate{Source: FromPullRequest, Ref: ref})
		}
	}
	if len(r.Candidates) == 0 && skipped != "" {
		r.Drop = skipped
		return
	}
	r.Candidates = append(r.Candidates, Candidate{Source: FromCommit, SHA: c.SHA})
}
