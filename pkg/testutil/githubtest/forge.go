package githubtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"loopfleet/pkg/workitem"
)

// Forge plays the part of GitHub's REST API that tickets are told things
// through: listing and adding comments of an issue or pull request. It keeps
// what is posted, and is strict: a request that GitHub would not understand, or
// one that it has no part for, fails the test.
type Forge struct {
	tb    testing.TB
	srv   *httptest.Server
	token string

	mu       sync.Mutex
	items    map[string]*forgeItem
	moved    map[string]string
	answers  []Answer
	requests []string
	next     int64
}

type forgeItem struct {
	comments []Comment
	// refuse is what every request to it is answered with; 0 for none.
	refuse int
}

// Comment is what the forge has of one.
type Comment struct {
	ID        int64
	Body      string
	URL       string
	UpdatedAt time.Time
}

// Answer is what one request is answered with, instead of being served.
type Answer struct {
	Status int
	Header map[string]string
	// Serve does what is asked first, so that the answer to it is lost.
	Serve bool
	// Then is called before the answer.
	Then func()
}

// NewForge starts one that knows the token. It ends with the test.
func NewForge(tb testing.TB, token string) *Forge {
	tb.Helper()
	f := &Forge{tb: tb, token: token, items: map[string]*forgeItem{}, moved: map[string]string{}, next: 1000}
	f.srv = httptest.NewServer(http.HandlerFunc(f.serve))
	tb.Cleanup(f.srv.Close)
	return f
}

// URL is the address of the API, as a GitHub Enterprise has it.
func (f *Forge) URL() string { return f.srv.URL + "/api/v3" }

// Host is the host of its work items.
func (f *Forge) Host() string {
	host, _ := workitem.HostOf(f.srv.URL)
	return host
}

// Ref names an item of it, and makes the item.
func (f *Forge) Ref(owner, repo string, number int) workitem.Ref {
	f.tb.Helper()
	r, err := workitem.New(workitem.GitHub, f.Host(), owner, repo, strconv.Itoa(number))
	if err != nil {
		f.tb.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items[itemPath(r)] = &forgeItem{}
	return r
}

func itemPath(r workitem.Ref) string { return r.Owner + "/" + r.Repo + "/" + r.Number }

// Refuse answers every request about the item with a status: 403 for a token
// without permission, 404, 410. Zero serves them again.
func (f *Forge) Refuse(r workitem.Ref, status int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items[itemPath(r)].refuse = status
}

// Rename redirects a repository's old name.
func (f *Forge) Rename(owner, repo, newRepo string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moved[owner+"/"+repo] = owner + "/" + newRepo
	for path, it := range f.items {
		if n, ok := strings.CutPrefix(path, owner+"/"+repo+"/"); ok {
			f.items[owner+"/"+newRepo+"/"+n] = it
			delete(f.items, path)
		}
	}
}

// SetToken makes another token the one it knows.
func (f *Forge) SetToken(token string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.token = token
}

// Next sets what the next requests are answered with, one each; those after
// them are served.
func (f *Forge) Next(answers ...Answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers = append(f.answers, answers...)
}

// Comment adds one as somebody else would.
func (f *Forge) Comment(r workitem.Ref, body string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.add(f.items[itemPath(r)], itemPath(r), body, at)
}

// Comments returns what an item has.
func (f *Forge) Comments(r workitem.Ref) []Comment {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.items[itemPath(r)].comments)
}

// Requests lists what was asked so far: method and path with query.
func (f *Forge) Requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

func (f *Forge) add(it *forgeItem, path, body string, at time.Time) Comment {
	f.next++
	c := Comment{ID: f.next, Body: body, UpdatedAt: at, URL: fmt.Sprintf("%s/%s#issuecomment-%d", f.srv.URL, path, f.next)}
	it.comments = append(it.comments, c)
	return c
}

func (f *Forge) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, r.Method+" "+r.URL.RequestURI())
	var a *Answer
	if len(f.answers) > 0 {
		a, f.answers = &f.answers[0], f.answers[1:]
	}
	f.mu.Unlock()
	if a != nil {
		if a.Serve {
			f.handle(httptest.NewRecorder(), r)
		}
		if a.Then != nil {
			a.Then()
		}
		for k, v := range a.Header {
			w.Header().Set(k, v)
		}
		answer(w, a.Status)
		return
	}
	f.handle(w, r)
}

func (f *Forge) handle(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+f.token {
		answer(w, http.StatusUnauthorized)
		return
	}
	if !strings.Contains(r.Header.Get("Accept"), "application/vnd.github") {
		f.tb.Errorf("githubtest: %s %s accepts %q", r.Method, r.URL, r.Header.Get("Accept"))
	}
	segs := strings.Split(strings.ToLower(strings.TrimPrefix(r.URL.Path, "/api/v3/repos/")), "/")
	if !strings.HasPrefix(r.URL.Path, "/api/v3/repos/") || len(segs) != 5 || segs[2] != "issues" || segs[4] != "comments" {
		f.tb.Errorf("githubtest: the forge has no part for %s %s", r.Method, r.URL)
		answer(w, http.StatusNotFound)
		return
	}
	if to, ok := f.moved[segs[0]+"/"+segs[1]]; ok {
		u := url.URL{Path: "/api/v3/repos/" + to + "/issues/" + segs[3] + "/comments", RawQuery: r.URL.RawQuery}
		w.Header().Set("Location", u.String())
		answer(w, http.StatusMovedPermanently)
		return
	}
	path := segs[0] + "/" + segs[1] + "/" + segs[3]
	it := f.items[path]
	switch {
	case it == nil:
		answer(w, http.StatusNotFound)
	case it.refuse != 0:
		answer(w, it.refuse)
	case r.Method == http.MethodGet:
		f.list(w, r, it)
	case r.Method == http.MethodPost:
		f.create(w, r, it, path)
	default:
		f.tb.Errorf("githubtest: the forge has no part for %s %s", r.Method, r.URL)
		answer(w, http.StatusNotFound)
	}
}

func (f *Forge) list(w http.ResponseWriter, r *http.Request, it *forgeItem) {
	q := r.URL.Query()
	per, page, since := 30, 1, time.Time{}
	for name := range q {
		var err error
		switch v := q.Get(name); name {
		case "per_page":
			if per, err = strconv.Atoi(v); err == nil && (per < 1 || per > 100) {
				err = fmt.Errorf("out of range")
			}
		case "page":
			page, err = strconv.Atoi(v)
		case "since":
			since, err = time.Parse(time.RFC3339, v)
		default:
			err = fmt.Errorf("unknown")
		}
		if err != nil {
			f.tb.Errorf("githubtest: %s: parameter %s: %v", r.URL, name, err)
			answer(w, http.StatusUnprocessableEntity)
			return
		}
	}
	var all []map[string]any
	for _, c := range it.comments {
		if !c.UpdatedAt.Before(since) {
			all = append(all, c.json())
		}
	}
	from, to := min((page-1)*per, len(all)), min(page*per, len(all))
	if to < len(all) {
		q.Set("page", strconv.Itoa(page+1))
		w.Header().Set("Link", fmt.Sprintf(`<%s%s?%s>; rel="next"`, f.srv.URL, r.URL.Path, q.Encode()))
	}
	writeJSON(w, http.StatusOK, append([]map[string]any{}, all[from:to]...))
}

func (c Comment) json() map[string]any {
	return map[string]any{
		"id": c.ID, "body": c.Body, "html_url": c.URL,
		"created_at": c.UpdatedAt.UTC().Format(time.RFC3339), "updated_at": c.UpdatedAt.UTC().Format(time.RFC3339),
		"user": map[string]any{"login": "operator", "id": 1, "type": "User"},
	}
}

func (f *Forge) create(w http.ResponseWriter, r *http.Request, it *forgeItem, path string) {
	var in struct {
		Body *string `json:"body"`
	}
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil || in.Body == nil || strings.TrimSpace(*in.Body) == "" {
		f.tb.Errorf("githubtest: comment on %s: %v", path, err)
		answer(w, http.StatusUnprocessableEntity)
		return
	}
	const maxBody = 65536
	if len([]rune(*in.Body)) > maxBody {
		answer(w, http.StatusUnprocessableEntity)
		return
	}
	writeJSON(w, http.StatusCreated, f.add(it, path, *in.Body, time.Now()).json())
}

func answer(w http.ResponseWriter, status int) {
	writeJSON(w, status, map[string]any{"message": http.StatusText(status), "documentation_url": "https://docs.github.com/rest"})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
