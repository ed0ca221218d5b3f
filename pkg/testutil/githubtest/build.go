package githubtest

import (
	"fmt"
	"strings"
	"time"
)

// What a delivery says unless an option says otherwise.
const (
	DefaultRepo   = "octo/hello"
	DefaultRepoID = 186853002
	DefaultSender = "alice"
	DefaultSHA    = "ec26c3e57ca3a959ca5aad62de7213c562f8c821"
)

// DefaultTime is the time of every event without the option At.
var DefaultTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func stamp() string { return DefaultTime.Format(time.RFC3339) }

// Account is a user; logins that end in [bot] are bots.
func Account(login string) map[string]any {
	kind := "User"
	if strings.HasSuffix(login, "[bot]") {
		kind = "Bot"
	}
	id := int64(1)
	for _, c := range login {
		id = (id*31 + int64(c)) % 90_000_000
	}
	return map[string]any{
		"login": login, "id": id, "node_id": fmt.Sprintf("U_%d", id), "avatar_url": "https://avatars.githubusercontent.com/u/1?v=4",
		"gravatar_id": "", "url": "https://api.github.com/users/" + login, "html_url": "https://github.com/" + login,
		"type": kind, "site_admin": false,
	}
}

// Repository is a public repository.
func Repository(fullName string, id int64) map[string]any {
	owner, name, _ := strings.Cut(fullName, "/")
	return map[string]any{
		"id": id, "node_id": fmt.Sprintf("R_%d", id), "name": name, "full_name": fullName, "private": false, "fork": false,
		"owner": Account(owner), "html_url": "https://github.com/" + fullName, "url": "https://api.github.com/repos/" + fullName,
		"description": nil, "created_at": stamp(), "updated_at": stamp(), "pushed_at": stamp(), "default_branch": "main",
		"archived": false, "disabled": false, "visibility": "public", "topics": []any{},
	}
}

func labelObject(name string) map[string]any {
	return map[string]any{
		"id": 1362934389, "node_id": "LA_1", "url": "https://api.github.com/repos/" + DefaultRepo + "/labels/x",
		"name": name, "color": "d73a4a", "default": false, "description": nil,
	}
}

func build(event, action string, payload map[string]any, opts []Option) Delivery {
	if action != "" {
		payload["action"] = action
	}
	if _, ok := payload["repository"]; !ok {
		payload["repository"] = Repository(DefaultRepo, DefaultRepoID)
	}
	payload["sender"] = Account(DefaultSender)
	d := Delivery{Event: event, GUID: guid(), Payload: payload}
	for _, o := range opts {
		o(&d)
	}
	return d
}

func itemObject(kind string, number int64, action string) map[string]any {
	page := fmt.Sprintf("https://github.com/%s/%s/%d", DefaultRepo, kind, number)
	m := map[string]any{
		"url": "https://api.github.com/repos/" + DefaultRepo + "/issues/" + fmt.Sprint(number), "id": 444_500_000 + number, "node_id": "I_1",
		"html_url": page, "number": number, "title": "Spelling error in the README", "user": Account("bob"), "labels": []any{},
		"state": "open", "locked": false, "assignee": nil, "assignees": []any{}, "milestone": nil, "comments": 0,
		"created_at": stamp(), "updated_at": stamp(), "closed_at": nil, "author_association": "CONTRIBUTOR",
		"active_lock_reason": nil, "body": "It looks like you misspelled \"commit\".",
	}
	if action == "closed" {
		m["state"], m["closed_at"] = "closed", stamp()
	}
	return m
}

func issueObject(number int64, action string) map[string]any {
	m := itemObject("issues", number, action)
	m["state_reason"] = nil
	return m
}

func pullObject(number int64, action string) map[string]any {
	m := itemObject("pull", number, action)
	branch := func(ref, sha string) map[string]any {
		return map[string]any{
			"label": "octo:" + ref, "ref": ref, "sha": sha, "user": Account("octo"), "repo": Repository(DefaultRepo, DefaultRepoID),
		}
	}
	m["title"], m["body"] = "Fix the spelling", "This corrects it."
	m["head"], m["base"] = branch("changes", DefaultSHA), branch("main", "f95f852bd8fca8fcc58a9a2d6c842781e32a215e")
	m["draft"], m["merged"], m["mergeable"], m["merged_at"], m["merged_by"], m["merge_commit_sha"] = false, false, nil, nil, nil, nil
	m["commits"], m["additions"], m["deletions"], m["changed_files"] = 1, 1, 1, 1
	m["requested_reviewers"], m["requested_teams"] = []any{}, []any{}
	return m
}

// Issue is an issues event: opened, labeled, closed, reopened, edited, ...
func Issue(action string, number int64, opts ...Option) Delivery {
	p := map[string]any{"issue": issueObject(number, action)}
	if action == "labeled" || action == "unlabeled" {
		p["label"] = labelObject("bug")
	}
	return build("issues", action, p, opts)
}

// LabeledIssue is the event of this label being put on an issue.
func LabeledIssue(number int64, label string, opts ...Option) Delivery {
	return Issue("labeled", number, append([]Option{Labels(label), Label(label)}, opts...)...)
}

// IssueComment is a comment on an issue: created, edited or deleted.
func IssueComment(action string, number int64, opts ...Option) Delivery {
	return build("issue_comment", action, map[string]any{
		"issue": issueObject(number, ""), "comment": commentObject(number, "issuecomment"),
	}, opts)
}

// PullRequestComment is a comment on a pull request's conversation, which
// GitHub sends as issue_comment.
func PullRequestComment(action string, number int64, opts ...Option) Delivery {
	issue := itemObject("pull", number, "")
	page := fmt.Sprintf("https://github.com/%s/pull/%d", DefaultRepo, number)
	issue["pull_request"] = map[string]any{
		"url": "https://api.github.com/repos/" + DefaultRepo + "/pulls/" + fmt.Sprint(number), "html_url": page,
		"diff_url": page + ".diff", "patch_url": page + ".patch", "merged_at": nil,
	}
	return build("issue_comment", action, map[string]any{"issue": issue, "comment": commentObject(number, "issuecomment")}, opts)
}

func commentObject(number int64, anchor string) map[string]any {
	id := 492_700_000 + number
	return map[string]any{
		"url": "https://api.github.com/repos/" + DefaultRepo + "/issues/comments/1", "id": id, "node_id": "IC_1",
		"html_url": fmt.Sprintf("https://github.com/%s/issues/%d#%s-%d", DefaultRepo, number, anchor, id),
		"user":     Account(DefaultSender), "created_at": stamp(), "updated_at": stamp(), "author_association": "MEMBER",
		"body": "Please fix that.", "performed_via_github_app": nil,
	}
}

// PullRequest is a pull_request event: opened, synchronize, labeled, closed, ...
func PullRequest(action string, number int64, opts ...Option) Delivery {
	p := map[string]any{"number": number, "pull_request": pullObject(number, action)}
	if action == "labeled" || action == "unlabeled" {
		p["label"] = labelObject("bug")
	}
	return build("pull_request", action, p, opts)
}

// MergedPullRequest is the closed event of a pull request that was merged.
func MergedPullRequest(number int64, opts ...Option) Delivery {
	return PullRequest("closed", number, append([]Option{
		Set("pull_request.merged", true), Set("pull_request.merged_at", stamp()), Set("pull_request.merged_by", Account(DefaultSender)),
	}, opts...)...)
}

// Fork makes the pull request's head a fork's.
func Fork() Option { return Set("pull_request.head.repo", Repository("stranger/hello", 99)) }

// DeletedFork makes it the head of a fork that is gone.
func DeletedFork() Option { return Null("pull_request.head.repo") }

// Review is a pull_request_review event: submitted, edited or dismissed. State
// is commented, approved or changes_requested.
func Review(action string, number int64, state string, opts ...Option) Delivery {
	id := 237_800_000 + number
	return build("pull_request_review", action, map[string]any{
		"pull_request": pullObject(number, ""),
		"review": map[string]any{
			"id": id, "node_id": "PRR_1", "user": Account(DefaultSender), "body": "Nearly there.", "commit_id": DefaultSHA,
			"submitted_at": stamp(), "state": state, "author_association": "MEMBER",
			"html_url": fmt.Sprintf("https://github.com/%s/pull/%d#pullrequestreview-%d", DefaultRepo, number, id),
		},
	}, opts)
}

// ReviewComment is a comment on a line: created, edited or deleted.
func ReviewComment(action string, number int64, path string, line int, opts ...Option) Delivery {
	c := commentObject(number, "discussion_r")
	c["path"], c["line"], c["original_line"], c["side"], c["commit_id"] = path, line, line, "RIGHT", DefaultSHA
	c["pull_request_review_id"], c["diff_hunk"] = 237_800_000+number, "@@ -1 +1 @@\n-# Hello\n+# Helo"
	return build("pull_request_review_comment", action, map[string]any{"pull_request": pullObject(number, ""), "comment": c}, opts)
}

func checkedPull(number int64) map[string]any {
	repo := func() map[string]any {
		return map[string]any{"id": DefaultRepoID, "url": "https://api.github.com/repos/" + DefaultRepo, "name": "hello"}
	}
	return map[string]any{
		"url": "https://api.github.com/repos/" + DefaultRepo + "/pulls/" + fmt.Sprint(number), "id": 279_147_000 + number, "number": number,
		"head": map[string]any{"ref": "changes", "sha": DefaultSHA, "repo": repo()},
		"base": map[string]any{"ref": "main", "sha": "f95f852bd8fca8fcc58a9a2d6c842781e32a215e", "repo": repo()},
	}
}

func checkObject(name, conclusion string, pulls []int64) map[string]any {
	list := make([]any, 0, len(pulls))
	for _, n := range pulls {
		list = append(list, checkedPull(n))
	}
	return map[string]any{
		"id": 128_620_228, "name": name, "head_sha": DefaultSHA, "head_branch": "changes", "status": "completed", "conclusion": conclusion,
		"html_url": "https://github.com/" + DefaultRepo + "/runs/128620228", "started_at": stamp(), "completed_at": stamp(),
		"created_at": stamp(), "updated_at": stamp(), "pull_requests": list,
	}
}

// CheckRun is a completed check of DefaultSHA, on the pull requests given.
func CheckRun(name, conclusion string, pulls []int64, opts ...Option) Delivery {
	c := checkObject(name, conclusion, pulls)
	c["output"] = map[string]any{"title": "1 test failed", "summary": "TestHello failed", "text": nil, "annotations_count": 0}
	return build("check_run", "completed", map[string]any{"check_run": c}, opts)
}

// CheckSuite is the completion of all checks of one app.
func CheckSuite(app, conclusion string, pulls []int64, opts ...Option) Delivery {
	c := checkObject("", conclusion, pulls)
	delete(c, "name")
	c["app"] = map[string]any{"id": 29310, "slug": "ci", "name": app}
	return build("check_suite", "completed", map[string]any{"check_suite": c}, opts)
}

// WorkflowRun is a completed run of a workflow.
func WorkflowRun(name, conclusion string, pulls []int64, opts ...Option) Delivery {
	c := checkObject(name, conclusion, pulls)
	c["display_title"], c["event"], c["run_number"] = "Fix the spelling", "pull_request", 1
	c["head_repository"], c["triggering_actor"] = Repository(DefaultRepo, DefaultRepoID), Account(DefaultSender)
	return build("workflow_run", "completed", map[string]any{"workflow_run": c, "workflow": map[string]any{"id": 1, "name": name}}, opts)
}

// Status is a commit status: pending, success, failure or error.
func Status(context, state string, opts ...Option) Delivery {
	return build("status", "", map[string]any{
		"id": 6805126730, "sha": DefaultSHA, "name": DefaultRepo, "target_url": "https://ci.example.com/1", "context": context,
		"description": "1 test failed", "state": state, "branches": []any{}, "created_at": stamp(), "updated_at": stamp(),
	}, opts)
}

// Ping is what GitHub sends when a hook is made.
func Ping(opts ...Option) Delivery {
	return build("ping", "", map[string]any{
		"zen": "Non-blocking is better than blocking.", "hook_id": 12312312, "hook": map[string]any{"type": "Repository", "active": true},
	}, opts)
}
