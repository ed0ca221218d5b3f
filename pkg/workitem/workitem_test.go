package workitem_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loopfleet/pkg/workitem"
)

func mustNew(tb testing.TB, provider, host, owner, repo, number string) workitem.Ref {
	tb.Helper()
	r, err := workitem.New(provider, host, owner, repo, number)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func TestParse(t *testing.T) {
	t.Parallel()
	hello := workitem.Ref{Provider: "github", Host: "github.com", Owner: "octo", Repo: "hello", Number: "42"}
	on := func(host string) workitem.Ref {
		r := hello
		r.Host = host
		return r
	}
	nested := workitem.Ref{Provider: "gitlab", Host: "gitlab.com", Owner: "a/b/c", Repo: "r", Number: "i12"}
	for name, tc := range map[string]struct {
		in   string
		want workitem.Ref
	}{
		"case folded":              {"Octo/HELLO#42", hello},
		"dots":                     {"octo/my.repo.js#1", workitem.Ref{Provider: "github", Host: "github.com", Owner: "octo", Repo: "my.repo.js", Number: "1"}},
		"host":                     {"github:git.example.com/octo/hello#42", on("git.example.com")},
		"host alone":               {"git.example.com/octo/hello#42", on("git.example.com")},
		"host without a dot":       {"github:ghe/octo/hello#42", on("ghe")},
		"host, port":               {"github:git.example.com:8443/octo/hello#42", on("git.example.com:8443")},
		"host, port, no provider":  {"git.example.com:8443/octo/hello#42", on("git.example.com:8443")},
		"ipv6":                     {"github:[::1]:3000/octo/hello#42", on("[::1]:3000")},
		"issue URL":                {"https://github.com/octo/hello/issues/42", hello},
		"issue URL of a comment":   {"https://github.com/Octo/hello/issues/42#issuecomment-1", hello},
		"issue URL, query":         {"https://github.com/octo/hello/issues/42?x=y", hello},
		"issue URL, scheme's port": {"HTTPS://github.com:443/octo/hello/issues/42/", hello},
		"issue URL, www":           {"https://www.github.com/octo/hello/issues/42", hello},
		"localhost, port":          {"localhost:3000/octo/hello#42", on("localhost:3000")},
		"nested group":             {"gitlab:gitlab.com/a/b/c/r#i12", nested},
		"provider":                 {"GitHub:octo/hello#42", hello},
		"pull request URL":         {"http://git.example.com:8080/octo/hello/pull/42/files", on("git.example.com:8080")},
		"short":                    {"octo/hello#42", hello},
		"white space around":       {"  octo/hello#42\n", hello},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := workitem.Parse(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			again, err := workitem.Parse(got.String())
			if err != nil || again != got {
				t.Errorf("Parse(%q) = %v, %v", got.String(), again, err)
			}
		})
	}
}

func TestParse_BadInput(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"bidi control":        "octo/he\u202ello#1",
		"control character":   "octo/he\x00llo#1",
		"empty":               "",
		"empty owner":         "/hello#1",
		"empty repository":    "octo/#1",
		"escape sequence":     "octo/\x1b[2J#1",
		"huge":                "octo/" + strings.Repeat("x", 1<<20) + "#1",
		"invalid UTF-8":       "octo/he\xffllo#1",
		"leading zero":        "octo/hello#042",
		"letter before":       "octo/hello#i42",
		"negative":            "octo/hello#-1",
		"no host for gitlab":  "gitlab:octo/hello#i1",
		"no number":           "octo/hello",
		"number too long":     "octo/hello#1234567890123456789",
		"only a number":       "#42",
		"port out of range":   "github:git.example.com:99999/octo/hello#1",
		"slip of a path":      "octo/hello/docs#1",
		"space within":        "octo/he llo#1",
		"three letters":       "octo/hello#abc",
		"URL of a repository": "https://github.com/octo/hello",
		"URL of no forge":     "https://github.com/octo/hello/blob/42",
		"URL with bad escape": "https://github.com/octo/%zz/issues/1",
		"URL without number":  "https://github.com/octo/hello/issues/new",
		"zero":                "octo/hello#0",
		"zero width":          "octo/he\u200bllo#1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := workitem.Parse(in)
			if !errors.Is(err, workitem.ErrInvalid) || !got.Zero() {
				t.Fatalf("Parse(%.40q) = %v, %v; want ErrInvalid", in, got, err)
			}
			if len(err.Error()) > 500 || strings.ContainsAny(err.Error(), "\x00\x1b\u202e\u200b") {
				t.Errorf("error is too long or carries raw text: %q", err)
			}
		})
	}
}

func TestNew_BadInput(t *testing.T) {
	t.Parallel()
	for name, in := range map[string][5]string{
		"host of another":      {"github", "a:b", "o", "r", "1"},
		"host of digits":       {"github", "3000", "o", "r", "1"},
		"host with a path":     {"github", "h/x", "o", "r", "1"},
		"host with a wildcard": {"github", "*.example.com", "o", "r", "1"},
		"host with user":       {"github", "me@h", "o", "r", "1"},
		"host, leading dash":   {"github", "-h", "o", "r", "1"},
		"host, empty port":     {"github", "h:", "o", "r", "1"},
		"ipv6 with zone":       {"github", "[fe80::1%eth0]", "o", "r", "1"},
		"ipv6 unclosed":        {"github", "[::1", "o", "r", "1"},
		"ipv6, junk behind":    {"github", "[::1]x", "o", "r", "1"},
		"no host":              {"github", "", "o", "r", "1"},
		"owner, empty group":   {"gitlab", "h", "a//b", "r", "1"},
		"owner, slash first":   {"gitlab", "h", "/a", "r", "1"},
		"owner, invalid UTF-8": {"github", "h", "\xff", "r", "1"},
		"provider, slash":      {"git/hub", "h", "o", "r", "1"},
		"provider, digit":      {"1git", "h", "o", "r", "1"},
		"repository, slash":    {"github", "h", "o", "../r", "1"},
		"repository, line":     {"github", "h", "o", "r\n", "1"},
		"repository, too long": {"github", "h", "o", strings.Repeat("r", 256), "1"},
		"two letters":          {"gitlab", "h", "o", "r", "ab1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := workitem.New(in[0], in[1], in[2], in[3], in[4]); !errors.Is(err, workitem.ErrInvalid) || !got.Zero() {
				t.Fatalf("New(%.40q) = %v, %v; want ErrInvalid", in, got, err)
			}
		})
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ref                    workitem.Ref
		print, key, lane, tmux string
	}{
		"plain": {
			ref:   mustNew(t, "github", "github.com", "Octo", "Hello", "42"),
			print: "github:octo/hello#42",
			key:   "github=2Ecom.octo.hello.42",
			lane:  "lane-github=2Ecom_octo_hello_42",
			tmux:  "loop-octo-hello-42-",
		},
		"dots and wildcards": { // bug report 25
			ref:   mustNew(t, "github", "github.com", "octo", "next.js*>", "7"),
			print: "github:octo/next.js*>#7",
			key:   "github=2Ecom.octo.next=2Ejs=2A=3E.7",
			lane:  "lane-github=2Ecom_octo_next=2Ejs=2A=3E_7",
			tmux:  "loop-octo-next-js---7-",
		},
		"underscore, port": {
			ref:   mustNew(t, "github", "git.example.com:8443", "octo_corp", "a_b", "1"),
			print: "github:git.example.com:8443/octo_corp/a_b#1",
			key:   "git=2Eexample=2Ecom=3A8443.octo_corp.a_b.1",
			lane:  "lane-git=2Eexample=2Ecom=3A8443_octo=5Fcorp_a=5Fb_1",
			tmux:  "loop-octo_corp-a_b-1-",
		},
		"other forge": {
			ref:   mustNew(t, "gitlab", "gitlab.com", "a/b", "r", "m3"),
			print: "gitlab:gitlab.com/a/b/r#m3",
			key:   "gitlab=2Fgitlab=2Ecom.a=2Fb.r.m3",
			lane:  "lane-gitlab=2Fgitlab=2Ecom_a=2Fb_r_m3",
			tmux:  "loop-a-b-r-m3-",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.ref.String(); got != tc.print {
				t.Errorf("String() = %q, want %q", got, tc.print)
			}
			if got := tc.ref.Key(); got != tc.key {
				t.Errorf("Key() = %q, want %q", got, tc.key)
			}
			if got := tc.ref.LaneName(); got != tc.lane {
				t.Errorf("LaneName() = %q, want %q", got, tc.lane)
			}
			if got := tc.ref.TmuxName(); !strings.HasPrefix(got, tc.tmux) || len(got) != len(tc.tmux)+4 {
				t.Errorf("TmuxName() = %q, want %q and four digits", got, tc.tmux)
			}
			check(t, tc.ref)
		})
	}
}

func TestParseKey_OnlyWhatKeyMakes(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"", "github=2Ecom.octo.hello", "github=2Ecom.octo.hello.42.x", "github=2ecom.octo.hello.42",
		"github=2Ecom.oct=6F.hello.42", "github=2Ecom.OCTO.hello.42", "github=2Ecom.=4FCTO.hello.42",
		"github=2Ecom.octo.*.42", "github=2Ecom.octo.>", "github=2Ecom.octo.hello=.42", "github=2Ecom.octo.hello=2.42",
		"github=2Fgithub=2Ecom.octo.hello.42", "github=2Ecom.octo.hello.042", "github=2Ecom.=FF.hello.42",
	} {
		if got, err := workitem.ParseKey(key); !errors.Is(err, workitem.ErrInvalid) {
			t.Errorf("ParseKey(%q) = %v, %v; want ErrInvalid", key, got, err)
		}
		if got, err := workitem.ParseSubject("loop.log." + key); !errors.Is(err, workitem.ErrInvalid) {
			t.Errorf("ParseSubject of a log subject = %v, %v; want ErrInvalid", got, err)
		}
		if got, err := workitem.ParseLaneName("lane-" + strings.ReplaceAll(key, ".", "_")); !errors.Is(err, workitem.ErrInvalid) {
			t.Errorf("ParseLaneName(%q) = %v, %v; want ErrInvalid", key, got, err)
		}
	}
	if _, err := workitem.ParseLaneName("doorbell"); !errors.Is(err, workitem.ErrInvalid) {
		t.Errorf("ParseLaneName(doorbell): %v; want ErrInvalid", err)
	}
}

func TestLongNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 120) // 240 bytes, 720 escaped
	a := mustNew(t, "github", "github.com", long, long, "1")
	b := mustNew(t, "github", "github.com", long, long, "2")
	check(t, a)
	check(t, b)
	if a.LaneName() == b.LaneName() || a.DirName() == b.DirName() {
		t.Error("two long items share a name")
	}
	if _, err := workitem.ParseLaneName(a.LaneName()); err == nil {
		t.Error("a cut lane name was parsed: it cannot name the item")
	}
}

func TestRef_JSON(t *testing.T) {
	t.Parallel()
	type doc struct {
		Item workitem.Ref `json:"item"`
		Via  workitem.Ref `json:"via,omitzero"`
	}
	in := doc{Item: mustNew(t, "github", "ghe:8443", "octo", "hello", "42")}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"item":"github:ghe:8443/octo/hello#42"}`; string(b) != want {
		t.Errorf("got %s, want %s", b, want)
	}
	var out doc
	if err := json.Unmarshal(b, &out); err != nil || out != in {
		t.Errorf("got %v, %v", out, err)
	}
	if err := json.Unmarshal([]byte(`{"item":"nonsense"}`), &out); !errors.Is(err, workitem.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
	if err := json.Unmarshal([]byte(`{"item":""}`), &out); err != nil || !out.Item.Zero() {
		t.Errorf("empty text: got %v, %v", out.Item, err)
	}
}

func TestHostOf(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"https://github.com/octo/hello":           "github.com",
		"https://GitHub.com:443/octo/hello":       "github.com",
		"https://www.github.com/octo/hello":       "github.com",
		"http://git.example.com:8080/octo":        "git.example.com:8080",
		"http://git.example.com:80/octo":          "git.example.com",
		"https://user:pw@git.example.com/octo":    "git.example.com",
		"":                                        "",
		"javascript:alert(1)":                     "",
		"https://*/octo":                          "",
		"https:///octo":                           "",
		"ftp://git.example.com/octo":              "",
		"https://git.example.com:notaport/octo/x": "",
	} {
		if got, ok := workitem.HostOf(in); ok != (want != "") || ok && got != want {
			t.Errorf("HostOf(%q) = %q, %v; want %q", in, got, ok, want)
		}
	}
}

func TestWithNumber(t *testing.T) {
	t.Parallel()
	r := mustNew(t, "github", "github.com", "octo", "hello", "42")
	got, err := r.WithNumber("7")
	if err != nil || got.String() != "github:octo/hello#7" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := r.WithNumber("x"); !errors.Is(err, workitem.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}
