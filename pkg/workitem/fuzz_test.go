package workitem_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"loopfleet/pkg/workitem"
)

var (
	keyShape  = regexp.MustCompile(`^[a-z0-9_=A-F-]+(\.[a-z0-9_=A-F-]+){3}$`)
	laneShape = regexp.MustCompile(`^[a-z0-9_=A-F-]{1,255}$`)
	tmuxShape = regexp.MustCompile(`^loop-[A-Za-z0-9_-]+$`)
)

// check holds what every Ref promises.
func check(tb testing.TB, r workitem.Ref) {
	tb.Helper()
	again := func(name string, got workitem.Ref, err error) {
		tb.Helper()
		if err != nil || got != r {
			tb.Errorf("%s of %+v: got %+v, %v", name, r, got, err)
		}
	}
	got, err := workitem.Parse(r.String())
	again("String", got, err)
	got, err = workitem.New(r.Provider, r.Host, r.Owner, r.Repo, r.Number)
	again("New", got, err)
	got, err = workitem.ParseKey(r.Key())
	again("Key", got, err)
	for _, s := range []string{r.EventsSubject(), r.ControlSubject(), r.DeadSubject()} {
		got, err = workitem.ParseSubject(s)
		again("Subject", got, err)
	}
	lane := r.LaneName()
	if got, err := workitem.ParseLaneName(lane); err != nil {
		// Only a name that had to be cut may be unreadable.
		if len(lane) != 255 {
			tb.Errorf("lane %q of %+v: %v", lane, r, err)
		}
	} else {
		again("LaneName", got, err)
	}
	if !keyShape.MatchString(r.Key()) {
		tb.Errorf("key %q", r.Key())
	}
	if !laneShape.MatchString(lane) {
		tb.Errorf("lane %q", lane)
	}
	if name := r.TmuxName(); !tmuxShape.MatchString(name) || len(name) > 100 {
		tb.Errorf("tmux name %q", name)
	}
	if dir := r.DirName(); len(dir) > 120 || !filepath.IsLocal(dir) || filepath.Base(dir) != dir || strings.HasPrefix(dir, ".") || strings.HasPrefix(dir, "-") {
		tb.Errorf("directory name %q", dir)
	}
}

func FuzzRoundTrip(f *testing.F) {
	for _, s := range [][5]string{
		{"github", "github.com", "octo", "hello", "42"},
		{"github", "git.example.com:8443", "Octo_Corp", "my.repo*>", "1"},
		{"github", "[::1]:3000", "a_b", "_", "999999999999999999"},
		{"github", "a:1", "a", "=5F", "1"},
		{"gitlab", "gitlab.com", "a/b/c", "r.", "i12"},
		{"gitlab", "1.2.3.4", "a=2Fb", "..", "m1"},
		{"github", "github.com", "a/b", "c", "1"},
		{"github", "github.com", "ö👩", "مرحبا", "7"},
		{"github", "www.github.com", "a\u200db", "x\u202ey", "7"},
		{"github", "github.com", "\xff", "\xfe", "7"},
		{"github", "github.com", "İ", "K", "7"},
		{"https", "h", "a", "b#c", "1"},
	} {
		f.Add(s[0], s[1], s[2], s[3], s[4], "octo", "hello", "42")
	}
	f.Fuzz(func(t *testing.T, provider, host, owner, repo, number, owner2, repo2, number2 string) {
		a, err := workitem.New(provider, host, owner, repo, number)
		if err != nil {
			if !a.Zero() {
				t.Errorf("an error and a reference: %+v", a)
			}
			return
		}
		check(t, a)
		b, err := workitem.New(provider, host, owner2, repo2, number2)
		if err != nil || a == b {
			return
		}
		if a.Key() == b.Key() || a.LaneName() == b.LaneName() || a.DirName() == b.DirName() || a.String() == b.String() {
			t.Errorf("%+v and %+v share a name", a, b)
		}
	})
}

// FuzzParse feeds what people and other programs may hand in: whatever is
// accepted must keep every promise of a Ref.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"octo/hello#42", "github:git.example.com:8443/a/b#1", "https://github.com/o/r/issues/1", "gitlab:h/a/b/c#i1",
		"github=2Ecom.octo.hello.42", "loop.events.github=2Ecom.octo.hello.42", "lane-github=2Ecom_octo_hel=5Flo_42",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, parse := range []func(string) (workitem.Ref, error){
			workitem.Parse, workitem.ParseKey, workitem.ParseSubject, workitem.ParseLaneName,
		} {
			if r, err := parse(s); err == nil {
				check(t, r)
			}
		}
		if plain, ok := workitem.Unescape(s); ok && workitem.Escape(plain) != s {
			t.Errorf("Unescape(%q) = %q, whose escape is %q", s, plain, workitem.Escape(plain))
		}
	})
}
