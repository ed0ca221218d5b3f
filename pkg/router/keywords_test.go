package router_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loopfleet/pkg/event"
	"loopfleet/pkg/router"
)

// closes returns the keyword candidates of a pull request octo/hello#2 with
// this text.
func closes(text string) []string {
	r := router.Route(event.Facts{
		Name: "pull_request", Action: "opened", Provider: "github", Host: "github.com",
		Repo: event.Repository{ID: 1, Owner: "Octo", Name: "Hello", KeyOwner: "octo", KeyName: "old-name"},
		Item: &event.Item{Number: 2, PullRequest: true, Body: text, Head: event.HeadOwn, HeadSHA: "abc"},
	}, routing())
	var out []string
	for _, c := range r.Candidates {
		if c.Source == router.FromKeyword {
			out = append(out, strings.TrimPrefix(c.Ref.String(), "github:octo/old-name"))
		}
	}
	return out
}

func TestKeywords(t *testing.T) {
	t.Parallel()
	list := func(s ...string) []string { return s }
	fence := "```"
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"all words":                 {"close #1 closes #3 closed #4 fix #5 fixes #6 fixed #7 resolve #8 resolves #9 resolved #10", list("#1", "#3", "#4", "#5", "#6", "#7", "#8", "#9", "#10")},
		"any case":                  {"FIXES #1, Closes #3", list("#1", "#3")},
		"colon":                     {"Fixes: #1\ncloses:#3\nresolves : #4", list("#1", "#3", "#4")},
		"GH":                        {"fixes GH-1, closes gh-3", list("#1", "#3")},
		"other repository":          {"closes Octo/Other.js#5", list("github:octo/other.js#5")},
		"own repository":            {"closes octo/HELLO#1 fixes octo/old-name#3", list("#1", "#3")},
		"URL":                       {"closes https://github.com/octo/other/issues/5", list("github:octo/other#5")},
		"URL of the own":            {"closes https://GITHUB.com/octo/hello/issues/5#issuecomment-7.", list("#5")},
		"URL of another host":       {"closes https://evil.example.com/octo/hello/issues/5", nil},
		"URL that only begins so":   {"closes https://github.com.evil.example.com/octo/hello/issues/5", nil},
		"URL with a user":           {"closes https://evil@github.com/octo/hello/issues/5", list("#5")},
		"URL of a pull request":     {"closes https://github.com/octo/hello/pull/5", nil},
		"each once":                 {"fixes #1, fixes #1, closes octo/hello#1", list("#1")},
		"itself":                    {"fixes #2, closes https://github.com/octo/hello/issues/2", nil},
		"one keyword, one item":     {"fixes #1, #3 and #4", list("#1")},
		"no keyword":                {"see #1, related to #3", nil},
		"part of a word":            {"unfixes #1, prefix #3, fixesx #4, auto-closes #5, hotfix #6, dis-closes #7", nil},
		"letter of another script":  {"éfixes #1", nil},
		"number in a word":          {"fixes #1st", nil},
		"leading zero":              {"fixes #01, fixes #0", nil},
		"number too long":           {"fixes #12345678901234567890", nil},
		"no space":                  {"fixes#1", nil},
		"next line":                 {"fixes\n#1", nil},
		"punctuation":               {"(fixes #1). **closes #3**, _resolves #4_", list("#1", "#3")},
		"CRLF":                      {"Fixes #1\r\nCloses #3\r\n", list("#1", "#3")},
		"code span":                 {"`fixes #1` ``fixes #3 ` fixes #4`` fixes #5", list("#5")},
		"code span, unclosed":       {"`fixes #1", list("#1")},
		"code span, two lines":      {"a `b\nfixes #1` c", nil},
		"code span, two paragraphs": {"a `b\n\nfixes #1` c", list("#1")},
		"escaped backtick":          {"\\`fixes #1 ` x", list("#1")},
		"fence":                     {"a\n" + fence + "sh\nfixes #1\n" + fence + "\nfixes #3", list("#3")},
		"fence, longer":             {"````\n" + fence + "\nfixes #1\n" + fence + "\n````\nfixes #3", list("#3")},
		"fence, tildes":             {"~~~\nfixes #1\n```\n~~~\nfixes #3", list("#3")},
		"fence, unclosed":           {"a\n" + fence + "\nfixes #1\n\nfixes #3", nil},
		"fence in a list":           {"- a\n  " + fence + "\n  fixes #1\n  " + fence + "\nfixes #3", list("#3")},
		"fence in a quote":          {"> " + fence + "\n> fixes #1\n> " + fence + "\nfixes #3", list("#3")},
		"fence, CRLF":               {fence + "\r\nfixes #1\r\n" + fence + "\r\nfixes #3", list("#3")},
		"no fence: span":            {fence + "fixes #1" + fence + " fixes #3", list("#3")},
		"indented code":             {"text\n\n    fixes #1\n\nfixes #3", list("#3")},
		"indented, in a list":       {"- item\n\n    fixes #1", list("#1")},
		"indented, in a paragraph":  {"text\n    fixes #1", list("#1")},
		"comment":                   {"<!-- fixes #1 --> fixes #3", list("#3")},
		"comment, lines":            {"<!--\nfixes #1\n\nfixes #4\n-->\nfixes #3", list("#3")},
		"comment, unclosed":         {"fixes #3 <!-- fixes #1\n\nfixes #4", list("#3")},
		"comment, two":              {"<!-- a --><!-- fixes #1 -->fixes #3", list("#3")},
		"comment in a span":         {"`<!--` fixes #1", list("#1")},
		"comment with a backtick":   {"<!-- ` --> <!-- fixes #1 ` --> fixes #3", list("#3")},
		"comment with a fence":      {"<!--\n" + fence + "\n-->\nfixes #1", list("#1")},
		"fence with a comment":      {fence + "\n<!--\n" + fence + "\nfixes #1", list("#1")},
		"template":                  {"## What\n\nFixes #1\n\n<!-- Fixes #(issue number) -->\n- [x] done", list("#1")},
		"emoji, right to left":      {"👩‍💻 fixes #1 \u202eمرحبا fixes #3", list("#1", "#3")},
		"zero width before":         {"\u200bfixes #1", list("#1")},
		"empty":                     {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, closes(tc.text)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestKeywords_Bounded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 5000 {
		b.WriteString("fixes #")
		b.WriteString(strings.Repeat("9", i%10+1))
		b.WriteString(strings.Repeat("1", i%7))
		b.WriteByte('\n')
	}
	if got := len(closes(b.String())); got != 20 {
		t.Errorf("%d candidates from one text, want 20", got)
	}
}

// Texts made to be slow: a linear reader needs milliseconds for each, one that
// looks back or ahead needs minutes. The limit is wide for a busy machine.
func TestKeywords_Linear(t *testing.T) {
	t.Parallel()
	var ladder strings.Builder
	for i := 1; i < 700; i++ {
		ladder.WriteString(strings.Repeat("`", i) + " ")
	}
	const n = 128 << 10
	for name, text := range map[string]string{
		"backticks and comments": strings.Repeat("`<!---->", n/8),
		"comments":               strings.Repeat("<!---->", n/7),
		"escapes":                strings.Repeat("\\`", n/2),
		"fences":                 strings.Repeat("```\n", n/4),
		"foreign URLs":           strings.Repeat("fixes https://e.x/o/r/issues/1 ", n/31),
		"keywords":               strings.Repeat("fixes ", n/6),
		"ladder of backticks":    ladder.String() + strings.Repeat("<!--", 1000),
		"one long line":          strings.Repeat("fixes #2 ", n/9),
		"unclosed comments":      strings.Repeat("<!--", n/4),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			closes(text)
			if took := time.Since(start); took > time.Minute {
				t.Errorf("took %v", took)
			}
		})
	}
}

func FuzzKeywords(f *testing.F) {
	for _, s := range []string{"fixes #1", "```\nfixes #1\n```", "<!-- ` --> fixes #3 `x`", "    fixes #1\n- a\n\n    fixes #3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		// Whatever the text, it cannot hide or change a plain line before it.
		got := closes("Fixes #7\n\n" + s)
		if len(got) == 0 || got[0] != "#7" {
			t.Errorf("got %q", got)
		}
		for _, c := range got {
			if c == "#2" || !strings.Contains(c, "#") {
				t.Errorf("candidate %q", c)
			}
		}
	})
}
