package router_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"loopfleet/pkg/config"
	"loopfleet/pkg/event"
	"loopfleet/pkg/router"
	"loopfleet/pkg/testutil/githubtest"
	"loopfleet/pkg/webhook"
	"loopfleet/pkg/workitem"
)

// everything is a View in which all candidates are known.
func everything(r router.Routing, commit ...workitem.Ref) router.View {
	v := router.View{Known: map[workitem.Ref]bool{}, Commit: commit}
	for _, c := range r.Candidates {
		if c.Source != router.FromLink {
			v.Known[c.Ref] = true
		}
	}
	return v
}

// generic is what a decoder without any shape reads out of a payload.
type generic map[string]any

func (g generic) at(path ...string) any {
	var v any = map[string]any(g)
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

// agree compares the facts with a decoder that knows no shapes.
func agree(t *testing.T, f *event.Facts, body []byte) {
	t.Helper()
	var g generic
	if err := json.Unmarshal(body, &g); err != nil {
		t.Fatal(err)
	}
	same := func(what string, got, want any) {
		t.Helper()
		if want == nil {
			want = ""
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	number := func(v any) any {
		if n, ok := v.(float64); ok {
			return int64(n)
		}
		return v
	}
	same("action", f.Action, g.at("action"))
	same("repository", f.Repo.Owner+"/"+f.Repo.Name, g.at("repository", "full_name"))
	same("repository id", f.Repo.ID, number(g.at("repository", "id")))
	same("sender", f.Sender.Login, g.at("sender", "login"))
	if f.Item != nil {
		name := "issue"
		if g["issue"] == nil {
			name = "pull_request"
		}
		same("number", f.Item.Number, number(g.at(name, "number")))
		same("body", f.Item.Body, g.at(name, "body"))
	}
	if f.Post != nil {
		name := "comment"
		if g["comment"] == nil {
			name = "review"
		}
		same("id", f.Post.ID, number(g.at(name, "id")))
		same("author", f.Post.Author.Login, g.at(name, "user", "login"))
		same("body", f.Post.Body, g.at(name, "body"))
	}
	if f.Check != nil && f.Name != "status" {
		same("commit", f.Check.SHA, g.at(f.Name, "head_sha"))
		same("conclusion", f.Check.Conclusion, g.at(f.Name, "conclusion"))
	}
}

// through routes a payload with everything known and everybody allowed, and
// fails on whatever is neither an event nor a reasoned drop.
func through(t *testing.T, name string, body []byte) []string {
	t.Helper()
	f, err := webhook.Decode(name, body)
	ours := slices.Contains(config.DefaultEvents, name) || name == webhook.Ping
	if err != nil {
		if ours || !errors.Is(err, webhook.ErrUnknownEvent) {
			t.Errorf("decode: %v", err)
		}
		return []string{"unknown"}
	}
	if name != webhook.Ping {
		agree(t, &f, body)
	}
	cfg := routing()
	cfg.AuthorizedUsers = []string{"Codertocat", "text"}
	cfg.Label = "bug"
	r := router.Route(f, cfg)
	s := router.Select(r, everything(r))
	for _, e := range s.Events {
		if !event.ValidID(e.ID) || e.WorkItem.Zero() || e.Kind == "" {
			t.Errorf("incomplete event: %+v", e)
		}
	}
	if (s.Drop == "") == (len(s.Events) == 0) || s.Drop != "" && !slices.Contains(router.Reasons, s.Drop) {
		t.Errorf("drop %q with %d events", s.Drop, len(s.Events))
	}
	return outcome(s)
}

// TestExamples routes every payload that GitHub publishes. The named ones must
// come out as said; the lists are indexes into the examples of one event.
func TestExamples(t *testing.T) {
	t.Parallel()
	const (
		hello = "codertocat/hello-world"
		head  = "ec26c3e -> " + hello + "#2"
		own   = hello + "#2 -> " + hello + "#2"
	)
	issue := func(kind string) []string { return []string{kind + " " + hello + "#1"} }
	pull := func(kind string) []string { return []string{kind + " " + hello + "#2", own, head} }
	dropped := func(reason router.Reason, links ...string) []string {
		return append([]string{"drop " + string(reason)}, links...)
	}
	named := map[string][]string{
		"check_run/0":                   dropped(router.ActionIgnored),
		"check_run/1":                   {"ci " + hello + "#2", head},
		"check_run/2":                   dropped(router.NotAFailure),
		"check_run/7":                   dropped(router.ActionIgnored), // its times are not RFC 3339
		"check_run/8":                   dropped(router.ActionIgnored),
		"check_suite/0":                 dropped(router.NotAFailure),
		"check_suite/4":                 dropped(router.ActionIgnored),
		"check_suite/7":                 dropped(router.ActionIgnored),
		"issue_comment/0":               issue("comment"),
		"issue_comment/4":               issue("comment"),
		"issue_comment/5":               dropped(router.Deleted),
		"issue_comment/7":               dropped(router.Edited),
		"issues/0":                      dropped(router.Edited),
		"issues/1":                      dropped(router.ActionIgnored),
		"issues/9":                      issue("label"),
		"issues/15":                     issue("label"),
		"issues/20":                     issue("reopen"),
		"issues/21":                     dropped(router.ActionIgnored),
		"issues/25":                     dropped(router.ActionIgnored),
		"ping/0":                        dropped(router.Ping),
		"ping/3":                        dropped(router.Ping), // without a repository
		"pull_request/0":                dropped(router.ActionIgnored, own, head),
		"pull_request/3":                {"close " + hello + "#2 pr-closed"},
		"pull_request/8":                pull("label"),
		"pull_request/18":               pull("reopen"),
		"pull_request/22":               dropped(router.ActionIgnored, own, head), // synchronize
		"pull_request_review/0":         pull("review"),
		"pull_request_review/1":         dropped(router.ActionIgnored),
		"pull_request_review_comment/0": pull("review-comment"),
		"pull_request_review_comment/3": dropped(router.Deleted),
		"pull_request_review_comment/4": dropped(router.Edited),
		"status/0":                      dropped(router.NotAFailure),
		"workflow_run/0":                dropped(router.NotAFailure), // conclusion null, head of a fork
		"workflow_run/1":                dropped(router.NotAFailure),
		"workflow_run/3":                dropped(router.ActionIgnored),
	}
	met := 0
	for _, x := range githubtest.Examples(t) {
		key := fmt.Sprintf("%s/%d", x.Event, x.Index)
		t.Run(x.Set+"/"+key, func(t *testing.T) {
			t.Parallel()
			got := through(t, x.Event, x.Body)
			if want := named[key]; x.Set == "api.github.com" && want != nil && !slices.Equal(want, got) {
				t.Errorf("got %q, want %q", got, want)
			}
			strangers(t, x)
		})
		if _, ok := named[key]; ok && x.Set == "api.github.com" {
			met++
		}
	}
	if met != len(named) {
		t.Errorf("%d of the %d named examples exist", met, len(named))
	}
}

// strangers holds who is judged: with Codertocat off the list, nothing of theirs
// but a close gets through.
func strangers(t *testing.T, x githubtest.Example) {
	t.Helper()
	f, err := webhook.Decode(x.Event, x.Body)
	if err != nil {
		return // through has judged it
	}
	cfg := routing()
	cfg.Label = "bug"
	r := router.Route(f, cfg)
	s := router.Select(r, everything(r))
	for _, e := range s.Events {
		if e.Kind != event.Close && e.Kind != event.CI {
			t.Errorf("%s by %+v was let through", e.Kind, e.Actor)
		}
	}
	if s.Drop == router.UnauthorizedActor && r.Event.Actor.Login != "Codertocat" {
		t.Errorf("judged %+v", r.Event.Actor)
	}
}

// TestGenerated routes payloads made from GitHub's schemas, which know every
// event and action there is, and where null may stand.
func TestGenerated(t *testing.T) {
	t.Parallel()
	events := map[string]int{}
	for _, g := range githubtest.Generate(t) {
		events[g.Event]++
		t.Run(g.Schema+"/"+g.Variant, func(t *testing.T) {
			t.Parallel()
			through(t, g.Event, g.Body)
		})
	}
	for _, name := range config.DefaultEvents {
		if events[name] == 0 {
			t.Errorf("no schema of %s", name)
		}
	}
	if events["sub_issues"] == 0 || len(events) < 50 {
		t.Errorf("schemas of %d events only", len(events))
	}
}
