package github_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"loopfleet/pkg/config"
	"loopfleet/pkg/event"
	"loopfleet/pkg/forge"
	"loopfleet/pkg/forge/github"
	"loopfleet/pkg/testutil/githubtest"
	"loopfleet/pkg/workitem"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"))
}

const secret = "ghp_secret"

func client(t *testing.T, f *githubtest.Forge) *github.Client {
	t.Helper()
	c, err := github.New(f.URL(), func() (string, error) { return secret, nil })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPost_CarriesTheMarkerOnce(t *testing.T) {
	t.Parallel()
	f := githubtest.NewForge(t, secret)
	c, ref := client(t, f), f.Ref("Octo", "hello.world", 42)
	for _, body := range []string{"hello\n", "hello\n\n" + event.Marker, event.Marker + "\r\nhello", "quoting `" + event.Marker + "`"} {
		url, err := c.Post(t.Context(), ref, body)
		if err != nil {
			t.Fatal(err)
		}
		got := f.Comments(ref)[len(f.Comments(ref))-1]
		if url != got.URL {
			t.Errorf("url %q, want %q", url, got.URL)
		}
		lines := 0
		for l := range strings.Lines(got.Body) {
			if strings.TrimSpace(l) == event.Marker {
				lines++
			}
		}
		if lines != 1 {
			t.Errorf("%q has the marker on %d lines, want 1", got.Body, lines)
		}
	}
}

func TestPosted_LooksThroughAllPagesSince(t *testing.T) {
	t.Parallel()
	f := githubtest.NewForge(t, secret)
	c, ref := client(t, f), f.Ref("octo", "hello", 42)
	base := time.Now().Add(-time.Hour)
	const marker = "<!-- loopfleet notice x g0 -->"
	for i := range 250 {
		f.Comment(ref, fmt.Sprintf("comment %d about `%s`", i, marker), base.Add(time.Duration(i)*time.Second))
	}
	if ok, err := c.Posted(t.Context(), ref, marker, base); ok || err != nil {
		t.Errorf("posted %t, %v; want false: it is nowhere on a line of its own", ok, err)
	}
	if n := len(f.Requests()); n != 3 {
		t.Errorf("%d requests for 250 comments, want 3: %q", n, f.Requests())
	}
	f.Comment(ref, "text\r\n\r\n"+marker+"\r\n", base.Add(300*time.Second))
	if ok, err := c.Posted(t.Context(), ref, marker, base); !ok || err != nil {
		t.Errorf("posted %t, %v; want true", ok, err)
	}
	if ok, err := c.Posted(t.Context(), ref, marker, base.Add(400*time.Second)); ok || err != nil {
		t.Errorf("posted since later %t, %v; want false", ok, err)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	reset := strconv.FormatInt(time.Now().Add(10*time.Minute).Unix(), 10)
	permanent := func(c forge.Cause) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*forge.PermanentError](err)
			return ok && e.Cause == c && e.Hint() != ""
		}
	}
	limited := func(least, most time.Duration) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*forge.RateLimitError](err)
			return ok && e.RetryAfter >= least && e.RetryAfter <= most
		}
	}
	transient := func(err error) bool {
		_, p := errors.AsType[*forge.PermanentError](err)
		_, r := errors.AsType[*forge.RateLimitError](err)
		return err != nil && !p && !r
	}
	for name, tt := range map[string]struct {
		answer githubtest.Answer
		want   func(error) bool
	}{
		"401": {githubtest.Answer{Status: 401}, func(err error) bool {
			e, ok := errors.AsType[*forge.CredentialsError](err)
			return ok && e.Hint() != "" && transient(err)
		}},
		"403 without permission":       {githubtest.Answer{Status: 403}, permanent(forge.Forbidden)},
		"403 rate limited":             {githubtest.Answer{Status: 403, Header: map[string]string{"Retry-After": "77"}}, limited(77*time.Second, 77*time.Second)},
		"403 primary limit":            {githubtest.Answer{Status: 403, Header: map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset}}, limited(9*time.Minute, 10*time.Minute)},
		"404":                          {githubtest.Answer{Status: 404}, permanent(forge.Gone)},
		"408":                          {githubtest.Answer{Status: 408}, transient},
		"410":                          {githubtest.Answer{Status: 410}, permanent(forge.Gone)},
		"422":                          {githubtest.Answer{Status: 422}, permanent(forge.Refused)},
		"429 without a time":           {githubtest.Answer{Status: 429}, limited(time.Minute, time.Minute)},
		"429 with nonsense for a time": {githubtest.Answer{Status: 429, Header: map[string]string{"Retry-After": "soon"}}, limited(time.Minute, time.Minute)},
		"502":                          {githubtest.Answer{Status: 502}, transient},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for op, call := range map[string]func(context.Context, *github.Client, workitem.Ref) error{
				"post": func(ctx context.Context, c *github.Client, r workitem.Ref) error {
					_, err := c.Post(ctx, r, "hello")
					return err
				},
				"posted": func(ctx context.Context, c *github.Client, r workitem.Ref) error {
					_, err := c.Posted(ctx, r, "m", time.Time{})
					return err
				},
			} {
				f := githubtest.NewForge(t, secret)
				ref := f.Ref("octo", "hello", 42)
				f.Next(tt.answer)
				err := call(t.Context(), client(t, f), ref)
				if !tt.want(err) {
					t.Errorf("%s: %T %v", op, err, err)
				}
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("%s: the token is in the error: %v", op, err)
				}
			}
		})
	}
}

func TestErrors_UnreachableAndCancelled(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	host, _ := workitem.HostOf(srv.URL)
	ref, err := workitem.New(workitem.GitHub, host, "octo", "hello", "1")
	if err != nil {
		t.Fatal(err)
	}
	c, err := github.New(srv.URL, func() (string, error) { return secret, nil })
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Post(t.Context(), ref, "hello")
	if _, permanent := errors.AsType[*forge.PermanentError](err); err == nil || permanent {
		t.Errorf("unreachable: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Post(ctx, ref, "hello"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A renamed repository redirects; the post arrives as a post, with the token.
// The name that a work item keeps of a repository that took another's is not
// GitHub's.
func TestPost_Renamed(t *testing.T) {
	t.Parallel()
	f := githubtest.NewForge(t, secret)
	c, old := client(t, f), f.Ref("octo", "hello", 42)
	f.Rename("octo", "hello", "greetings")
	if _, err := c.Post(t.Context(), old, "hello"); err != nil {
		t.Fatal(err)
	}
	if ok, err := c.Posted(t.Context(), old, event.Marker, time.Time{}); !ok || err != nil {
		t.Errorf("posted under the old name: %t, %v", ok, err)
	}
	f.Ref("octo", "second", 1)
	second, err := workitem.New(workitem.GitHub, f.Host(), "octo", "second@123", "1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Post(t.Context(), second, "hello"); err != nil {
		t.Error(err)
	}
}

// The token goes to nobody else.
func TestRedirectElsewhere_CarriesNoToken(t *testing.T) {
	t.Parallel()
	leaked := make(chan string, 1)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leaked <- r.Header.Get("Authorization")
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(other.Close)
	f := githubtest.NewForge(t, secret)
	ref := f.Ref("octo", "hello", 42)
	f.Next(githubtest.Answer{Status: 307, Header: map[string]string{"Location": other.URL + "/repos/octo/hello/issues/42/comments"}})
	if _, err := client(t, f).Post(t.Context(), ref, "hello"); err == nil {
		t.Error("no error")
	}
	if got := <-leaked; got != "" {
		t.Errorf("the other host got %q", got)
	}
}

func TestForeignItems(t *testing.T) {
	t.Parallel()
	f := githubtest.NewForge(t, secret)
	for _, text := range []string{"octo/hello#1", "gitlab:" + f.Host() + "/octo/hello#1"} {
		ref, err := workitem.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client(t, f).Post(t.Context(), ref, "hello")
		if e, ok := errors.AsType[*forge.PermanentError](err); !ok || e.Cause != forge.Foreign {
			t.Errorf("%s: %v", text, err)
		}
	}
	if n := len(f.Requests()); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}

func TestHosts(t *testing.T) {
	t.Parallel()
	for api, item := range map[string]string{
		"https://api.github.com":         "octo/hello#1",
		"https://api.github.com/":        "octo/hello#1",
		"https://API.acme.ghe.com":       "github:acme.ghe.com/octo/hello#1",
		"https://git.example.com/api/v3": "github:git.example.com/octo/hello#1",
		"http://git.example.com:8080/v3": "github:git.example.com:8080/octo/hello#1",
		"https://api.example.com/api/v3": "github:api.example.com/octo/hello#1",
	} {
		c, err := github.New(api, func() (string, error) { return "", errors.New("no token: nothing is sent") })
		if err != nil {
			t.Fatal(err)
		}
		ref, err := workitem.Parse(item)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Post(t.Context(), ref, "hello")
		if _, foreign := errors.AsType[*forge.PermanentError](err); foreign {
			t.Errorf("%s does not take %s: %v", api, item, err)
		}
	}
	for _, bad := range []string{"", "nonsense", "https://", "://"} {
		if _, err := github.New(bad, nil); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := func(string) string { return " from-env\n" }
	none := func(string) string { return "" }

	if tok, err := github.Token(config.GitHub{TokenEnv: "X"}, none); tok != nil || err != nil {
		t.Errorf("no token: %v, %v", tok != nil, err)
	}
	if p, err := github.Poster(config.GitHub{APIURL: "https://api.github.com", TokenEnv: "X"}, none); p != nil || err != nil {
		t.Errorf("poster without a token: %v, %v; want nil", p, err)
	}
	get := func(cfg config.GitHub, getenv func(string) string) string {
		t.Helper()
		tok, err := github.Token(cfg, getenv)
		if err != nil {
			t.Fatal(err)
		}
		s, err := tok()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := get(config.GitHub{TokenEnv: "X"}, env); s != "from-env" {
		t.Errorf("token %q", s)
	}
	if _, err := github.Token(config.GitHub{TokenFile: file}, none); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	write("\n")
	if _, err := github.Token(config.GitHub{TokenFile: file}, none); err == nil {
		t.Error("an empty file is taken")
	}
	write("from-file\n")
	if s := get(config.GitHub{TokenEnv: "X", TokenFile: file}, env); s != "from-file" {
		t.Errorf("token %q", s)
	}
}

// A token that is replaced in its file is used from the next request on.
func TestToken_Rotates(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := githubtest.NewForge(t, "new")
	ref := f.Ref("octo", "hello", 42)
	p, err := github.Poster(config.GitHub{APIURL: f.URL(), TokenFile: file}, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Post(t.Context(), ref, "hello")
	if _, ok := errors.AsType[*forge.CredentialsError](err); !ok {
		t.Errorf("with the old token: %v", err)
	}
	if err := os.WriteFile(file, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Post(t.Context(), ref, "hello"); err != nil {
		t.Errorf("with the new token: %v", err)
	}
}

func TestPost_TooLong(t *testing.T) {
	t.Parallel()
	f := githubtest.NewForge(t, secret)
	ref := f.Ref("octo", "hello", 42)
	_, err := client(t, f).Post(t.Context(), ref, strings.Repeat("é", 65536))
	if e, ok := errors.AsType[*forge.PermanentError](err); !ok || e.Cause != forge.Refused {
		t.Errorf("%v", err)
	}
}
