// Package router decides what an event on the forge is to Loopfleet: which kind
// it is, which work items it concerns, whether its actor may ask for anything,
// or why it is dropped. It is pure: no clock, no network, no broker.
//
// It works in two steps, because which items a pull request belongs to is
// recorded elsewhere. [Route] judges the facts alone and names the candidates;
// the caller looks them up; [Select] makes the events, one for each work item,
// and the links to record so that a later edit of a pull request reroutes
// nothing. A dropped event can still bind: opening a pull request is no prompt,
// but says what it delivers.
//
// The rules:
//   - An item's own events go to it when it is labelled or known. An item is
//     known when it has a record or anything in its stream.
//   - What happens on a pull request goes to the items recorded for it; else to
//     the known items that its text closes; else to itself, when it is labelled
//     or known. Closing a pull request ends only a session of its own.
//   - Only people on the list are obeyed; an empty list obeys nobody. Closes
//     and CI have no actor and are exempt. Own posts are recognised by [Marker].
//   - CI counts when it failed on a head in the repository itself. What is not
//     known to be no fork's is a fork's wherever the forge says whose it is.
//
// Every drop has a [Reason]. All functions are safe for concurrent use.
package router
