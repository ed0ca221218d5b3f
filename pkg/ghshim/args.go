package ghshim

import (
	"slices"
	"strings"

	"loopfleet/pkg/event"
)

// verb is what the shim knows of one command of gh.
type verb struct {
	// short are the one-letter flags that take a value, long those with a name.
	short string
	long  []string
	// review says that it may post without a text.
	review bool
}

var (
	commentVerb = &verb{short: "RbF", long: []string{"repo", "body", "body-file"}}
	issueCreate = &verb{short: "RbFalmpTt", long: []string{
		"repo", "body", "body-file", "assignee", "label", "milestone", "project", "recover", "template", "title", "type", "parent", "blocked-by", "blocking",
	}}
	prCreate = &verb{short: "RbFaBHlmprTt", long: []string{
		"repo", "body", "body-file", "assignee", "base", "head", "label", "milestone", "project", "recover", "reviewer", "template", "title",
	}}
	reviewVerb = &verb{short: "RbF", long: []string{"repo", "body", "body-file"}, review: true}
)

// verbs are the commands that post, by their names.
var verbs = map[string]map[string]*verb{
	"issue": {"comment": commentVerb, "create": issueCreate, "new": issueCreate},
	"pr":    {"comment": commentVerb, "create": prCreate, "new": prCreate, "review": reviewVerb},
}

// text is one place in the arguments where gh is given a text, or the name of a
// file that holds it.
type text struct {
	// at is the argument, from the byte that the value begins at.
	at, from int
	// file says that the value names a file; "-" is standard input.
	file bool
}

// parsed is what the shim sees in gh's arguments.
type parsed struct {
	texts []text
	// addBody says that the command posts without a text and can be given one.
	addBody bool
	// end is where another flag can be put in.
	end int
}

// parse finds the texts in the arguments of gh (without its name). Posts is
// false for every command that the shim hands on as it is.
func parse(args []string) (p parsed, posts bool) {
	if len(args) == 0 || verbs[args[0]] == nil {
		return parsed{}, false
	}
	at, ok := verbAt(args)
	if !ok {
		return parsed{}, false
	}
	v := verbs[args[0]][args[at]]
	if v == nil {
		return parsed{}, false
	}
	p.end = len(args)
	posting, asks := false, false // asks: it will not post by itself
	// Between the group and the verb only the flags that both share can be.
	for i := 1; i < len(args); i++ {
		a := args[i]
		switch {
		case i == at, a == "-", !strings.HasPrefix(a, "-"):
		case a == "--":
			p.end = i
			i = len(args)
		case strings.HasPrefix(a, "--"):
			name, _, hasValue := strings.Cut(a[2:], "=")
			takes := slices.Contains(v.long, name)
			if takes && !hasValue {
				i++
				asks = asks || i == len(args) // gh will complain
			}
			if takes && (name == "body" || name == "body-file") && i < len(args) {
				from := 0
				if hasValue {
					from = len("--") + len(name) + len("=")
				}
				p.texts = append(p.texts, text{at: i, from: from, file: name == "body-file"})
			}
			posting = posting || name == "approve" || name == "request-changes" || name == "comment"
			asks = asks || name == "help" || name == "web" || name == "editor"
		default:
			i = p.shorts(args, i, v, &posting, &asks)
		}
	}
	p.addBody = v.review && posting && !asks && len(p.texts) == 0
	return p, true
}

// shorts reads a group of one-letter flags (-cb TEXT, -bTEXT, -b=TEXT) and
// returns the last argument that belongs to it.
func (p *parsed) shorts(args []string, i int, v *verb, posting, asks *bool) int {
	a := args[i]
	for k := 1; k < len(a); k++ {
		c := a[k]
		if strings.IndexByte(v.short, c) < 0 {
			*posting = *posting || v.review && (c == 'a' || c == 'r' || c == 'c')
			*asks = *asks || c == 'h' || c == 'w' || c == 'e'
			continue
		}
		at, from := i, k+1
		switch {
		case from == len(a):
			at, from = i+1, 0
			*asks = *asks || at == len(args)
		case a[from] == '=':
			from++
		}
		if (c == 'b' || c == 'F') && at < len(args) {
			p.texts = append(p.texts, text{at: at, from: from, file: c == 'F'})
		}
		return at
	}
	return i
}

// verbAt finds the verb behind the group: only --repo can be between them.
func verbAt(args []string) (int, bool) {
	for i := 1; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "-R" || a == "--repo":
			i++
		case strings.HasPrefix(a, "-R"), strings.HasPrefix(a, "--repo="):
		case a == "--":
			return 0, false
		case strings.HasPrefix(a, "-"):
			// Another flag; it takes no value that could be taken for the verb.
		default:
			return i, true
		}
	}
	return 0, false
}

// marked puts the marker in front of a text that does not have it. In front, a
// code block that the text leaves open cannot make it visible.
func marked(body string) string {
	for line := range strings.Lines(body) {
		if strings.Trim(line, " \t\r\n") == event.Marker {
			return body
		}
	}
	if body == "" {
		return event.Marker
	}
	return event.Marker + "\n\n" + body
}
