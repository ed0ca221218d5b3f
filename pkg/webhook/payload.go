package webhook

import (
	"strings"
	"time"

	"loopfleet/pkg/event"
)

// The shapes hold only what routing needs. Null and absence leave zero values.

type envelope struct {
	Action     string     `json:"action"`
	Repository repository `json:"repository"`
	Sender     account    `json:"sender"`
}

func (e *envelope) common() *envelope { return e }

type repository struct {
	ID       int64  `json:"id"`
	FullName string `json:"full_name"`
	HTMLURL  string `json:"html_url"`
}

func (r repository) split() (owner, name string, ok bool) {
	owner, name, ok = strings.Cut(r.FullName, "/")
	return owner, name, ok && owner != "" && name != ""
}

// account is the zero value for a deleted one, which GitHub sends as null.
type account struct {
	Login string `json:"login"`
	ID    int64  `json:"id"`
	Type  string `json:"type"`
}

func (a account) actor() event.Actor {
	return event.Actor{Login: a.Login, ID: a.ID, Bot: a.Type == "Bot" || strings.HasSuffix(a.Login, "[bot]")}
}

type label struct {
	Name string `json:"name"`
}

// moment reads RFC 3339. GitHub's own examples hold a few times in other
// forms: those count as absent, as none of them is needed.
type moment struct{ at time.Time }

// UnmarshalJSON never fails: the decoder has checked the syntax.
func (m *moment) UnmarshalJSON(b []byte) error {
	m.at = time.Time{}
	if t, err := time.Parse(`"`+time.RFC3339+`"`, string(b)); err == nil {
		m.at = t.UTC()
	}
	return nil
}

// issue is an issue or, where the event says so, a pull request as one.
type issue struct {
	Number    int64   `json:"number"`
	Title     string  `json:"title"`
	Body      string  `json:"body"`
	HTMLURL   string  `json:"html_url"`
	User      account `json:"user"`
	Labels    []label `json:"labels"`
	CreatedAt moment  `json:"created_at"`
	UpdatedAt moment  `json:"updated_at"`
	ClosedAt  moment  `json:"closed_at"`
	// PullRequest is there when the issue is a pull request.
	PullRequest *struct {
		MergedAt moment `json:"merged_at"`
	} `json:"pull_request"`
}

func (i *issue) item() *event.Item {
	it := &event.Item{
		Number: i.Number, Title: i.Title, Body: i.Body, URL: i.HTMLURL, Author: i.User.actor(),
		CreatedAt: i.CreatedAt.at, UpdatedAt: i.UpdatedAt.at, ClosedAt: i.ClosedAt.at,
	}
	for _, l := range i.Labels {
		it.Labels = append(it.Labels, l.Name)
	}
	if i.PullRequest != nil {
		it.PullRequest = true
		it.Merged = !i.PullRequest.MergedAt.at.IsZero()
	}
	return it
}

type pull struct {
	issue
	Merged   bool   `json:"merged"`
	MergedAt moment `json:"merged_at"`
	Head     branch `json:"head"`
	Base     branch `json:"base"`
}

type branch struct {
	SHA string `json:"sha"`
	// Repo is null when a fork was deleted.
	Repo *struct {
		ID int64 `json:"id"`
	} `json:"repo"`
}

// of says whether the branch is in the repository with this id. Doubt is a
// fork: deleted forks have no repository.
func (b branch) of(repoID int64) event.Head {
	if b.Repo != nil && b.Repo.ID == repoID {
		return event.HeadOwn
	}
	return event.HeadFork
}

func (p *pull) item(repoID int64) *event.Item {
	it := p.issue.item()
	it.PullRequest = true
	it.Merged = p.Merged || !p.MergedAt.at.IsZero()
	it.HeadSHA = p.Head.SHA
	it.Head = p.Head.of(repoID)
	return it
}

type issuesEvent struct {
	envelope
	Issue issue `json:"issue"`
	Label label `json:"label"`
}

func (e *issuesEvent) page() string { return e.Issue.HTMLURL }

func (e *issuesEvent) facts(f *event.Facts) {
	f.Item, f.Label = e.Issue.item(), e.Label.Name
}

type comment struct {
	ID           int64   `json:"id"`
	User         account `json:"user"`
	Body         string  `json:"body"`
	HTMLURL      string  `json:"html_url"`
	CreatedAt    moment  `json:"created_at"`
	SubmittedAt  moment  `json:"submitted_at"`
	State        string  `json:"state"`
	Path         string  `json:"path"`
	Line         int     `json:"line"`
	OriginalLine int     `json:"original_line"`
}

func (c *comment) post() *event.Post {
	p := &event.Post{
		ID: c.ID, Author: c.User.actor(), Body: c.Body, URL: c.HTMLURL, CreatedAt: c.CreatedAt.at,
		ReviewState: strings.ToLower(c.State), Path: c.Path, Line: c.Line,
	}
	if p.CreatedAt.IsZero() {
		p.CreatedAt = c.SubmittedAt.at
	}
	if p.Line == 0 {
		p.Line = c.OriginalLine
	}
	return p
}

type issueCommentEvent struct {
	envelope
	Issue   issue   `json:"issue"`
	Comment comment `json:"comment"`
}

func (e *issueCommentEvent) page() string { return e.Issue.HTMLURL }

func (e *issueCommentEvent) facts(f *event.Facts) {
	f.Item, f.Post = e.Issue.item(), e.Comment.post()
}

type pullRequestEvent struct {
	envelope
	PullRequest pull  `json:"pull_request"`
	Label       label `json:"label"`
}

func (e *pullRequestEvent) page() string { return e.PullRequest.HTMLURL }

func (e *pullRequestEvent) facts(f *event.Facts) {
	f.Item, f.Label = e.PullRequest.item(f.Repo.ID), e.Label.Name
}

type reviewEvent struct {
	envelope
	PullRequest pull    `json:"pull_request"`
	Review      comment `json:"review"`
}

func (e *reviewEvent) page() string { return e.PullRequest.HTMLURL }

func (e *reviewEvent) facts(f *event.Facts) {
	f.Item, f.Post = e.PullRequest.item(f.Repo.ID), e.Review.post()
}

type reviewCommentEvent struct {
	envelope
	PullRequest pull    `json:"pull_request"`
	Comment     comment `json:"comment"`
}

func (e *reviewCommentEvent) page() string { return e.PullRequest.HTMLURL }

func (e *reviewCommentEvent) facts(f *event.Facts) {
	f.Item, f.Post = e.PullRequest.item(f.Repo.ID), e.Comment.post()
}
