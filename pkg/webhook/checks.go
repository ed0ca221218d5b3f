package webhook

import (
	"loopfleet/pkg/event"
)

type workflowRunEvent struct {
	envelope
	WorkflowRun struct {
		Name         string        `json:"name"`
		DisplayTitle string        `json:"display_title"`
		Conclusion   string        `json:"conclusion"`
		HeadSHA      string        `json:"head_sha"`
		HTMLURL      string        `json:"html_url"`
		UpdatedAt    moment        `json:"updated_at"`
		PullRequests []checkedPull `json:"pull_requests"`
		// HeadRepository is null when a fork was deleted.
		HeadRepository *struct {
			ID int64 `json:"id"`
		} `json:"head_repository"`
	} `json:"workflow_run"`
}

func (e *workflowRunEvent) page() string { return e.WorkflowRun.HTMLURL }

func (e *workflowRunEvent) facts(f *event.Facts) {
	r := &e.WorkflowRun
	f.Check = &event.Check{
		Name: r.Name, Conclusion: r.Conclusion, SHA: r.HeadSHA, Title: r.DisplayTitle, URL: r.HTMLURL, At: r.UpdatedAt.at,
		Head: event.HeadFork, PullRequests: checkedPulls(r.PullRequests, f.Repo.ID),
	}
	if r.HeadRepository != nil && r.HeadRepository.ID == f.Repo.ID {
		f.Check.Head = event.HeadOwn
	}
}

// checkedPull is a pull request as CI events name it.
type checkedPull struct {
	Number int64  `json:"number"`
	Head   branch `json:"head"`
	Base   branch `json:"base"`
}

// checkedPulls keeps the pull requests of this repository. GitHub also names
// those that this repository's branch has in another one, whose numbers mean
// nothing here.
func checkedPulls(pulls []checkedPull, repoID int64) []event.CheckedPull {
	var out []event.CheckedPull
	for _, p := range pulls {
		if p.Number <= 0 || p.Base.Repo != nil && p.Base.Repo.ID != repoID {
			continue
		}
		out = append(out, event.CheckedPull{Number: p.Number, HeadSHA: p.Head.SHA, Head: p.Head.of(repoID)})
	}
	return out
}

type app struct {
	Name string `json:"name"`
}

type checkRunEvent struct {
	envelope
	CheckRun struct {
		Name         string        `json:"name"`
		Conclusion   string        `json:"conclusion"`
		HeadSHA      string        `json:"head_sha"`
		HTMLURL      string        `json:"html_url"`
		CompletedAt  moment        `json:"completed_at"`
		PullRequests []checkedPull `json:"pull_requests"`
		Output       struct {
			Title   string `json:"title"`
			Summary string `json:"summary"`
		} `json:"output"`
	} `json:"check_run"`
}

func (e *checkRunEvent) page() string { return e.CheckRun.HTMLURL }

func (e *checkRunEvent) facts(f *event.Facts) {
	r := &e.CheckRun
	f.Check = &event.Check{
		Name: r.Name, Conclusion: r.Conclusion, SHA: r.HeadSHA, Title: r.Output.Title, Summary: r.Output.Summary,
		URL: r.HTMLURL, At: r.CompletedAt.at, PullRequests: checkedPulls(r.PullRequests, f.Repo.ID),
	}
}

type checkSuiteEvent struct {
	envelope
	CheckSuite struct {
		Conclusion   string        `json:"conclusion"`
		HeadSHA      string        `json:"head_sha"`
		UpdatedAt    moment        `json:"updated_at"`
		PullRequests []checkedPull `json:"pull_requests"`
		App          app           `json:"app"`
	} `json:"check_suite"`
}

// page is empty: a suite has none.
func (e *checkSuiteEvent) page() string { return "" }

func (e *checkSuiteEvent) facts(f *event.Facts) {
	s := &e.CheckSuite
	f.Check = &event.Check{
		Name: s.App.Name, Conclusion: s.Conclusion, SHA: s.HeadSHA, At: s.UpdatedAt.at,
		PullRequests: checkedPulls(s.PullRequests, f.Repo.ID),
	}
}

type statusEvent struct {
	envelope
	SHA         string `json:"sha"`
	State       string `json:"state"`
	Context     string `json:"context"`
	Description string `json:"description"`
	TargetURL   string `json:"target_url"`
	UpdatedAt   moment `json:"updated_at"`
}

// page is empty: the target is whatever the status's author wrote.
func (e *statusEvent) page() string { return "" }

func (e *statusEvent) facts(f *event.Facts) {
	f.Check = &event.Check{
		Name: e.Context, Conclusion: e.State, SHA: e.SHA, Title: e.Description, URL: e.TargetURL, At: e.UpdatedAt.at,
	}
}
