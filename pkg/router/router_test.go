package router_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loopfleet/pkg/config"
	"loopfleet/pkg/event"
	"loopfleet/pkg/router"
	"loopfleet/pkg/testutil/githubtest"
	"loopfleet/pkg/webhook"
	"loopfleet/pkg/workitem"
)

const stranger = "mallory"

func routing() config.Routing {
	cfg := config.Default().Routing
	cfg.AuthorizedUsers = []string{"alice", "Dana", "dependabot[bot]"}
	cfg.AgentLogins = []string{"octo-agent"}
	return cfg
}

func ref(tb testing.TB, s string) workitem.Ref {
	tb.Helper()
	r, err := workitem.Parse(s)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func facts(tb testing.TB, d githubtest.Delivery) event.Facts {
	tb.Helper()
	f, err := webhook.Decode(d.Event, d.Body())
	if err != nil {
		tb.Fatal(err)
	}
	f.DeliveryID = d.GUID
	return f
}

// recorded is a View written in the items' printed form.
type recorded struct {
	known  []string
	links  map[string][]string
	commit []string
}

func (rec recorded) view(tb testing.TB) router.View {
	tb.Helper()
	v := router.View{Known: map[workitem.Ref]bool{}, Links: map[workitem.Ref][]workitem.Ref{}}
	for _, k := range rec.known {
		v.Known[ref(tb, k)] = true
	}
	for pr, items := range rec.links {
		for _, i := range items {
			v.Links[ref(tb, pr)] = append(v.Links[ref(tb, pr)], ref(tb, i))
		}
	}
	for _, i := range rec.commit {
		v.Commit = append(v.Commit, ref(tb, i))
	}
	return v
}

// outcome is a Selection in words: "comment octo/hello#1 via octo/hello#2", or
// "drop reason"; then the links as "pr -> item".
func outcome(s router.Selection) []string {
	var out []string
	if s.Drop != "" {
		out = append(out, "drop "+string(s.Drop))
	}
	short := func(r workitem.Ref) string { return strings.TrimPrefix(r.String(), "github:") }
	for _, e := range s.Events {
		line := fmt.Sprintf("%s %s", e.Kind, short(e.WorkItem))
		if !e.Via.Zero() {
			line += " via " + short(e.Via)
		}
		if e.Reason != "" {
			line += " " + e.Reason
		}
		out = append(out, line)
	}
	for _, l := range s.Links {
		from := short(l.PR)
		if l.SHA != "" {
			from = l.SHA[:min(7, len(l.SHA))]
		}
		out = append(out, from+" -> "+short(l.Item))
	}
	return out
}

func TestRouteAndSelect(t *testing.T) {
	t.Parallel()
	var (
		issue   = recorded{known: []string{"octo/hello#1"}}
		pull    = recorded{known: []string{"octo/hello#2"}}
		both    = recorded{known: []string{"octo/hello#1", "octo/hello#2"}}
		linked  = recorded{known: []string{"octo/hello#1"}, links: map[string][]string{"octo/hello#2": {"octo/hello#1"}}}
		itself  = recorded{links: map[string][]string{"octo/hello#2": {"octo/hello#2"}}}
		twice   = recorded{links: map[string][]string{"octo/hello#2": {"octo/hello#1", "octo/other#5"}}}
		commit  = recorded{commit: []string{"octo/hello#1"}}
		armed   = githubtest.Labels("bug", "LoopFleet")
		fixes   = githubtest.ItemText("Fixes #1")
		by      = githubtest.Sender
		issueE  = githubtest.Issue
		pullE   = githubtest.PullRequest
		oneHead = func(path string, v any) githubtest.Option {
			return func(d *githubtest.Delivery) {
				check, _ := d.Payload[d.Event].(map[string]any)
				list, _ := check["pull_requests"].([]any)
				first, ok := list[0].(map[string]any)
				if !ok {
					panic("no pull request in the check")
				}
				githubtest.Set(path, v)(&githubtest.Delivery{Payload: first})
			}
		}
	)
	for name, tc := range map[string]struct {
		in   githubtest.Delivery
		view recorded
		want []string
	}{
		// Issues.
		"issue labelled":                     {in: githubtest.LabeledIssue(1, "loopfleet"), want: []string{"label octo/hello#1"}},
		"issue labelled, other case":         {in: githubtest.LabeledIssue(1, "LOOPFLEET"), want: []string{"label octo/hello#1"}},
		"issue labelled, known":              {in: githubtest.LabeledIssue(1, "loopfleet"), view: issue, want: []string{"label octo/hello#1"}},
		"issue labelled otherwise":           {in: issueE("labeled", 1, armed, githubtest.Label("bug")), want: []string{"drop other-label"}},
		"issue labelled, label missing":      {in: issueE("labeled", 1, armed, githubtest.Delete("label")), want: []string{"drop other-label"}},
		"issue labelled by a stranger":       {in: githubtest.LabeledIssue(1, "loopfleet", by(stranger)), want: []string{"drop unauthorized-actor"}},
		"issue labelled by an agent":         {in: githubtest.LabeledIssue(1, "loopfleet", by("Octo-Agent")), want: []string{"drop agent-login"}},
		"issue labelled, login's case":       {in: githubtest.LabeledIssue(1, "loopfleet", by("ALICE")), want: []string{"label octo/hello#1"}},
		"issue labelled by a bot":            {in: githubtest.LabeledIssue(1, "loopfleet", by("renovate[bot]")), want: []string{"drop unauthorized-actor"}},
		"issue labelled by a listed bot":     {in: githubtest.LabeledIssue(1, "loopfleet", by("dependabot[bot]")), want: []string{"label octo/hello#1"}},
		"issue labelled, no sender":          {in: githubtest.LabeledIssue(1, "loopfleet", githubtest.Delete("sender")), want: []string{"drop unauthorized-actor"}},
		"issue labelled, sender null":        {in: githubtest.LabeledIssue(1, "loopfleet", githubtest.Null("sender")), want: []string{"drop unauthorized-actor"}},
		"issue opened with the label":        {in: issueE("opened", 1, armed), want: []string{"label octo/hello#1"}},
		"issue opened with it by a stranger": {in: issueE("opened", 1, armed, by(stranger)), want: []string{"drop unauthorized-actor"}},
		"issue opened":                       {in: issueE("opened", 1), want: []string{"drop action-ignored"}},
		"issue reopened, labelled":           {in: issueE("reopened", 1, armed), want: []string{"reopen octo/hello#1"}},
		"issue reopened, known":              {in: issueE("reopened", 1), view: issue, want: []string{"reopen octo/hello#1"}},
		"issue reopened, neither":            {in: issueE("reopened", 1), want: []string{"drop not-armed"}},
		// rule: CL-01
		"issue closed, known":    {in: issueE("closed", 1), view: issue, want: []string{"close octo/hello#1 issue-closed"}},
		"issue closed, labelled": {in: issueE("closed", 1, armed), want: []string{"close octo/hello#1 issue-closed"}},
		"issue closed, neither":  {in: issueE("closed", 1), want: []string{"drop not-armed"}},
		// rule: CL-03
		"issue closed by a stranger": {in: issueE("closed", 1, by(stranger)), view: issue, want: []string{"close octo/hello#1 issue-closed"}},
		"issue closed by nobody":     {in: issueE("closed", 1, githubtest.Null("sender")), view: issue, want: []string{"close octo/hello#1 issue-closed"}},
		"issue closed by an agent":   {in: issueE("closed", 1, by("octo-agent")), view: issue, want: []string{"close octo/hello#1 issue-closed"}},
		"issue edited":               {in: issueE("edited", 1, armed), view: issue, want: []string{"drop edited"}},
		"issue unlabeled":            {in: issueE("unlabeled", 1), view: issue, want: []string{"drop action-ignored"}},
		"issue transferred":          {in: issueE("transferred", 1, armed), view: issue, want: []string{"drop action-ignored"}},
		"issue deleted":              {in: issueE("deleted", 1, armed), view: issue, want: []string{"drop action-ignored"}},
		"issue, unheard-of action":   {in: issueE("teleported", 1, armed), view: issue, want: []string{"drop action-ignored"}},
		"issue event of a pull request": {
			in:   issueE("labeled", 2, armed, githubtest.Label("loopfleet"), fixes, githubtest.Set("issue.pull_request", map[string]any{})),
			view: issue,
			want: []string{"label octo/hello#1 via octo/hello#2", "octo/hello#2 -> octo/hello#1"},
		},
		"repository with dots": {
			in:   githubtest.LabeledIssue(1, "loopfleet", githubtest.Repo("octo/next.js", 5)),
			want: []string{"label octo/next.js#1"},
		},
		"repository with a wildcard": {
			in:   githubtest.LabeledIssue(1, "loopfleet", githubtest.Repo("octo/*>", 5)),
			want: []string{"label octo/*>#1"},
		},
		"repository with zero-width text": {
			in:   githubtest.LabeledIssue(1, "loopfleet", githubtest.Repo("octo/he\u200bllo", 5)),
			want: []string{"drop invalid-item"},
		},

		// Comments on issues.
		"comment, known":           {in: githubtest.IssueComment("created", 1), view: issue, want: []string{"comment octo/hello#1"}},
		"comment before the label": {in: githubtest.IssueComment("created", 1, armed), want: []string{"comment octo/hello#1"}},
		"comment, not armed":       {in: githubtest.IssueComment("created", 1), want: []string{"drop not-armed"}},
		"comment by a stranger":    {in: githubtest.IssueComment("created", 1, by(stranger)), view: issue, want: []string{"drop unauthorized-actor"}},
		"comment by an agent":      {in: githubtest.IssueComment("created", 1, by("octo-agent")), view: issue, want: []string{"drop agent-login"}},
		// bug report 11
		"comment edited":  {in: githubtest.IssueComment("edited", 1), view: issue, want: []string{"drop edited"}},
		"comment deleted": {in: githubtest.IssueComment("deleted", 1), view: issue, want: []string{"drop deleted"}},
		"comment pinned":  {in: githubtest.IssueComment("pinned", 1), view: issue, want: []string{"drop action-ignored"}},
		// bug report 7
		"comment of a deleted account": {
			in: githubtest.IssueComment("created", 1, githubtest.Null("comment.user")), view: issue, want: []string{"drop unauthorized-actor"},
		},
		"comment of a deleted account, sender null": {
			in: githubtest.IssueComment("created", 1, githubtest.Null("comment.user"), githubtest.Null("sender")), view: issue,
			want: []string{"drop unauthorized-actor"},
		},
		"comment of a stranger sent by alice": {
			in:   githubtest.IssueComment("created", 1, githubtest.Set("comment.user", githubtest.Account(stranger))),
			view: issue, want: []string{"drop unauthorized-actor"},
		},
		"comment of alice sent by a stranger": {
			in:   githubtest.IssueComment("created", 1, githubtest.Set("sender", githubtest.Account(stranger))),
			view: issue, want: []string{"drop unauthorized-actor"},
		},
		"comment without sender": {in: githubtest.IssueComment("created", 1, githubtest.Delete("sender")), view: issue, want: []string{"comment octo/hello#1"}},
		"comment, body null":     {in: githubtest.IssueComment("created", 1, githubtest.Null("comment.body")), view: issue, want: []string{"comment octo/hello#1"}},
		"comment of our own":     {in: githubtest.IssueComment("created", 1, githubtest.Text("Done.\r\n\r\n"+router.Marker+"\r\n")), view: issue, want: []string{"drop self-authored"}},
		"own comment, stranger": {
			in: githubtest.IssueComment("created", 1, by(stranger), githubtest.Text(router.Marker)), view: issue, want: []string{"drop self-authored"},
		},
		"comment quoting our own": {in: githubtest.IssueComment("created", 1, githubtest.Text("> "+router.Marker+"\nwhy?")), view: issue, want: []string{"comment octo/hello#1"}},
		"comment naming the marker": {
			in: githubtest.IssueComment("created", 1, githubtest.Text("what is `"+router.Marker+"`?")), view: issue, want: []string{"comment octo/hello#1"},
		},

		// Comments on pull requests, which arrive as issue_comment.
		"pull comment, linked":     {in: githubtest.PullRequestComment("created", 2), view: linked, want: []string{"comment octo/hello#1 via octo/hello#2"}},
		"pull comment, link first": {in: githubtest.PullRequestComment("created", 2, githubtest.ItemText("Fixes #9")), view: recorded{known: []string{"octo/hello#9", "octo/hello#2"}, links: linked.links}, want: []string{"comment octo/hello#1 via octo/hello#2"}},
		"pull comment, two links": {
			in: githubtest.PullRequestComment("created", 2), view: twice,
			want: []string{"comment octo/hello#1 via octo/hello#2", "comment octo/other#5 via octo/hello#2"},
		},
		"pull comment, keyword": {
			in: githubtest.PullRequestComment("created", 2, fixes), view: issue,
			want: []string{"comment octo/hello#1 via octo/hello#2", "octo/hello#2 -> octo/hello#1"},
		},
		"pull comment, keyword before itself": {
			in: githubtest.PullRequestComment("created", 2, fixes), view: both,
			want: []string{"comment octo/hello#1 via octo/hello#2", "octo/hello#2 -> octo/hello#1"},
		},
		"pull comment, keyword unknown": {in: githubtest.PullRequestComment("created", 2, fixes), want: []string{"drop not-armed"}},
		"pull comment, cross-repository keyword": {
			in: githubtest.PullRequestComment("created", 2, githubtest.ItemText("Closes Octo/Other#5 and resolves #1")),
			view: recorded{
				known: []string{"octo/other#5", "octo/hello#1"},
			},
			want: []string{
				"comment octo/other#5 via octo/hello#2", "comment octo/hello#1 via octo/hello#2",
				"octo/hello#2 -> octo/other#5", "octo/hello#2 -> octo/hello#1",
			},
		},
		"pull comment, itself": {
			in: githubtest.PullRequestComment("created", 2), view: pull, want: []string{"comment octo/hello#2", "octo/hello#2 -> octo/hello#2"},
		},
		"pull comment, itself linked": {in: githubtest.PullRequestComment("created", 2, fixes), view: recorded{known: both.known, links: itself.links}, want: []string{"comment octo/hello#2"}},
		"pull comment, labelled":      {in: githubtest.PullRequestComment("created", 2, armed), want: []string{"comment octo/hello#2", "octo/hello#2 -> octo/hello#2"}},
		"pull comment, stranger":      {in: githubtest.PullRequestComment("created", 2, fixes, by(stranger)), view: issue, want: []string{"drop unauthorized-actor"}},

		// Pull requests.
		"pull labelled": {in: pullE("labeled", 2, armed, githubtest.Label("loopfleet")), want: []string{"label octo/hello#2", "octo/hello#2 -> octo/hello#2", "ec26c3e -> octo/hello#2"}},
		"pull labelled, linked": {
			in: pullE("labeled", 2, armed, githubtest.Label("loopfleet")), view: linked,
			want: []string{"label octo/hello#1 via octo/hello#2", "ec26c3e -> octo/hello#1"},
		},
		"pull labelled otherwise":   {in: pullE("labeled", 2), view: recorded{}, want: []string{"drop other-label"}},
		"pull labelled by stranger": {in: pullE("labeled", 2, armed, githubtest.Label("loopfleet"), by(stranger)), want: []string{"drop unauthorized-actor"}},
		"pull opened with the label": {
			in: pullE("opened", 2, armed, fixes), view: issue,
			want: []string{"label octo/hello#1 via octo/hello#2", "octo/hello#2 -> octo/hello#1", "ec26c3e -> octo/hello#1"},
		},
		// Opening is no prompt, but says what it delivers.
		"pull opened":                  {in: pullE("opened", 2, fixes), view: issue, want: []string{"drop action-ignored", "octo/hello#2 -> octo/hello#1", "ec26c3e -> octo/hello#1"}},
		"pull opened by an agent":      {in: pullE("opened", 2, fixes, by("octo-agent")), view: issue, want: []string{"drop action-ignored", "octo/hello#2 -> octo/hello#1", "ec26c3e -> octo/hello#1"}},
		"pull opened, own branch":      {in: pullE("opened", 2, fixes, by(stranger)), view: issue, want: []string{"drop action-ignored", "octo/hello#2 -> octo/hello#1", "ec26c3e -> octo/hello#1"}},
		"pull opened, stranger's fork": {in: pullE("opened", 2, fixes, by(stranger), githubtest.Fork()), view: issue, want: []string{"drop action-ignored"}},
		// bug report 8
		"pull opened, deleted fork":     {in: pullE("opened", 2, fixes, by(stranger), githubtest.DeletedFork()), view: issue, want: []string{"drop action-ignored"}},
		"pull opened, alice's fork":     {in: pullE("opened", 2, fixes, githubtest.Fork()), view: issue, want: []string{"drop action-ignored", "octo/hello#2 -> octo/hello#1"}},
		"pull opened, nothing known":    {in: pullE("opened", 2, fixes), want: []string{"drop action-ignored"}},
		"pull opened, body null":        {in: pullE("opened", 2, githubtest.Null("pull_request.body")), view: pull, want: []string{"drop action-ignored", "octo/hello#2 -> octo/hello#2", "ec26c3e -> octo/hello#2"}},
		"pull edited":                   {in: pullE("edited", 2, fixes), view: issue, want: []string{"drop edited", "octo/hello#2 -> octo/hello#1", "ec26c3e -> octo/hello#1"}},
		"pull edited, link stays":       {in: pullE("edited", 2), view: linked, want: []string{"drop edited", "ec26c3e -> octo/hello#1"}},
		"pull synchronize":              {in: pullE("synchronize", 2), view: linked, want: []string{"drop action-ignored", "ec26c3e -> octo/hello#1"}},
		"pull synchronize, fork":        {in: pullE("synchronize", 2, githubtest.Fork()), view: linked, want: []string{"drop action-ignored"}},
		"pull synchronize, known head":  {in: pullE("synchronize", 2), view: recorded{links: linked.links, commit: []string{"octo/hello#1"}}, want: []string{"drop action-ignored"}},
		"pull ready for review":         {in: pullE("ready_for_review", 2, fixes), view: issue, want: []string{"drop action-ignored", "octo/hello#2 -> octo/hello#1", "ec26c3e -> octo/hello#1"}},
		"pull reopened, linked":         {in: pullE("reopened", 2), view: linked, want: []string{"reopen octo/hello#1 via octo/hello#2", "ec26c3e -> octo/hello#1"}},
		"pull reopened, not armed":      {in: pullE("reopened", 2), want: []string{"drop not-armed"}},
		"pull closed, known":            {in: pullE("closed", 2), view: pull, want: []string{"close octo/hello#2 pr-closed"}},
		"pull merged, known":            {in: githubtest.MergedPullRequest(2), view: pull, want: []string{"close octo/hello#2 pr-merged"}},
		"pull merged, bound to itself":  {in: githubtest.MergedPullRequest(2), view: itself, want: []string{"close octo/hello#2 pr-merged"}},
		"pull merged, labelled":         {in: githubtest.MergedPullRequest(2, armed), want: []string{"close octo/hello#2 pr-merged"}},
		"pull merged by a stranger":     {in: githubtest.MergedPullRequest(2, by(stranger)), view: pull, want: []string{"close octo/hello#2 pr-merged"}},
		"pull merged, only linked":      {in: githubtest.MergedPullRequest(2), view: linked, want: []string{"drop linked-pr-closed"}},
		"pull merged, only by keyword":  {in: githubtest.MergedPullRequest(2, fixes), view: issue, want: []string{"drop linked-pr-closed"}},
		"pull merged, linked, labelled": {in: githubtest.MergedPullRequest(2, armed), view: linked, want: []string{"drop linked-pr-closed"}},
		"pull merged, nothing known":    {in: githubtest.MergedPullRequest(2), want: []string{"drop not-armed"}},
		"pull merged, as an issue event": {
			in: issueE("closed", 2, githubtest.Set("issue.pull_request", map[string]any{"merged_at": "2026-03-01T12:00:00Z"})), view: pull,
			want: []string{"close octo/hello#2 pr-merged"},
		},

		// Reviews.
		"review, linked": {in: githubtest.Review("submitted", 2, "approved"), view: linked, want: []string{"review octo/hello#1 via octo/hello#2", "ec26c3e -> octo/hello#1"}},
		// bug report 10
		"review, body null":                  {in: githubtest.Review("submitted", 2, "commented", githubtest.Null("review.body")), view: linked, want: []string{"review octo/hello#1 via octo/hello#2", "ec26c3e -> octo/hello#1"}},
		"review of a fork":                   {in: githubtest.Review("submitted", 2, "approved", githubtest.Fork()), view: linked, want: []string{"review octo/hello#1 via octo/hello#2"}},
		"review edited":                      {in: githubtest.Review("edited", 2, "commented"), view: linked, want: []string{"drop edited"}},
		"review dismissed":                   {in: githubtest.Review("dismissed", 2, "dismissed"), view: linked, want: []string{"drop action-ignored"}},
		"review of our own":                  {in: githubtest.Review("submitted", 2, "commented", githubtest.Text(router.Marker)), view: linked, want: []string{"drop self-authored"}},
		"review by a stranger":               {in: githubtest.Review("submitted", 2, "approved", by(stranger)), view: linked, want: []string{"drop unauthorized-actor"}},
		"review comment":                     {in: githubtest.ReviewComment("created", 2, "README.md", 3, fixes), view: issue, want: []string{"review-comment octo/hello#1 via octo/hello#2", "octo/hello#2 -> octo/hello#1", "ec26c3e -> octo/hello#1"}},
		"review comment edited":              {in: githubtest.ReviewComment("edited", 2, "README.md", 3), view: linked, want: []string{"drop edited"}},
		"review comment deleted":             {in: githubtest.ReviewComment("deleted", 2, "README.md", 3), view: linked, want: []string{"drop deleted"}},
		"review comment, deleted account":    {in: githubtest.ReviewComment("created", 2, "README.md", 3, githubtest.Null("comment.user")), view: linked, want: []string{"drop unauthorized-actor"}},
		"review comment, pull request's own": {in: githubtest.ReviewComment("created", 2, "README.md", 3, armed), want: []string{"review-comment octo/hello#2", "octo/hello#2 -> octo/hello#2", "ec26c3e -> octo/hello#2"}},

		// CI.
		"check failed, linked":      {in: githubtest.CheckRun("test", "failure", []int64{2}), view: linked, want: []string{"ci octo/hello#1 via octo/hello#2", "ec26c3e -> octo/hello#1"}},
		"check failed, itself":      {in: githubtest.CheckRun("test", "timed_out", []int64{2}), view: pull, want: []string{"ci octo/hello#2", "ec26c3e -> octo/hello#2"}},
		"check failed, stranger's":  {in: githubtest.CheckRun("test", "failure", []int64{2}, by(stranger)), view: linked, want: []string{"ci octo/hello#1 via octo/hello#2", "ec26c3e -> octo/hello#1"}},
		"check failed, two pulls":   {in: githubtest.CheckRun("test", "failure", []int64{2, 3}), view: recorded{known: []string{"octo/hello#3"}, links: linked.links}, want: []string{"ci octo/hello#1", "ci octo/hello#3", "ec26c3e -> octo/hello#1", "ec26c3e -> octo/hello#3"}},
		"check failed, same item":   {in: githubtest.CheckRun("test", "failure", []int64{2, 3}), view: recorded{links: map[string][]string{"octo/hello#2": {"octo/hello#1"}, "octo/hello#3": {"octo/hello#1"}}}, want: []string{"ci octo/hello#1", "ec26c3e -> octo/hello#1"}},
		"check failed, not armed":   {in: githubtest.CheckRun("test", "failure", []int64{2}), want: []string{"drop not-armed"}},
		"check failed, by commit":   {in: githubtest.CheckRun("test", "failure", nil), view: commit, want: []string{"ci octo/hello#1"}},
		"check failed, unresolved":  {in: githubtest.CheckRun("test", "failure", nil), want: []string{"drop unresolved-head"}},
		"check failed, pulls null":  {in: githubtest.CheckRun("test", "failure", nil, githubtest.Null("check_run.pull_requests")), view: commit, want: []string{"ci octo/hello#1"}},
		"check failed, fork":        {in: githubtest.CheckRun("test", "failure", []int64{2}, oneHead("head.repo", githubtest.Repository("stranger/hello", 99))), view: linked, want: []string{"drop fork-head"}},
		"check failed, gone fork":   {in: githubtest.CheckRun("test", "failure", []int64{2}, oneHead("head.repo", nil)), view: linked, want: []string{"drop fork-head"}},
		"check failed, old head":    {in: githubtest.CheckRun("test", "failure", []int64{2}, oneHead("head.sha", "0000000")), view: linked, want: []string{"drop stale-head"}},
		"check failed, other base":  {in: githubtest.CheckRun("test", "failure", []int64{2}, oneHead("base.repo", githubtest.Repository("upstream/hello", 98))), view: linked, want: []string{"drop unresolved-head"}},
		"check succeeded":           {in: githubtest.CheckRun("test", "success", []int64{2}), view: linked, want: []string{"drop not-a-failure"}},
		"check cancelled":           {in: githubtest.CheckRun("test", "cancelled", []int64{2}), view: linked, want: []string{"drop not-a-failure"}},
		"check needs action":        {in: githubtest.CheckRun("test", "action_required", []int64{2}), view: linked, want: []string{"drop not-a-failure"}},
		"check without conclusion":  {in: githubtest.CheckRun("test", "", []int64{2}, githubtest.Null("check_run.conclusion")), view: linked, want: []string{"drop not-a-failure"}},
		"check created":             {in: githubtest.CheckRun("test", "failure", []int64{2}, githubtest.Set("action", "created")), view: linked, want: []string{"drop action-ignored"}},
		"suite failed":              {in: githubtest.CheckSuite("ci", "failure", []int64{2}), view: linked, want: []string{"ci octo/hello#1 via octo/hello#2", "ec26c3e -> octo/hello#1"}},
		"suite could not start":     {in: githubtest.CheckSuite("ci", "startup_failure", nil), view: commit, want: []string{"ci octo/hello#1"}},
		"workflow failed":           {in: githubtest.WorkflowRun("CI", "failure", []int64{2}), view: linked, want: []string{"ci octo/hello#1 via octo/hello#2", "ec26c3e -> octo/hello#1"}},
		"workflow failed, fork":     {in: githubtest.WorkflowRun("CI", "failure", nil, githubtest.Set("workflow_run.head_repository.id", 99)), view: commit, want: []string{"drop fork-head"}},
		"workflow failed, gone":     {in: githubtest.WorkflowRun("CI", "failure", nil, githubtest.Null("workflow_run.head_repository")), view: commit, want: []string{"drop fork-head"}},
		"workflow requested":        {in: githubtest.WorkflowRun("CI", "", nil, githubtest.Set("action", "requested")), view: commit, want: []string{"drop action-ignored"}},
		"status failure":            {in: githubtest.Status("ci/build", "failure"), view: commit, want: []string{"ci octo/hello#1"}},
		"status error":              {in: githubtest.Status("ci/build", "error"), view: commit, want: []string{"ci octo/hello#1"}},
		"status pending":            {in: githubtest.Status("ci/build", "pending"), view: commit, want: []string{"drop not-a-failure"}},
		"status failure, no record": {in: githubtest.Status("ci/build", "failure"), want: []string{"drop unresolved-head"}},
		"status, impossible name":   {in: githubtest.Status("ci/build", "failure", githubtest.Repo("octo/a b", 5)), want: []string{"drop invalid-item"}},

		"ping": {in: githubtest.Ping(), want: []string{"drop ping"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := router.Route(facts(t, tc.in), routing())
			s := router.Select(r, tc.view.view(t))
			if diff := cmp.Diff(tc.want, outcome(s)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if (s.Drop == "") != (len(s.Events) > 0) {
				t.Errorf("a drop (%q) with %d events", s.Drop, len(s.Events))
			}
			if s.Drop != "" && !slices.Contains(router.Reasons, s.Drop) {
				t.Errorf("reason %q is not in Reasons", s.Drop)
			}
			for _, e := range s.Events {
				checkEvent(t, tc.in, e)
			}
			if r.Event.DeliveryID != tc.in.GUID || r.Event.Name != tc.in.Event {
				t.Errorf("the delivery is not named for the log: %+v", r.Event)
			}
		})
	}
	// Every reason that a delivery can meet is met above.
	t.Run("reasons", func(t *testing.T) {
		t.Parallel()
		if !slices.IsSorted(router.Reasons) {
			t.Error("Reasons is not sorted")
		}
		var r router.Routing
		if r = router.Route(event.Facts{Name: "sub_issues"}, routing()); r.Drop != router.UnknownEvent {
			t.Errorf("unknown event: %q", r.Drop)
		}
		for _, name := range config.DefaultEvents {
			if r = router.Route(event.Facts{Name: name, Action: "completed"}, routing()); r.Drop != router.UnknownEvent {
				t.Errorf("%s without its object: %q", name, r.Drop)
			}
		}
	})
}

// checkEvent holds what every published event promises.
func checkEvent(t *testing.T, d githubtest.Delivery, e event.Event) {
	t.Helper()
	if !event.ValidID(e.ID) || e.At.IsZero() || e.RepoID == 0 || e.Source != event.Webhook || e.DeliveryID != d.GUID || e.Name != d.Event {
		t.Errorf("incomplete event: %+v", e)
	}
	if (e.Kind == event.CI) != (e.Actor == event.Actor{}) && e.Kind != event.Close {
		t.Errorf("%s with actor %+v", e.Kind, e.Actor)
	}
	if strings.Contains(e.Body, "\r") {
		t.Errorf("CRLF in %q", e.Body)
	}
	b, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := event.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(e, back); diff != "" {
		t.Error(diff)
	}
}

func one(t *testing.T, d githubtest.Delivery, rec recorded) event.Event {
	t.Helper()
	s := router.Select(router.Route(facts(t, d), routing()), rec.view(t))
	if len(s.Events) != 1 {
		t.Fatalf("got %v, want one event", outcome(s))
	}
	return s.Events[0]
}

func TestEvent_Contents(t *testing.T) {
	t.Parallel()
	linked := recorded{links: map[string][]string{"octo/hello#2": {"octo/hello#1"}}}
	at := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	id, ok := githubtest.Account("alice")["id"].(int64)
	if !ok {
		t.Fatal("an account without an id")
	}
	alice := event.Actor{Login: "alice", ID: id}
	for name, tc := range map[string]struct {
		in   githubtest.Delivery
		want event.Event
	}{
		"label": {
			in: githubtest.LabeledIssue(1, "loopfleet", githubtest.At(at), githubtest.Title("Title \u202e👩‍💻"), githubtest.Text("one\r\ntwo")),
			want: event.Event{
				Kind: event.Label, Action: "labeled", At: at, Actor: alice, Labeled: true,
				Title: "Title \u202e👩‍💻", Body: "one\ntwo", URL: "https://github.com/octo/hello/issues/1",
			},
		},
		"close": {
			in: githubtest.Issue("closed", 1, githubtest.At(at), githubtest.Labels("loopfleet")),
			want: event.Event{
				Kind: event.Close, Action: "closed", At: at, Actor: alice, Labeled: true, Reason: event.IssueClosed,
				Title: "Spelling error in the README", URL: "https://github.com/octo/hello/issues/1",
			},
		},
		"close without its time": {
			in: githubtest.Issue("closed", 1, githubtest.At(at), githubtest.Null("issue.closed_at"), githubtest.Labels("loopfleet")),
			want: event.Event{
				Kind: event.Close, Action: "closed", At: at, Actor: alice, Labeled: true, Reason: event.IssueClosed,
				Title: "Spelling error in the README", URL: "https://github.com/octo/hello/issues/1",
			},
		},
		"review comment": {
			in: githubtest.ReviewComment("created", 2, "docs/a b.md", 3, githubtest.At(at), githubtest.Text("typo"), githubtest.Labels("loopfleet")),
			want: event.Event{
				Kind: event.ReviewComment, Action: "created", At: at, Actor: alice, Path: "docs/a b.md", Line: 3,
				Title: "Fix the spelling", Body: "typo", URL: "https://github.com/octo/hello/issues/2#discussion_r-492700002",
			},
		},
		"review": {
			in: githubtest.Review("submitted", 2, "CHANGES_REQUESTED", githubtest.At(at), githubtest.Null("review.body")),
			want: event.Event{
				Kind: event.Review, Action: "submitted", At: at, Actor: alice, ReviewState: "changes_requested",
				Title: "Fix the spelling", URL: "https://github.com/octo/hello/pull/2#pullrequestreview-237800002",
			},
		},
		"check": {
			in: githubtest.CheckRun("test", "failure", []int64{2}),
			want: event.Event{
				Kind: event.CI, Action: "completed", At: githubtest.DefaultTime, SHA: githubtest.DefaultSHA, Checks: []string{"test"},
				Title: "1 test failed", Body: "TestHello failed", URL: "https://github.com/octo/hello/runs/128620228",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := one(t, tc.in, linked)
			want := tc.want
			want.ID, want.Name, want.Source, want.RepoID, want.DeliveryID = got.ID, tc.in.Event, event.Webhook, githubtest.DefaultRepoID, tc.in.GUID
			want.WorkItem = ref(t, "octo/hello#1")
			if tc.in.Event != "issues" {
				want.Via = ref(t, "octo/hello#2")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestEvent_IDs(t *testing.T) {
	t.Parallel()
	known := recorded{known: []string{"octo/hello#1", "octo/hello#2"}, commit: []string{"octo/hello#1"}}
	id := func(d githubtest.Delivery) string { return one(t, d, known).ID }
	t1 := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	t2 := t1.Add(time.Second)

	// bug report 2
	comment := githubtest.IssueComment("created", 1)
	if a, b := id(comment), id(comment.Again()); a != b {
		t.Errorf("one comment from two hooks: %s, %s", a, b)
	}
	if a, b := id(comment), id(githubtest.IssueComment("created", 1, githubtest.Set("comment.updated_at", "2026-03-01T12:00:01Z"))); a != b {
		t.Errorf("a second between created and updated makes another id: %s, %s", a, b)
	}
	if a, b := id(comment), id(githubtest.IssueComment("created", 1, githubtest.ID(7))); a == b {
		t.Error("two comments share an id")
	}
	if a, b := id(githubtest.Issue("closed", 1, githubtest.At(t1))), id(githubtest.Issue("closed", 1, githubtest.At(t2))); a == b {
		t.Error("two closes share an id")
	}
	if a, b := id(githubtest.Issue("closed", 1, githubtest.At(t1))), id(githubtest.Issue("reopened", 1, githubtest.At(t1))); a == b {
		t.Error("close and reopen share an id")
	}
	opened := githubtest.Issue("opened", 1, githubtest.Labels("loopfleet"), githubtest.At(t1))
	if a, b := id(opened), id(githubtest.LabeledIssue(1, "loopfleet", githubtest.At(t1))); a != b {
		t.Errorf("a label given at creation has two ids: %s, %s", a, b)
	}
	// One id for all that failed on a commit.
	if a, b := id(githubtest.CheckRun("a", "failure", nil)), id(githubtest.Status("b", "error", githubtest.At(t2))); a != b {
		t.Errorf("two failures of one commit: %s, %s", a, b)
	}
	if a, b := id(githubtest.Status("b", "error")), id(githubtest.Status("b", "error", githubtest.Set("sha", "0000000"))); a == b {
		t.Error("failures of two commits share an id")
	}
	renamed := githubtest.IssueComment("created", 1, githubtest.Repo("octo/renamed", githubtest.DefaultRepoID))
	f := facts(t, renamed)
	f.Repo.KeyOwner, f.Repo.KeyName = "octo", "hello"
	s := router.Select(router.Route(f, routing()), known.view(t))
	// bug report 14
	if len(s.Events) != 1 || s.Events[0].WorkItem != ref(t, "octo/hello#1") || s.Events[0].ID != id(comment) {
		t.Errorf("after a rename: %v", outcome(s))
	}
}

func TestRoute_HugeTextIsCut(t *testing.T) {
	t.Parallel()
	e := one(t, githubtest.LabeledIssue(1, "loopfleet", githubtest.Text(strings.Repeat("👩", 1<<20)), githubtest.Title(strings.Repeat("t", 1<<20))), recorded{})
	b, err := e.Encode()
	if err != nil || !e.Truncated || len(b) > 200<<10 {
		t.Errorf("truncated %v, %d bytes, %v", e.Truncated, len(b), err)
	}
}

func TestAuthorise(t *testing.T) {
	t.Parallel()
	cfg := routing()
	open := cfg
	open.AuthorizedUsers, open.MinimumPermission = nil, "write"
	both := cfg
	both.AgentLogins = []string{"alice"}
	for name, tc := range map[string]struct {
		actor event.Actor
		kind  event.Kind
		cfg   config.Routing
		want  router.Reason
	}{
		"listed":                      {event.Actor{Login: "alice"}, event.Comment, cfg, ""},
		"listed, other case":          {event.Actor{Login: "dANA"}, event.Comment, cfg, ""},
		"not listed":                  {event.Actor{Login: "bob"}, event.Comment, cfg, router.UnauthorizedActor},
		"longer than a listed one":    {event.Actor{Login: "alice2"}, event.Comment, cfg, router.UnauthorizedActor},
		"kelvin sign":                 {event.Actor{Login: "\u212aarl"}, event.Comment, config.Routing{AuthorizedUsers: []string{"karl"}}, router.UnauthorizedActor},
		"nobody":                      {event.Actor{}, event.Comment, cfg, router.UnauthorizedActor},
		"nobody, empty entry":         {event.Actor{}, event.Comment, config.Routing{AuthorizedUsers: []string{""}}, router.UnauthorizedActor},
		"bot":                         {event.Actor{Login: "ci[bot]", Bot: true}, event.Comment, cfg, router.UnauthorizedActor},
		"bot, listed":                 {event.Actor{Login: "Dependabot[bot]", Bot: true}, event.Comment, cfg, ""},
		"agent":                       {event.Actor{Login: "OCTO-agent"}, event.Comment, cfg, router.AgentLogin},
		"agent, listed too":           {event.Actor{Login: "alice"}, event.Comment, both, router.AgentLogin},
		"empty list":                  {event.Actor{Login: "alice"}, event.Label, config.Routing{}, router.UnauthorizedActor},
		"empty list, permission":      {event.Actor{Login: "alice"}, event.Label, open, router.UnauthorizedActor},
		"close by nobody, empty list": {event.Actor{}, event.Close, config.Routing{}, ""},
		"ci, empty list":              {event.Actor{}, event.CI, config.Routing{}, ""},
		"review by a stranger":        {event.Actor{Login: "bob"}, event.Review, cfg, router.UnauthorizedActor},
		"reopen by a stranger":        {event.Actor{Login: "bob"}, event.Reopen, cfg, router.UnauthorizedActor},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ok, why := router.Authorise(tc.actor, tc.kind, tc.cfg)
			if ok != (tc.want == "") || why != tc.want {
				t.Errorf("got %v, %q; want %q", ok, why, tc.want)
			}
		})
	}
}
