// Package gittest gives a test real repositories: bare ones to clone from, made
// without a working tree, and a server that speaks git's protocol over HTTP with
// git's own program behind it.
//
// Nothing of the person's who runs the tests is used: [Environ] has a home of
// its own. A test that needs git fails where git is missing.
package gittest
