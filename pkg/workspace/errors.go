package workspace

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrInvalid means that what was asked for can never be: a bad branch name,
	// an address that is not taken. Trying again does not help.
	ErrInvalid = errors.New("invalid")
	// ErrEmpty means that the repository has no commit yet.
	ErrEmpty = errors.New("the repository has no commits yet: push one")
	// ErrNotOurs means a directory that this Manager has not made.
	ErrNotOurs = errors.New("not a checkout of this workspace")
	// ErrBroken means a checkout whose files are there and whose repository is
	// not. It may hold work, so it is left alone.
	ErrBroken = errors.New("git cannot read the checkout: save what you need of it and move it away")
	// ErrStalled means that git said nothing for too long.
	ErrStalled = errors.New("git has said nothing for too long")
)

// BranchInUseError means that another item's checkout has the branch: git allows
// a branch in one worktree only, and two agents on one branch would undo each
// other's work.
type BranchInUseError struct {
	// Branch is the branch, without refs/heads/.
	Branch string
	// Dir is the checkout that has it.
	Dir string
}

// Error says where the branch is and what to do.
func (e *BranchInUseError) Error() string {
	return fmt.Sprintf("branch %q is checked out in %s: close that item first, or use the strategy clone", e.Branch, e.Dir)
}

// GitError is a call of git that failed. What git said is for people only.
type GitError struct {
	// Args begin with git's subcommand.
	Args []string
	// Status is git's exit status, -1 when it did not exit by itself.
	Status int
	// Stderr is the end of what git said, printable and without secrets.
	Stderr string
	// Err is why it did not exit by itself, or could not be started.
	Err error
}

// Error names the subcommand and what git said.
func (e *GitError) Error() string {
	var b strings.Builder
	b.WriteString("git " + e.Args[0])
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	} else {
		fmt.Fprintf(&b, ": exit status %d", e.Status)
	}
	if e.Stderr != "" {
		b.WriteString(": " + e.Stderr)
	}
	return b.String()
}

// Unwrap gives the reason why git did not exit by itself.
func (e *GitError) Unwrap() error { return e.Err }
