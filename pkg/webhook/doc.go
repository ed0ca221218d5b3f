// Package webhook reads GitHub's deliveries: it checks the signature, unwraps
// the body and decodes it strictly into event.Facts.
//
// The order is the caller's to keep: limit the size, [Verify] the raw bytes,
// then [Body] and [Decode]. Nothing here trusts a byte before Verify said so,
// and Decode is safe on anything: it accepts members it does not know, refuses
// duplicate names, invalid UTF-8, wrong types, trailing data and bottomless
// nesting with [ErrMalformed], and takes null or absence as the zero value
// wherever GitHub is known to send it. A deleted account is the zero Actor; a
// deleted fork is a fork.
//
// All functions are pure and safe for concurrent use.
package webhook
