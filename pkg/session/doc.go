// Package session drives agents: it starts, finds again, feeds, looks at and
// ends the one agent conversation of a work item, on tmux.
//
// The driver keeps one promise above all: a prompt is reported as submitted only
// after it was seen to leave the place where people type, and as received only
// when the harness says so. What cannot be known is an error, never a success.
//
//   - [Driver.Spawn] starts the program and looks whether it stays. A session of
//     ours that runs already is adopted, one that has ended is cleared away, and
//     anything alive that is not ours is left alone.
//   - [Driver.Deliver] is a transaction: the text goes into a file in the
//     session's directory, one line of our own that points to it is pasted, seen
//     on the screen, submitted, seen to leave, and receipted. Untrusted text
//     never reaches the terminal. A person comes first: their keys, their draft and
//     a dialog hold a prompt back, and nothing of theirs is typed over, submitted
//     or erased. A line that was pasted and not seen is looked for before it is
//     pasted again.
//   - [Driver.Inspect] says Missing or Dead only of a process that is gone. What
//     cannot be read counts as live.
//   - [Driver.Recover] finds the very process again after a restart of ours.
//   - [Driver.End] ends the whole process tree, also what has left its process
//     group; that it is gone already is success.
//
// A handle file is written before a program starts, so a crash at any moment
// leaves something that [Driver.Local] finds, to adopt or to end.
//
// Every error of a delivery or a start has one word for logs and records; see
// [Reason] and [Reasons].
//
// Everything may be called concurrently. Paste-to-submit is serial per session,
// and its middle is not interrupted by a cancelled context. The caller sees to
// it that only one worker acts on a session.
package session
