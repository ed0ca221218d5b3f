// Package doctor looks at what Loopfleet needs on a machine and says, of each
// part, whether it is there, why that matters and what to do.
//
// Run changes nothing: it starts tmux and git only to ask their versions, makes
// one temporary file in the state directory and removes it, listens on a port for
// a moment, and asks the NATS server and the forge (the latter only where a token
// is configured). No finding holds a secret. What other programs and servers
// answer is escaped before it is part of one.
//
// Every check is bounded in time and none depends on another having passed, so a
// broken part hides nothing but what is inside it.
package doctor
