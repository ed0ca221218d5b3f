package forge

import (
	"context"
	"fmt"
	"time"

	"loopfleet/pkg/workitem"
)

// Poster tells tickets things. Its methods may be called concurrently; each ends
// with its context.
type Poster interface {
	// Post adds a comment to an issue or pull request and returns its address.
	// It adds event.Marker on a line of its own, unless the text has it. After
	// an error it is open whether the comment is there: ask Posted.
	Post(ctx context.Context, item workitem.Ref, body string) (url string, err error)
	// Posted reports whether the ticket has a comment, written or changed since
	// the given time, that carries the marker on a line of its own.
	Posted(ctx context.Context, item workitem.Ref, marker string, since time.Time) (bool, error)
}

// Cause is why a forge refuses for good.
type Cause string

// Causes.
const (
	// Forbidden: the token may not do that, or the ticket is locked.
	Forbidden Cause = "no-permission"
	// Foreign: the ticket is not on this forge.
	Foreign Cause = "foreign"
	// Gone: the ticket or its repository is gone, or hidden from the token.
	Gone Cause = "gone"
	// Refused: the forge does not take what was sent.
	Refused Cause = "refused"
)

// PermanentError is a refusal that does not go away by itself.
type PermanentError struct {
	Cause Cause
	Err   error
}

// Error is the cause's text.
func (e *PermanentError) Error() string { return e.Err.Error() }

// Unwrap returns what the forge said.
func (e *PermanentError) Unwrap() error { return e.Err }

// Hint says what a person can do.
func (e *PermanentError) Hint() string {
	switch e.Cause {
	case Forbidden:
		return "give the token write access to issues and pull requests of the repository, or unlock the ticket"
	case Foreign:
		return "the ticket is not on the forge that github.apiUrl leads to"
	case Gone:
		return "the ticket or its repository was deleted or moved, or the token cannot see it"
	case Refused:
		return "the forge does not accept the comment; please report this with the error"
	default:
		return ""
	}
}

// RateLimitError says that the forge wants to be left alone for a while.
type RateLimitError struct {
	// RetryAfter is how long from now; it may be zero or negative.
	RetryAfter time.Duration
	Err        error
}

// Error says until when.
func (e *RateLimitError) Error() string {
	return fmt.Sprintf("%v (rate limited: again in %s)", e.Err, e.RetryAfter.Round(time.Second))
}

// Unwrap returns what the forge said.
func (e *RateLimitError) Unwrap() error { return e.Err }

// CredentialsError says that the forge does not know the token: it is wrong, or
// has expired. It may be replaced while we run, so it is worth trying again.
type CredentialsError struct{ Err error }

// Error is the cause's text.
func (e *CredentialsError) Error() string { return e.Err.Error() }

// Unwrap returns what the forge said.
func (e *CredentialsError) Unwrap() error { return e.Err }

// Hint says what a person can do.
func (e *CredentialsError) Hint() string {
	return "the token is wrong or has expired: put a new one into github.tokenFile, or into the variable that github.tokenEnv names and start again"
}
