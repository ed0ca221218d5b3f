package event

import (
	"strings"
	"time"

	"loopfleet/pkg/workitem"
)

// Facts is what a forge said happened, before anybody judged it: the same from
// a webhook and from a listing, so that one router judges both. Texts are
// neither cut nor escaped yet. Everything a forge may leave out is the zero
// value here.
type Facts struct {
	// Name and Action are the forge's own words: issue_comment, created.
	Name   string
	Action string
	Source Source
	// DeliveryID is the transport's id, where there is one.
	DeliveryID string

	Provider string
	// Host is the forge's host, as a workitem.Ref carries it.
	Host string
	Repo Repository
	// Sender is who acted.
	Sender Actor

	// Item is the issue or pull request; nil for CI and ping.
	Item *Item
	// Label is the label that was added or removed.
	Label string
	// Post is the comment, review or review comment.
	Post *Post
	// Check is what CI said.
	Check *Check
}

// Repository is where it happened.
type Repository struct {
	// ID is the forge's number, which survives a rename.
	ID int64
	// Owner and Name are what the forge calls it now.
	Owner, Name string
	// KeyOwner and KeyName are what it was called when it was first seen, and
	// what work items are named by; empty means the same as Owner and Name.
	KeyOwner, KeyName string
}

// Is reports whether owner/name is one of the repository's names.
func (r Repository) Is(owner, name string) bool {
	return strings.EqualFold(owner, r.Owner) && strings.EqualFold(name, r.Name) ||
		r.KeyName != "" && strings.EqualFold(owner, r.KeyOwner) && strings.EqualFold(name, r.KeyName)
}

// Ref names the repository's item with this number. An error wraps
// workitem.ErrInvalid.
func (f *Facts) Ref(number string) (workitem.Ref, error) {
	owner, name := f.Repo.Owner, f.Repo.Name
	if f.Repo.KeyName != "" {
		owner, name = f.Repo.KeyOwner, f.Repo.KeyName
	}
	return workitem.New(f.Provider, f.Host, owner, name, number)
}

// Item is an issue or a pull request.
type Item struct {
	Number int64
	// PullRequest says that it is a pull request, under whatever name it came.
	PullRequest bool
	Title       string
	Body        string
	URL         string
	Author      Actor
	Labels      []string
	CreatedAt   time.Time
	UpdatedAt   time.Time
	ClosedAt    time.Time

	// Merged, HeadSHA and Head are a pull request's. Only events of its own
	// carry them: a comment on one does not.
	Merged  bool
	HeadSHA string
	Head    Head
}

// Labeled reports whether the item carries the label, compared
// case-insensitively.
func (i *Item) Labeled(label string) bool {
	for _, l := range i.Labels {
		if strings.EqualFold(l, label) {
			return true
		}
	}
	return false
}

// Head says whose repository a commit was pushed to.
type Head int

// Heads. What is not known is not trusted.
const (
	HeadUnknown Head = iota
	// HeadOwn: the repository the event happened in.
	HeadOwn
	// HeadFork: another one, or one that was deleted.
	HeadFork
)

// Post is a comment, a review or a comment in a review.
type Post struct {
	ID int64
	// Author is the zero Actor for a deleted account.
	Author    Actor
	Body      string
	URL       string
	CreatedAt time.Time
	// ReviewState is approved, changes_requested, commented, ...
	ReviewState string
	// Path and Line place a comment in a review; Line is 0 when outdated.
	Path string
	Line int
}

// Check is what CI said about a commit.
type Check struct {
	// Name is what failed: the check, workflow, app or status context.
	Name string
	// Conclusion is the forge's word: failure, timed_out, error, ...
	Conclusion string
	SHA        string
	Title      string
	Summary    string
	URL        string
	At         time.Time
	Head       Head
	// PullRequests are those of the event's own repository that the forge
	// names. It names none for forks.
	PullRequests []CheckedPull
}

// CheckedPull is a pull request that CI says it judged.
type CheckedPull struct {
	Number int64
	// HeadSHA is its head now, which may have moved on.
	HeadSHA string
	Head    Head
}
