package webhook_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loopfleet/pkg/event"
	"loopfleet/pkg/testutil/githubtest"
	"loopfleet/pkg/webhook"
)

const secret = "It's a Secret to Everybody"

func TestVerify(t *testing.T) {
	t.Parallel()
	body := []byte("Hello, World!")
	// The example of GitHub's documentation.
	const known = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Add(pairs[i], pairs[i+1])
		}
		return h
	}
	const name = "X-Hub-Signature-256"
	emoji := []byte(`{"body":"👩‍💻"}`)
	form := githubtest.IssueComment("created", 1, githubtest.Text("a+b&c=d")).Form()
	for label, tc := range map[string]struct {
		secret string
		header http.Header
		body   []byte
		want   error
	}{
		"right":             {secret, header(name, known), body, nil},
		"right, upper case": {secret, header(name, "sha256="+strings.ToUpper(known[7:])), body, nil},
		"right, with SHA-1": {secret, header(name, known, "X-Hub-Signature", "sha1=00"), body, nil},
		// bug report 3
		"emoji": {secret, header(name, githubtest.Sign(secret, emoji)), emoji, nil},
		// bug report 4
		"form, whole raw body":    {secret, header(name, githubtest.Sign(secret, form)), form, nil},
		"form, only the payload":  {secret, header(name, githubtest.Sign(secret, emoji)), form, webhook.ErrSignatureWrong},
		"empty body":              {secret, header(name, githubtest.Sign(secret, nil)), nil, nil},
		"no secret":               {"", header(name, githubtest.Sign("", body)), body, webhook.ErrNoSecret},
		"missing":                 {secret, header(), body, webhook.ErrSignatureMissing},
		"SHA-1 only":              {secret, header("X-Hub-Signature", "sha1=2fd4e1c67a2d28fced849ee1bb76e7391b93eb12"), body, webhook.ErrSignatureSHA1},
		"SHA-256 in the old name": {secret, header("X-Hub-Signature", known), body, webhook.ErrSignatureSHA1},
		"SHA-1 in the new name":   {secret, header(name, "sha1=2fd4e1c67a2d28fced849ee1bb76e7391b93eb12"), body, webhook.ErrSignatureMalformed},
		"bare":                    {secret, header(name, known[7:]), body, webhook.ErrSignatureMalformed},
		"prefix alone":            {secret, header(name, "sha256="), body, webhook.ErrSignatureMalformed},
		"empty":                   {secret, header(name, ""), body, webhook.ErrSignatureMalformed},
		"too short":               {secret, header(name, known[:len(known)-2]), body, webhook.ErrSignatureMalformed},
		"too long":                {secret, header(name, known+"00"), body, webhook.ErrSignatureMalformed},
		"not hex":                 {secret, header(name, known[:len(known)-1]+"g"), body, webhook.ErrSignatureMalformed},
		"twice":                   {secret, header(name, known, name, known), body, webhook.ErrSignatureMalformed},
		"another body":            {secret, header(name, known), []byte("Hello, World?"), webhook.ErrSignatureWrong},
		"another secret":          {secret + "!", header(name, known), body, webhook.ErrSignatureWrong},
		"trailing line":           {secret, header(name, known), append(bytes.Clone(body), '\n'), webhook.ErrSignatureWrong},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			if err := webhook.Verify([]byte(tc.secret), tc.header, tc.body); !errors.Is(err, tc.want) || err != nil && tc.want == nil {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			want := tc.want
			if errors.Is(want, webhook.ErrSignatureWrong) || errors.Is(want, webhook.ErrNoSecret) {
				want = nil // the header alone cannot show it
			}
			if err := webhook.CheckSignatureHeader(tc.header); !errors.Is(err, want) || err != nil && want == nil {
				t.Errorf("CheckSignatureHeader: got %v, want %v", err, want)
			}
		})
	}
}

func TestBody(t *testing.T) {
	t.Parallel()
	json := []byte(`{"body":"a+b & c=d ü 👩 \r\n"}`)
	form := []byte(url.Values{"payload": {string(json)}}.Encode())
	for name, tc := range map[string]struct {
		contentType string
		raw         []byte
		want        []byte
		err         error
	}{
		"json":                    {"application/json", json, json, nil},
		"json, charset":           {"Application/JSON; charset=utf-8", json, json, nil},
		"form":                    {"application/x-www-form-urlencoded", form, json, nil},
		"form, other fields":      {"application/x-www-form-urlencoded", []byte("a=1&" + string(form) + "&b=%zz"), json, nil},
		"form, no payload":        {"application/x-www-form-urlencoded", []byte("a=1&xpayload=2"), nil, webhook.ErrMalformed},
		"form, two payloads":      {"application/x-www-form-urlencoded", []byte("payload=1&payload=2"), nil, webhook.ErrMalformed},
		"form, bad escape":        {"application/x-www-form-urlencoded", []byte("payload=%zz"), nil, webhook.ErrMalformed},
		"form that is json":       {"application/x-www-form-urlencoded", json, nil, webhook.ErrMalformed},
		"form, too large inside":  {"application/x-www-form-urlencoded", append([]byte("payload="), bytes.Repeat([]byte("a"), webhook.MaxJSON+1)...), nil, webhook.ErrTooLarge},
		"json, just large enough": {"application/json", make([]byte, webhook.MaxJSON), make([]byte, webhook.MaxJSON), nil},
		"json, too large":         {"application/json", make([]byte, webhook.MaxJSON+1), nil, webhook.ErrTooLarge},
		"text":                    {"text/plain", json, nil, webhook.ErrUnsupportedMedia},
		"multipart":               {"multipart/form-data; boundary=x", json, nil, webhook.ErrUnsupportedMedia},
		"none":                    {"", json, nil, webhook.ErrUnsupportedMedia},
		"nonsense":                {"application/json; =", json, nil, webhook.ErrUnsupportedMedia},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := webhook.Body(tc.contentType, tc.raw)
			if !errors.Is(err, tc.err) || err != nil && tc.err == nil || !bytes.Equal(got, tc.want) {
				t.Errorf("got %.60q, %v; want %.60q, %v", got, err, tc.want, tc.err)
			}
		})
	}
}

func TestDecode_Facts(t *testing.T) {
	t.Parallel()
	actor := func(login string) event.Actor {
		a := githubtest.Account(login)
		id, ok := a["id"].(int64)
		if !ok {
			t.Fatal("no id")
		}
		return event.Actor{Login: login, ID: id, Bot: a["type"] == "Bot"}
	}
	base := func(name, action string) event.Facts {
		return event.Facts{
			Name: name, Action: action, Source: event.Webhook, Provider: "github", Host: "github.com",
			Repo: event.Repository{ID: githubtest.DefaultRepoID, Owner: "octo", Name: "hello"}, Sender: actor("alice"),
		}
	}
	at := githubtest.DefaultTime
	issue := func() *event.Item {
		return &event.Item{
			Number: 1, Title: "Spelling error in the README", Body: "It looks like you misspelled \"commit\".", Author: actor("bob"),
			URL: "https://github.com/octo/hello/issues/1", CreatedAt: at, UpdatedAt: at,
		}
	}
	pull := func() *event.Item {
		return &event.Item{
			Number: 2, Title: "Fix the spelling", Body: "This corrects it.", Author: actor("bob"), PullRequest: true,
			URL: "https://github.com/octo/hello/pull/2", CreatedAt: at, UpdatedAt: at, HeadSHA: githubtest.DefaultSHA, Head: event.HeadOwn,
		}
	}
	comment := func(number int64, anchor string) *event.Post {
		page := "https://github.com/octo/hello/issues/1#" + anchor + "-492700001"
		if number == 2 {
			page = "https://github.com/octo/hello/issues/2#" + anchor + "-492700002"
		}
		return &event.Post{ID: 492_700_000 + number, Author: actor("alice"), Body: "Please fix that.", URL: page, CreatedAt: at}
	}
	with := func(f event.Facts, change func(f *event.Facts)) event.Facts {
		change(&f)
		return f
	}
	onIssue := func(f *event.Facts) { f.Item = issue() }
	onPull := func(f *event.Facts) { f.Item = pull() }
	for name, tc := range map[string]struct {
		in   githubtest.Delivery
		want event.Facts
	}{
		"issue labelled": {
			githubtest.LabeledIssue(1, "loopfleet"),
			with(base("issues", "labeled"), func(f *event.Facts) {
				onIssue(f)
				f.Item.Labels, f.Label = []string{"loopfleet"}, "loopfleet"
			}),
		},
		"issue closed": {
			githubtest.Issue("closed", 1),
			with(base("issues", "closed"), func(f *event.Facts) { onIssue(f); f.Item.ClosedAt = at }),
		},
		// bug report 6
		"body null": {
			githubtest.Issue("opened", 1, githubtest.Null("issue.body")),
			with(base("issues", "opened"), func(f *event.Facts) { onIssue(f); f.Item.Body = "" }),
		},
		// bug report 7
		"user null": {
			githubtest.IssueComment("created", 1, githubtest.Null("comment.user"), githubtest.Null("issue.user"), githubtest.Null("sender")),
			with(base("issue_comment", "created"), func(f *event.Facts) {
				onIssue(f)
				f.Item.Author, f.Sender = event.Actor{}, event.Actor{}
				f.Post = comment(1, "issuecomment")
				f.Post.Author = event.Actor{}
			}),
		},
		"sender missing": {
			githubtest.Issue("opened", 1, githubtest.Delete("sender"), githubtest.Delete("issue.user")),
			with(base("issues", "opened"), func(f *event.Facts) { onIssue(f); f.Sender, f.Item.Author = event.Actor{}, event.Actor{} }),
		},
		"all that can be null": {
			githubtest.Issue(
				"labeled", 1, githubtest.Null("label"), githubtest.Null("issue.labels"), githubtest.Null("issue.pull_request"),
				githubtest.Null("issue.title"), githubtest.Null("issue.html_url"), githubtest.Null("issue.updated_at"), githubtest.Null("issue.created_at"),
			),
			with(base("issues", "labeled"), func(f *event.Facts) {
				onIssue(f)
				f.Item.Title, f.Item.URL, f.Item.CreatedAt, f.Item.UpdatedAt = "", "", time.Time{}, time.Time{}
			}),
		},
		"odd times": {
			githubtest.Issue("opened", 1, githubtest.Set("issue.created_at", 1700000000), githubtest.Set("issue.updated_at", "yesterday")),
			with(base("issues", "opened"), func(f *event.Facts) { onIssue(f); f.Item.CreatedAt, f.Item.UpdatedAt = time.Time{}, time.Time{} }),
		},
		"comment on a pull request": {
			githubtest.PullRequestComment("created", 2),
			with(base("issue_comment", "created"), func(f *event.Facts) {
				onPull(f)
				f.Item.Title, f.Item.Body = "Spelling error in the README", "It looks like you misspelled \"commit\"."
				f.Item.HeadSHA, f.Item.Head = "", event.HeadUnknown
				f.Post = comment(2, "issuecomment")
			}),
		},
		"bot": {
			githubtest.IssueComment("created", 1, githubtest.Sender("ci[bot]")),
			with(base("issue_comment", "created"), func(f *event.Facts) {
				onIssue(f)
				f.Sender = actor("ci[bot]")
				f.Post = comment(1, "issuecomment")
				f.Post.Author = f.Sender
			}),
		},
		"pull request merged": {
			githubtest.MergedPullRequest(2),
			with(base("pull_request", "closed"), func(f *event.Facts) { onPull(f); f.Item.Merged, f.Item.ClosedAt = true, at }),
		},
		"pull request of a fork": {
			githubtest.PullRequest("opened", 2, githubtest.Fork()),
			with(base("pull_request", "opened"), func(f *event.Facts) { onPull(f); f.Item.Head = event.HeadFork }),
		},
		// bug report 8
		"pull request of a deleted fork": {
			githubtest.PullRequest("opened", 2, githubtest.DeletedFork()),
			with(base("pull_request", "opened"), func(f *event.Facts) { onPull(f); f.Item.Head = event.HeadFork }),
		},
		"head null": {
			githubtest.PullRequest("opened", 2, githubtest.Null("pull_request.head")),
			with(base("pull_request", "opened"), func(f *event.Facts) { onPull(f); f.Item.Head, f.Item.HeadSHA = event.HeadFork, "" }),
		},
		"review, body null": {
			githubtest.Review("submitted", 2, "APPROVED", githubtest.Null("review.body")),
			with(base("pull_request_review", "submitted"), func(f *event.Facts) {
				onPull(f)
				f.Post = &event.Post{
					ID: 237_800_002, Author: actor("alice"), CreatedAt: at, ReviewState: "approved",
					URL: "https://github.com/octo/hello/pull/2#pullrequestreview-237800002",
				}
			}),
		},
		"review comment, outdated": {
			githubtest.ReviewComment("created", 2, "README.md", 3, githubtest.Null("comment.line")),
			with(base("pull_request_review_comment", "created"), func(f *event.Facts) {
				onPull(f)
				f.Post = comment(2, "discussion_r")
				f.Post.Path, f.Post.Line = "README.md", 3
			}),
		},
		"check run": {
			githubtest.CheckRun("test", "failure", []int64{2}),
			with(base("check_run", "completed"), func(f *event.Facts) {
				f.Check = &event.Check{
					Name: "test", Conclusion: "failure", SHA: githubtest.DefaultSHA, Title: "1 test failed", Summary: "TestHello failed",
					URL: "https://github.com/octo/hello/runs/128620228", At: at,
					PullRequests: []event.CheckedPull{{Number: 2, HeadSHA: githubtest.DefaultSHA, Head: event.HeadOwn}},
				}
			}),
		},
		"check suite, no pull requests": {
			githubtest.CheckSuite("CI", "failure", nil, githubtest.Null("check_suite.head_branch"), githubtest.Null("check_suite.app")),
			with(base("check_suite", "completed"), func(f *event.Facts) {
				f.Check = &event.Check{Conclusion: "failure", SHA: githubtest.DefaultSHA, At: at}
			}),
		},
		"workflow run of a deleted fork": {
			githubtest.WorkflowRun("CI", "failure", nil, githubtest.Null("workflow_run.head_repository")),
			with(base("workflow_run", "completed"), func(f *event.Facts) {
				f.Check = &event.Check{
					Name: "CI", Conclusion: "failure", SHA: githubtest.DefaultSHA, Title: "Fix the spelling", At: at, Head: event.HeadFork,
					URL: "https://github.com/octo/hello/runs/128620228",
				}
			}),
		},
		"status": {
			githubtest.Status("ci/build", "error", githubtest.Null("target_url")),
			with(base("status", ""), func(f *event.Facts) {
				f.Check = &event.Check{Name: "ci/build", Conclusion: "error", SHA: githubtest.DefaultSHA, Title: "1 test failed", At: at}
			}),
		},
		"ping without repository": {
			githubtest.Ping(githubtest.Delete("repository")),
			event.Facts{Name: "ping", Source: event.Webhook},
		},
		"enterprise host": {
			githubtest.Issue("opened", 1, githubtest.Set("repository.html_url", "https://Git.Example.com:8443/octo/hello")),
			with(base("issues", "opened"), func(f *event.Facts) { onIssue(f); f.Host = "git.example.com:8443" }),
		},
		"host of the issue's page": {
			githubtest.Issue("opened", 1, githubtest.Null("repository.html_url"), githubtest.Set("issue.html_url", "https://git.example.com/octo/hello/issues/1")),
			with(base("issues", "opened"), func(f *event.Facts) {
				onIssue(f)
				f.Host, f.Item.URL = "git.example.com", "https://git.example.com/octo/hello/issues/1"
			}),
		},
		"no host": {
			githubtest.Issue("opened", 1, githubtest.Set("repository.html_url", "https://*/octo/hello"), githubtest.Set("issue.html_url", "nonsense")),
			with(base("issues", "opened"), func(f *event.Facts) { onIssue(f); f.Item.URL = "nonsense" }),
		},
		"unknown members": {
			githubtest.Issue("opened", 1, githubtest.Set("issue.brand_new", map[string]any{"a": []any{1, nil}}), githubtest.Set("Action", "closed")),
			with(base("issues", "opened"), onIssue),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := webhook.Decode(tc.in.Event, tc.in.Body())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestDecode_BadInput(t *testing.T) {
	t.Parallel()
	good := string(githubtest.Issue("opened", 1).Body())
	deep := func(open, closing string) string {
		return strings.TrimSuffix(good, "}") + `,"x":` + strings.Repeat(open, 100_000) + strings.Repeat(closing, 100_000) + "}"
	}
	edit := func(opts ...githubtest.Option) string { return string(githubtest.Issue("opened", 1, opts...).Body()) }
	for name, tc := range map[string]struct{ event, body string }{
		"action of a wrong type":       {"issues", edit(githubtest.Set("action", []any{"opened"}))},
		"array":                        {"issues", "[" + good + "]"},
		"check without commit":         {"check_run", string(githubtest.CheckRun("a", "failure", nil, githubtest.Delete("check_run.head_sha")).Body())},
		"comment missing":              {"issue_comment", string(githubtest.IssueComment("created", 1, githubtest.Delete("comment")).Body())},
		"control character in a text":  {"issues", strings.Replace(good, "Spelling", "Spell\x01ing", 1)},
		"deep arrays":                  {"issues", deep("[", "]")},
		"deep objects":                 {"issues", deep(`{"a":`, "}")},
		"deep, unclosed":               {"issues", strings.Repeat("[", 100_000)},
		"duplicate of an unknown name": {"issues", strings.TrimSuffix(good, "}") + `,"x":{"a":1,"a":2}}`},
		"duplicate name":               {"issues", strings.TrimSuffix(good, "}") + `,"action":"closed"}`},
		"duplicate name, hostile":      {"issues", strings.TrimSuffix(good, "}") + `,"\u001b[2J\u202e":1,"\u001b[2J\u202e":2}`},
		"duplicate name, escaped":      {"issues", strings.TrimSuffix(good, "}") + `,"acti\u006fn":"closed"}`},
		"empty":                        {"issues", ""},
		"huge name":                    {"issues", strings.TrimSuffix(good, "}") + `,"` + strings.Repeat("x", 1<<20) + `":1,"` + strings.Repeat("x", 1<<20) + `":1}`},
		"invalid UTF-8":                {"issues", strings.Replace(good, "Spelling", "Spell\xffing", 1)},
		"invalid UTF-8, unread part":   {"issues", strings.TrimSuffix(good, "}") + ",\"x\":\"\xc3\x28\"}"},
		"issue missing":                {"issues", edit(githubtest.Delete("issue"))},
		"issue null":                   {"issues", edit(githubtest.Null("issue"))},
		"lone surrogate":               {"issues", strings.Replace(good, "Spelling", `\ud800`, 1)},
		"name of another case":         {"issues", strings.Replace(good, `"issue":`, `"Issue":`, 1)},
		"null":                         {"issues", "null"},
		"number as text":               {"issues", edit(githubtest.Set("issue.number", "1"))},
		"number as a fraction":         {"issues", edit(githubtest.Set("issue.number", 1.5))},
		"number negative":              {"issues", edit(githubtest.Set("issue.number", -1))},
		"number over 64 bits":          {"issues", strings.Replace(good, `"number":1`, `"number":18446744073709551616`, 1)},
		"ping that is none":            {"ping", "{"},
		"repository missing":           {"issues", edit(githubtest.Delete("repository"))},
		"repository without id":        {"issues", edit(githubtest.Delete("repository.id"))},
		"repository without owner":     {"issues", edit(githubtest.Set("repository.full_name", "hello"))},
		"trailing data":                {"issues", good + "{}"},
		"truncated":                    {"issues", good[:len(good)/2]},
		"wrong event":                  {"pull_request", good},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := webhook.Decode(tc.event, []byte(tc.body))
			if !errors.Is(err, webhook.ErrMalformed) {
				t.Fatalf("got %+v, %v; want ErrMalformed", got, err)
			}
			if diff := cmp.Diff(event.Facts{}, got); diff != "" {
				t.Errorf("facts beside an error: %s", diff)
			}
			if msg := err.Error(); len(msg) > 1000 || strings.ContainsAny(msg, "\x1b\x01\u202e\n") {
				t.Errorf("the error carries raw or long text: %.1200q", msg)
			}
		})
	}
}

func TestDecode_UnknownEvent(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "sub_issues", "push", "ISSUES", "issues\x1b[2J", strings.Repeat("x", 1<<20)} {
		_, err := webhook.Decode(name, []byte("not even JSON"))
		if !errors.Is(err, webhook.ErrUnknownEvent) || errors.Is(err, webhook.ErrMalformed) {
			t.Errorf("%.20q: got %v, want ErrUnknownEvent", name, err)
		}
		if len(err.Error()) > 200 || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("the error carries raw or long text: %.300q", err)
		}
	}
}

// Only what is text can be as large as a delivery may be.
func TestDecode_Large(t *testing.T) {
	t.Parallel()
	d := githubtest.Issue("opened", 1, githubtest.Text("@"))
	body := bytes.Replace(d.Body(), []byte("@"), bytes.Repeat([]byte("text"), 6<<20), 1)
	f, err := webhook.Decode(d.Event, body)
	if err != nil || len(f.Item.Body) != 24<<20 {
		t.Fatalf("%d bytes, %v", len(f.Item.Body), err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, d := range []githubtest.Delivery{
		githubtest.Issue("opened", 1), githubtest.IssueComment("created", 1), githubtest.PullRequest("opened", 2),
		githubtest.Review("submitted", 2, "approved"), githubtest.ReviewComment("created", 2, "a", 1),
		githubtest.CheckRun("a", "failure", []int64{2}), githubtest.CheckSuite("a", "failure", nil),
		githubtest.WorkflowRun("a", "failure", nil), githubtest.Status("a", "error"), githubtest.Ping(),
	} {
		f.Add(d.Event, d.Body())
	}
	f.Fuzz(func(t *testing.T, name string, body []byte) {
		facts, err := webhook.Decode(name, body)
		switch {
		case err != nil && !errors.Is(err, webhook.ErrMalformed) && !errors.Is(err, webhook.ErrUnknownEvent):
			t.Errorf("an error of no kind: %v", err)
		case err == nil && name != webhook.Ping && (facts.Host == "" || facts.Repo.ID <= 0 || facts.Item == nil && facts.Check == nil):
			t.Errorf("half-filled facts: %+v", facts)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	d := githubtest.PullRequest("opened", 2, githubtest.Text(strings.Repeat("text ", 4<<10)))
	body := d.Body()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := webhook.Decode(d.Event, body); err != nil {
			b.Fatal(err)
		}
	}
}
