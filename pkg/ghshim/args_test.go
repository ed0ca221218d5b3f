package ghshim

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loopfleet/pkg/event"
)

const m = event.Marker + "\n\n"

func TestRewrite(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ in, want []string }{
		"long":                      {[]string{"issue", "comment", "42", "--body", "hello"}, []string{"issue", "comment", "42", "--body", m + "hello"}},
		"long with =":               {[]string{"pr", "comment", "--body=hello=you", "42"}, []string{"pr", "comment", "--body=" + m + "hello=you", "42"}},
		"short":                     {[]string{"issue", "create", "-t", "T", "-b", "hello"}, []string{"issue", "create", "-t", "T", "-b", m + "hello"}},
		"short with =":              {[]string{"issue", "create", "-b=hello"}, []string{"issue", "create", "-b=" + m + "hello"}},
		"short joined":              {[]string{"pr", "create", "-bhello"}, []string{"pr", "create", "-b" + m + "hello"}},
		"short in a group":          {[]string{"pr", "review", "-cb", "hello"}, []string{"pr", "review", "-cb", m + "hello"}},
		"short joined in a group":   {[]string{"pr", "review", "-rbhello"}, []string{"pr", "review", "-rb" + m + "hello"}},
		"empty":                     {[]string{"issue", "create", "--body", ""}, []string{"issue", "create", "--body", event.Marker}},
		"empty with =":              {[]string{"issue", "create", "--body="}, []string{"issue", "create", "--body=" + event.Marker}},
		"the last of two counts":    {[]string{"issue", "comment", "-b", "a", "-b", "b"}, []string{"issue", "comment", "-b", m + "a", "-b", m + "b"}},
		"marked already":            {[]string{"issue", "comment", "-b", "a\n" + event.Marker + "\r\n"}, []string{"issue", "comment", "-b", "a\n" + event.Marker + "\r\n"}},
		"marker within a line":      {[]string{"issue", "comment", "-b", "a " + event.Marker}, []string{"issue", "comment", "-b", m + "a " + event.Marker}},
		"repo before the verb":      {[]string{"issue", "-R", "octo/hello", "comment", "1", "-b", "a"}, []string{"issue", "-R", "octo/hello", "comment", "1", "-b", m + "a"}},
		"repo= before the verb":     {[]string{"pr", "--repo=octo/hello", "comment", "-b", "a"}, []string{"pr", "--repo=octo/hello", "comment", "-b", m + "a"}},
		"repo named as a verb":      {[]string{"pr", "--repo", "comment", "view", "-b", "a"}, []string{"pr", "--repo", "comment", "view", "-b", "a"}},
		"alias of create":           {[]string{"pr", "new", "--draft", "--body", "a"}, []string{"pr", "new", "--draft", "--body", m + "a"}},
		"value of another flag":     {[]string{"issue", "create", "--title", "--body", "-l", "-b", "--body", "a"}, []string{"issue", "create", "--title", "--body", "-l", "-b", "--body", m + "a"}},
		"assignee of an issue":      {[]string{"issue", "create", "-a", "-b", "x"}, []string{"issue", "create", "-a", "-b", "x"}},
		"approve is no value":       {[]string{"pr", "review", "-a", "-b", "x"}, []string{"pr", "review", "-a", "-b", m + "x"}},
		"behind --":                 {[]string{"issue", "comment", "--", "-b", "x"}, []string{"issue", "comment", "--", "-b", "x"}},
		"no value":                  {[]string{"issue", "comment", "--body"}, []string{"issue", "comment", "--body"}},
		"no value, short":           {[]string{"issue", "comment", "-b"}, []string{"issue", "comment", "-b"}},
		"approval without a text":   {[]string{"pr", "review", "7", "--approve"}, []string{"pr", "review", "7", "--approve", "--body", event.Marker}},
		"approval, short, with --":  {[]string{"pr", "review", "-a", "--", "7"}, []string{"pr", "review", "-a", "--body", event.Marker, "--", "7"}},
		"a review that asks":        {[]string{"pr", "review", "7"}, []string{"pr", "review", "7"}},
		"help":                      {[]string{"pr", "review", "--approve", "--help"}, []string{"pr", "review", "--approve", "--help"}},
		"fill":                      {[]string{"pr", "create", "--fill"}, []string{"pr", "create", "--fill"}},
		"edit":                      {[]string{"issue", "edit", "1", "--body", "a"}, []string{"issue", "edit", "1", "--body", "a"}},
		"merge":                     {[]string{"pr", "merge", "-b", "a"}, []string{"pr", "merge", "-b", "a"}},
		"view":                      {[]string{"issue", "view", "1"}, []string{"issue", "view", "1"}},
		"api":                       {[]string{"api", "repos/o/r/issues/1/comments", "-f", "body=a"}, []string{"api", "repos/o/r/issues/1/comments", "-f", "body=a"}},
		"nothing":                   {[]string{}, []string{}},
		"group alone":               {[]string{"issue"}, []string{"issue"}},
		"group and flags":           {[]string{"issue", "-R"}, []string{"issue", "-R"}},
		"a file that is not there":  {[]string{"issue", "comment", "-F", "/nonexistent/x"}, []string{"issue", "comment", "-F", "/nonexistent/x"}},
		"what a shell would obey":   {[]string{"issue", "comment", "-b", "$(id); `id` && \x00"}, []string{"issue", "comment", "-b", m + "$(id); `id` && \x00"}},
		"text that looks like ours": {[]string{"issue", "comment", "-b", "--body"}, []string{"issue", "comment", "-b", m + "--body"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := slices.Clone(tt.in)
			got, err := rewrite(tt.in, strings.NewReader(""))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(in, tt.in); diff != "" {
				t.Errorf("the caller's arguments were changed:\n%s", diff)
			}
		})
	}
}

// Whatever the arguments are, only what is named a text is changed, and a
// second shim changes nothing.
func FuzzRewrite(f *testing.F) {
	f.Add("issue\x00comment\x001\x00--body\x00hello")
	f.Add("pr\x00-R\x00o/r\x00review\x00-ab=x\x00--\x00-b")
	f.Add("pr\x00create\x00--body=\x00-t\x00-b\x00-dFb")
	f.Fuzz(func(t *testing.T, joined string) {
		args := strings.Split(joined, "\x00")
		p, posts := parse(args)
		if !posts && (len(p.texts) > 0 || p.addBody) {
			t.Fatalf("%q posts nothing and has texts", args)
		}
		for _, x := range p.texts {
			if x.at >= len(args) || x.from > len(args[x.at]) {
				t.Fatalf("%q: text %+v is outside", args, x)
			}
			if x.file {
				return // opens files
			}
		}
		out, err := rewrite(args, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		texts := map[int]bool{}
		for _, x := range p.texts {
			texts[x.at] = true
		}
		for i := range args {
			if i < p.end && !texts[i] && out[i] != args[i] {
				t.Fatalf("%q: argument %d became %q", args, i, out[i])
			}
		}
		again, err := rewrite(out, strings.NewReader(""))
		if err != nil || !slices.Equal(again, out) {
			t.Fatalf("%q: the second shim makes %q of %q (%v)", args, again, out, err)
		}
	})
}
