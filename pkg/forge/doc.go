// Package forge is the contract with the places that tickets live in: what
// Loopfleet asks of them, and how they fail.
//
// For now that is the part a ticket is told things through, [Poster]. Its errors
// say whether trying again helps: a [PermanentError] does not go away by itself,
// a [RateLimitError] says when to come back, and everything else (an outage, a
// timeout, a broken answer) is tried again later. Package forge/github is the
// first provider.
package forge
