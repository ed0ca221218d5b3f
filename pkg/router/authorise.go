package router

import (
	"slices"
	"strings"

	"loopfleet/pkg/config"
	"loopfleet/pkg/event"
)

// Marker is the hidden line in everything that Loopfleet and its agents post.
const Marker = event.Marker

// selfAuthored reports whether the text carries Marker on a line of its own.
// Quoted or within a line it is somebody talking about it. A code block does
// not hide it: an agent may leave one open above it.
func selfAuthored(text string) bool {
	for line := range strings.Lines(text) {
		if strings.Trim(line, " \t\r\n") == Marker {
			return true
		}
	}
	return false
}

// Authorise says whether the actor may cause an event of this kind, and if not
// why. It fails closed: an empty list allows nobody, and neither does an actor
// without a name. Logins are compared case-insensitively; a bot is allowed by
// its full login (dependabot[bot]). Closes and CI need no actor.
//
// routing.minimumPermission allows nobody here: it needs the forge.
func Authorise(actor event.Actor, kind event.Kind, cfg config.Routing) (ok bool, why Reason) {
	switch {
	case kind == event.Close || kind == event.CI:
		return true, ""
	case listed(cfg.AgentLogins, actor):
		return false, AgentLogin
	case !listed(cfg.AuthorizedUsers, actor):
		return false, UnauthorizedActor
	default:
		return true, ""
	}
}

func listed(logins []string, actor event.Actor) bool {
	return actor.Login != "" && slices.ContainsFunc(logins, func(l string) bool { return sameLogin(l, actor.Login) })
}

// sameLogin folds ASCII only: in Unicode the Kelvin sign is a k, and a login
// that uses it is somebody else.
func sameLogin(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// judge applies Authorise to everybody behind the facts. For a text these are
// who sent it and who wrote it, which GitHub gives as one: when they differ,
// or the author's account is gone, neither vouches for the other.
func judge(f *event.Facts, kind event.Kind, cfg config.Routing) (actor event.Actor, why Reason) {
	if kind == event.CI {
		return event.Actor{}, ""
	}
	actor = f.Sender
	if f.Post != nil && f.Post.Author.Login != "" {
		actor = f.Post.Author
	}
	people := []event.Actor{f.Sender}
	if f.Post != nil {
		people = []event.Actor{f.Post.Author}
		if f.Sender.Login != "" {
			people = append(people, f.Sender)
		}
	}
	for _, p := range people {
		if ok, why := Authorise(p, kind, cfg); !ok {
			return actor, why
		}
	}
	return actor, ""
}
