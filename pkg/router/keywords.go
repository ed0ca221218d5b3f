package router

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"loopfleet/pkg/event"
	"loopfleet/pkg/workitem"
)

const (
	// maxKeywords bounds the lookups that one text can cause.
	maxKeywords = 20
	// maxScan is how much of a text is read; GitHub cuts at 65,536 characters.
	maxScan = 256 << 10
)

// closingRef matches a closing keyword and what it closes: #1, GH-1,
// owner/repo#1 or the URL of an issue. What stands before and behind is
// checked by the caller, as it may belong to the neighbouring match.
var closingRef = regexp.MustCompile(`(?i)(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)(?:[ \t]*:[ \t]*|[ \t]+)` +
	`(?:(?:([a-z0-9][a-z0-9_-]{0,99})/([a-z0-9._-]{1,100}))?#([0-9]{1,18})` +
	`|GH-([0-9]{1,18})` +
	`|(https?://[^\s/?#]{1,255})/([a-z0-9][a-z0-9_-]{0,99})/([a-z0-9._-]{1,100})/issues/([0-9]{1,18}))`)

// closing lists the items that the pull request's text closes, by GitHub's
// keywords, in order, each once, without the pull request itself. Code and
// comments do not count.
func closing(f *event.Facts, self workitem.Ref) []workitem.Ref {
	text := f.Item.Body
	if len(text) > maxScan {
		text = text[:maxScan]
	}
	text = prose(text)
	var out []workitem.Ref
	for at := 0; at < len(text) && len(out) < maxKeywords; {
		m := closingRef.FindStringSubmatchIndex(text[at:])
		if m == nil {
			break
		}
		start, end := at+m[0], at+m[1]
		group := func(i int) string {
			if m[2*i] < 0 {
				return ""
			}
			return text[at+m[2*i] : at+m[2*i+1]]
		}
		ref, ok := keywordRef(f, group)
		if ok && wordBreakBefore(text[:start]) && wordBreakAfter(text[end:]) && ref != self && !slices.Contains(out, ref) {
			out = append(out, ref)
		}
		at = end
	}
	return out
}

// keywordRef names the item of a match: in the event's repository, or in
// another on the same host.
func keywordRef(f *event.Facts, group func(int) string) (workitem.Ref, bool) {
	owner, repo, number := group(1), group(2), group(3)
	switch {
	case group(4) != "":
		number = group(4)
	case group(5) != "":
		if host, ok := workitem.HostOf(group(5)); !ok || host != f.Host {
			return workitem.Ref{}, false
		}
		owner, repo, number = group(6), group(7), group(8)
	}
	var ref workitem.Ref
	var err error
	if owner == "" || f.Repo.Is(owner, repo) {
		ref, err = f.Ref(number)
	} else {
		ref, err = workitem.New(f.Provider, f.Host, owner, repo, number)
	}
	return ref, err == nil
}

func wordBreakBefore(s string) bool {
	c, n := utf8.DecodeLastRuneInString(s)
	return n == 0 || !wordRune(c) && c != '-' && c != '/'
}

func wordBreakAfter(s string) bool {
	c, n := utf8.DecodeRuneInString(s)
	return n == 0 || !wordRune(c)
}

func wordRune(c rune) bool { return c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c) }

// prose blanks out what Markdown does not show as text: fenced and indented
// code, code spans and HTML comments. It reads like a person rather than like
// a parser where the two differ, and in doubt it hides: a link that is missed
// can be made by hand, a wrong one feeds an agent what is not its own.
func prose(text string) string {
	var out, para strings.Builder
	flush := func() {
		out.WriteString(withoutSpans(para.String()))
		para.Reset()
		out.WriteByte('\n')
	}
	var fence string // what closes the open one
	comment, inList, blank := false, false, true
	for line := range strings.Lines(strings.ReplaceAll(text, "\r\n", "\n")) {
		body := strings.TrimRight(line, " \t\r\n")
		if fence != "" {
			if closesFence(body, fence) {
				fence = ""
			}
			continue
		}
		if comment {
			_, rest, ended := strings.Cut(body, "-->")
			if !ended {
				continue
			}
			comment, body = false, rest
		}
		if fence = opensFence(body); fence != "" {
			blank = true // no paragraph to go on with behind it
			flush()
			continue
		}
		indented := strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t")
		switch {
		case body == "":
			blank = true
			flush()
			continue
		case indented && blank && !inList:
			continue
		case !indented:
			inList = listItem.MatchString(body)
		}
		blank = false
		body, comment = withoutComments(body)
		para.WriteString(body)
		para.WriteByte('\n')
	}
	flush()
	return out.String()
}

var listItem = regexp.MustCompile(`^ {0,3}(?:[-*+]|[0-9]{1,9}[.)])(?:[ \t]|$)`)

// opensFence returns the fence that a line opens, as what has to close it; it
// also sees one inside a quote or a list item.
func opensFence(line string) string {
	s := strings.TrimLeft(line, " \t>")
	s = strings.TrimLeft(listItem.ReplaceAllString(s, ""), " \t>")
	for _, c := range []string{"`", "~"} {
		n := len(s) - len(strings.TrimLeft(s, c))
		if n >= 3 && (c == "~" || !strings.Contains(s[n:], c)) {
			return s[:n]
		}
	}
	return ""
}

func closesFence(line, fence string) bool {
	s := strings.TrimLeft(line, " \t>")
	return len(s) >= len(fence) && strings.Trim(s, fence[:1]) == ""
}

// withoutComments cuts the HTML comments out of a line; open says that one
// goes on. What begins within a code span is none.
func withoutComments(line string) (rest string, open bool) {
	runs := backtickRuns(line)
	var b strings.Builder
	for at := 0; ; {
		begin := strings.Index(line[at:], "<!--")
		if begin < 0 {
			b.WriteString(line[at:])
			return b.String(), false
		}
		begin += at
		if end := runs.spanOver(at, begin); end > 0 {
			b.WriteString(line[at:end])
			at = end
			continue
		}
		b.WriteString(line[at:begin])
		b.WriteByte(' ')
		length := strings.Index(line[begin:], "-->")
		if length < 0 {
			return b.String(), true
		}
		at = begin + length + len("-->")
	}
}

// withoutSpans cuts the code spans out of a paragraph.
func withoutSpans(para string) string {
	runs := backtickRuns(para)
	var b strings.Builder
	at := 0
	for {
		start, end := runs.next(at)
		if end == 0 {
			b.WriteString(para[at:])
			return b.String()
		}
		b.WriteString(para[at:start])
		b.WriteByte('`')
		at = end
	}
}

var backticks = regexp.MustCompile("`+")

// runs are the runs of backticks of a text, in order.
type runs struct {
	list []run
	seen int // runs before this one are behind the reader
}

type run struct {
	start int
	// end is where the code span ends that begins here, or 0: behind the next
	// run of the same length.
	end int
}

func backtickRuns(text string) *runs {
	found := backticks.FindAllStringIndex(text, -1)
	rs := &runs{list: make([]run, len(found))}
	last := map[int]int{} // length of a run to the end of the next one
	for i := len(found) - 1; i >= 0; i-- {
		start, end := found[i][0], found[i][1]
		rs.list[i].start = start
		if start == 0 || text[start-1] != '\\' {
			rs.list[i].end = last[end-start]
		}
		last[end-start] = end
	}
	return rs
}

// next returns the first code span that begins at or after at; end is 0 if
// there is none. Calls go forward only.
func (rs *runs) next(at int) (start, end int) {
	for ; rs.seen < len(rs.list); rs.seen++ {
		if r := rs.list[rs.seen]; r.start >= at && r.end > 0 {
			return r.start, r.end
		}
	}
	return 0, 0
}

// spanOver returns the end of the code span that begins at or after at and goes
// over pos, or 0.
func (rs *runs) spanOver(at, pos int) int {
	for {
		start, end := rs.next(at)
		if end == 0 || start > pos {
			return 0
		}
		if end > pos {
			return end
		}
		at = end
	}
}
