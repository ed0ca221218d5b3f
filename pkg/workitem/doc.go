// Package workitem is the identity of a work item: the issue or pull request
// that a session works on.
//
// A [Ref] is always case-folded, so two spellings of one item are equal with
// ==. It turns into every name the item needs elsewhere (NATS subjects, KV
// keys, consumer names, tmux session names, directory names) and subjects, keys
// and consumer names turn back into the same Ref; FuzzRoundTrip keeps that
// promise. Nothing that comes from a forge reaches one of those names
// unescaped: build them only here.
//
// The package is pure and imports nothing but the standard library.
package workitem
