// Package fault names every write that is made after a side effect, so that
// tests can delay or kill the process there.
//
// A point does nothing until Set installs a hook (main does so when
// DISPATCH_LAG is set, tests do so directly). Points are cheap: one atomic load
// when no hook is set. The list [Points] is the contract: a name that is not in
// it cannot be passed, as Point is a closed type.
package fault
