package notice

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"loopfleet/pkg/deadletter"
	"loopfleet/pkg/event"
)

// kinds are the events as a ticket's readers know them.
var kinds = map[event.Kind]string{
	event.CI:            "a failed check",
	event.Comment:       "a comment",
	event.Label:         "the label that asks for an agent",
	event.Presence:      "the label that asks for an agent",
	event.Reopen:        "a reopening",
	event.Review:        "a review",
	event.ReviewComment: "a comment in a review",
}

// reasons explain why an event was given up.
var reasons = map[string]string{
	"attempts-spent":             "every attempt to hand it to the agent failed",
	"crash-loop":                 "the worker crashed each time it tried",
	"expired":                    "nobody had taken it when it was due to be forgotten",
	"no-receipt":                 "it was typed into the agent's session, and the agent did not confirm that it took it",
	deadletter.ReasonUndecodable: "its message could not be read",
}

// deadBody tells what was given up, and how to have it tried again.
func deadBody(l *deadletter.Letter) string {
	what, ok := kinds[l.Event.Kind]
	if !ok {
		what = "an event"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Loopfleet gave up on %s of this ticket, of %s.\n\n", what, moment(l.Event.At))
	reason := code(l.Reason)
	if why, ok := reasons[l.Reason]; ok {
		reason = why + " (" + reason + ")"
	}
	fmt.Fprintf(&b, "- Reason: %s\n- Attempts: %d\n", reason, l.Attempts)
	if e := publicError(l); e != "" {
		fmt.Fprintf(&b, "- Last error: %s\n", code(e))
	}
	id := l.Event.ID
	if l.Reason == deadletter.ReasonUndecodable {
		fmt.Fprintf(&b, "\nIt cannot be tried again. Whoever runs Loopfleet can look at it: %s", code("loopfleet dead-letters show "+id))
		return b.String()
	}
	fmt.Fprintf(&b, "\nWhoever runs Loopfleet can have it tried again: %s\nAll that is kept of it: %s",
		code("loopfleet dead-letters replay "+id), code("loopfleet dead-letters show "+id))
	return b.String()
}

// pausedBody tells that the breaker has tripped, and how to go on.
func pausedBody(n Note) string {
	return fmt.Sprintf("Loopfleet paused this ticket: its agent got %d prompts within an hour, and %s is %d. "+
		"Is something answering itself? What happens meanwhile waits, nothing is lost.\n\nWhoever runs Loopfleet can let it go on: %s",
		n.Prompts, code("routing.maxEventsPerHour"), n.Limit, code("loopfleet sessions resume "+n.WorkItem.String()))
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// code is text that a forge shows as it is: within it there are no mentions, no
// links and no HTML.
func code(s string) string {
	return "`" + strings.TrimSpace(strings.ReplaceAll(plain(s), "`", "'")) + "`"
}

// plain makes s one line of what is visible.
func plain(s string) string {
	s = strings.ToValidUTF8(s, "?")
	return strings.Map(func(c rune) rune {
		switch {
		case c == '\n', c == '\r', c == '\t':
			return ' '
		case !unicode.IsPrint(c):
			return -1
		default:
			return c
		}
	}, s)
}

const (
	// maxError is how much of an error a ticket is shown, in characters.
	maxError = 200
	// minQuote is how long a line of a stranger's must be to be looked for in an
	// error: shorter ones are words that errors use themselves.
	minQuote = 4
	cut      = "…"
)

var (
	quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	// harmless is what may stay between quotes: names of programs and files.
	harmless = regexp.MustCompile(`^"[A-Za-z0-9._/-]{0,80}"$`)
	absolute = regexp.MustCompile(`(^|[\s"'(=:])(/[^/\s"'():,;][^\s"'():,;]*)`)
	userInfo = regexp.MustCompile(`://[^/\s@]*@`)
	// tokens are what looks like a credential: known beginnings, and runs longer
	// than an event id.
	tokens = regexp.MustCompile(`\b(?:gh[a-z]_|github_pat_|sk-|xox[a-z]-|AKIA|glpat-)[A-Za-z0-9_-]+|[A-Za-z0-9_+=-]{41,}`)
)

// publicError is the last error without what strangers, the agent or the
// machine's owner would not want on a ticket: only its first line, none of the
// event's own texts, no quotes but of plain names, no credentials, of paths the
// last part.
func publicError(l *deadletter.Letter) string {
	s := strings.TrimSpace(l.Public)
	s, _, _ = strings.Cut(strings.ReplaceAll(s, "\r", "\n"), "\n")
	ev := &l.Event
	strangers := []string{ev.Title, ev.URL, ev.Path, ev.Actor.Login, ev.ReviewState}
	strangers = append(strangers, ev.Checks...)
	for line := range strings.Lines(ev.Body) {
		strangers = append(strangers, line)
	}
	for _, t := range strangers {
		if t = strings.TrimSpace(t); utf8.RuneCountInString(t) >= minQuote {
			s = strings.ReplaceAll(s, t, cut)
		}
	}
	s = userInfo.ReplaceAllString(s, "://")
	s = tokens.ReplaceAllString(s, cut)
	s = quoted.ReplaceAllStringFunc(s, func(q string) string {
		if harmless.MatchString(q) {
			return q
		}
		return `"` + cut + `"`
	})
	s = absolute.ReplaceAllStringFunc(s, func(m string) string {
		i := strings.IndexByte(m, '/')
		return m[:i] + path.Base(m[i:])
	})
	s = strings.Join(strings.Fields(plain(s)), " ")
	if r := []rune(s); len(r) > maxError {
		s = string(r[:maxError-1]) + cut
	}
	return s
}
