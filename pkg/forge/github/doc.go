// Package github is GitHub as a forge, github.com and GitHub Enterprise: a token
// and the REST API.
//
// The token goes to the configured host only, never after a redirect elsewhere,
// and is read anew from its file for every request, so it can be replaced. It
// appears in no error.
package github
