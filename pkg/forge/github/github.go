package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	gh "github.com/google/go-github/v93/github"

	"loopfleet/pkg/config"
	"loopfleet/pkg/event"
	"loopfleet/pkg/forge"
	"loopfleet/pkg/workitem"
)

const (
	// requestTimeout bounds one request; GitHub ends its own after 10 s.
	requestTimeout = 20 * time.Second
	perPage        = 100
	// secondaryWait is how long to stay away after a secondary limit that does
	// not say; GitHub asks for at least a minute.
	secondaryWait = time.Minute
	// maxComment is GitHub's limit of a comment, in characters.
	maxComment = 65536
)

// Client talks to one GitHub. It is safe for concurrent use.
type Client struct {
	api  *gh.Client
	host string
}

var _ forge.Poster = (*Client)(nil)

// Poster returns the Poster that the configuration describes, nil when it has no
// token. A token file that cannot be read is an error.
func Poster(cfg config.GitHub, getenv func(string) string) (forge.Poster, error) {
	token, err := Token(cfg, getenv)
	if err != nil || token == nil {
		return nil, err
	}
	return New(cfg.APIURL, token)
}

// TokenFunc returns the token to use now.
type TokenFunc func() (string, error)

// Token finds the token of the configuration: tokenFile, else the variable that
// tokenEnv names. Nil means that there is none.
func Token(cfg config.GitHub, getenv func(string) string) (TokenFunc, error) {
	if cfg.TokenFile != "" {
		read := func() (string, error) {
			b, err := os.ReadFile(cfg.TokenFile)
			if err != nil {
				return "", fmt.Errorf("read github.tokenFile: %w", err)
			}
			t := strings.TrimSpace(string(b))
			if t == "" {
				return "", fmt.Errorf("github.tokenFile %s is empty", cfg.TokenFile)
			}
			return t, nil
		}
		if _, err := read(); err != nil {
			return nil, err
		}
		return read, nil
	}
	if cfg.TokenEnv == "" {
		return nil, nil
	}
	token := strings.TrimSpace(getenv(cfg.TokenEnv))
	if token == "" {
		return nil, nil
	}
	return func() (string, error) { return token, nil }, nil
}

// New returns a client of the REST API at apiURL: https://api.github.com, or
// https://HOST/api/v3 of GitHub Enterprise.
func New(apiURL string, token TokenFunc) (*Client, error) {
	u, err := url.Parse(apiURL)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("github.apiUrl %q is no URL", apiURL)
	}
	host, ok := hostOf(u)
	if !ok {
		return nil, fmt.Errorf("github.apiUrl %q has no usable host", apiURL)
	}
	api, err := gh.NewClient(
		gh.WithHTTPClient(&http.Client{CheckRedirect: keepMethod}), gh.WithURLs(&apiURL, nil), gh.WithTimeout(requestTimeout), gh.WithUserAgent("loopfleet"),
		gh.WithTransport(&authorized{base: http.DefaultTransport, scheme: u.Scheme, host: u.Host, token: token}),
	)
	if err != nil {
		return nil, fmt.Errorf("github client for %s: %w", apiURL, err)
	}
	return &Client{api: api, host: host}, nil
}

// hostOf is the host that work items of this API carry.
func hostOf(u *url.URL) (string, bool) {
	v := *u
	v.Host = strings.ToLower(v.Host)
	// api.github.com, and api.NAME.ghe.com of GitHub Enterprise Cloud.
	if name, ok := strings.CutPrefix(v.Host, "api."); ok && (name == "github.com" || strings.HasSuffix(name, ".ghe.com")) {
		v.Host = name
	}
	return workitem.HostOf(v.String())
}

// authorized adds the token to requests to the API's own host.
type authorized struct {
	base         http.RoundTripper
	scheme, host string
	token        TokenFunc
}

// RoundTrip sends the request.
func (a *authorized) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme == a.scheme && strings.EqualFold(req.URL.Host, a.host) {
		token, err := a.token()
		if err != nil {
			return nil, err
		}
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return a.base.RoundTrip(req)
}

// keepMethod lets a post to a renamed repository arrive as a post: a client
// would make a GET of it after 301 and 302, read the comments, and call that
// success.
func keepMethod(req *http.Request, via []*http.Request) error {
	const most = 5
	first := via[0]
	switch {
	case len(via) > most:
		return fmt.Errorf("more than %d redirects", most)
	case req.Method == first.Method:
		return nil
	case first.GetBody == nil:
		return http.ErrUseLastResponse
	}
	body, err := first.GetBody()
	if err != nil {
		return fmt.Errorf("send the body again after a redirect: %w", err)
	}
	req.Method, req.Body, req.GetBody, req.ContentLength = first.Method, body, first.GetBody, first.ContentLength
	req.Header.Set("Content-Type", first.Header.Get("Content-Type"))
	return nil
}

// Post adds a comment.
func (c *Client) Post(ctx context.Context, item workitem.Ref, body string) (string, error) {
	owner, repo, number, err := c.place(item)
	if err != nil {
		return "", fmt.Errorf("post on %s: %w", item, err)
	}
	if !hasLine(body, event.Marker) {
		body = strings.TrimRight(body, "\n") + "\n\n" + event.Marker
	}
	if n := len([]rune(body)); n > maxComment {
		return "", fmt.Errorf("post on %s: %w", item, &forge.PermanentError{Cause: forge.Refused, Err: fmt.Errorf("the comment has %d characters, GitHub takes %d", n, maxComment)})
	}
	made, _, err := c.api.Issues.CreateComment(ctx, owner, repo, number, gh.IssueCommentRequest{Body: body})
	if err != nil {
		return "", fmt.Errorf("post on %s: %w", item, classify(err, time.Now()))
	}
	return made.GetHTMLURL(), nil
}

// Posted looks through the comments since a time for one with the marker.
func (c *Client) Posted(ctx context.Context, item workitem.Ref, marker string, since time.Time) (bool, error) {
	owner, repo, number, err := c.place(item)
	if err != nil {
		return false, fmt.Errorf("read the comments of %s: %w", item, err)
	}
	opts := &gh.IssueListCommentsOptions{ListOptions: gh.ListOptions{PerPage: perPage}}
	if !since.IsZero() {
		s := since.UTC().Truncate(time.Second)
		opts.Since = &s
	}
	for {
		page, resp, err := c.api.Issues.ListComments(ctx, owner, repo, number, opts)
		if err != nil {
			return false, fmt.Errorf("read the comments of %s: %w", item, classify(err, time.Now()))
		}
		for _, m := range page {
			if hasLine(m.GetBody(), marker) {
				return true, nil
			}
		}
		if resp.NextPage == 0 {
			return false, nil
		}
		opts.Page = resp.NextPage
	}
}

// firstNameSuffix is what the key of a repository ends in that took the freed
// name of an older one; see registry.Canonical. GitHub allows no @ in names.
var firstNameSuffix = regexp.MustCompile(`@[0-9]+$`)

// place is where the API has the item.
func (c *Client) place(item workitem.Ref) (owner, repo string, number int, err error) {
	if item.Provider != workitem.GitHub || item.Host != c.host {
		return "", "", 0, &forge.PermanentError{Cause: forge.Foreign, Err: fmt.Errorf("it is not on %s", c.host)}
	}
	if number, err = strconv.Atoi(item.Number); err != nil {
		return "", "", 0, &forge.PermanentError{Cause: forge.Foreign, Err: fmt.Errorf("GitHub has no item %q: %w", item.Number, err)}
	}
	repo = firstNameSuffix.ReplaceAllString(item.Repo, "")
	// Names come from payloads; what is put into a path is escaped.
	return url.PathEscape(item.Owner), url.PathEscape(repo), number, nil
}

func hasLine(text, line string) bool {
	for l := range strings.Lines(text) {
		if strings.Trim(l, " \t\r\n") == line {
			return true
		}
	}
	return false
}

// classify says whether trying again helps.
func classify(err error, now time.Time) error {
	if e, ok := errors.AsType[*gh.RateLimitError](err); ok {
		return &forge.RateLimitError{RetryAfter: e.Rate.Reset.Sub(now), Err: err}
	}
	if e, ok := errors.AsType[*gh.AbuseRateLimitError](err); ok {
		wait := secondaryWait
		if e.RetryAfter != nil {
			wait = *e.RetryAfter
		}
		return &forge.RateLimitError{RetryAfter: wait, Err: err}
	}
	e, ok := errors.AsType[*gh.ErrorResponse](err)
	if !ok || e.Response == nil {
		return err
	}
	switch code := e.Response.StatusCode; {
	case code == http.StatusTooManyRequests, e.Response.Header.Get("Retry-After") != "" && code == http.StatusForbidden:
		return &forge.RateLimitError{RetryAfter: retryAfter(e.Response), Err: err}
	case code == http.StatusUnauthorized:
		return &forge.CredentialsError{Err: err}
	case code == http.StatusForbidden:
		return &forge.PermanentError{Cause: forge.Forbidden, Err: err}
	case code == http.StatusNotFound, code == http.StatusGone:
		return &forge.PermanentError{Cause: forge.Gone, Err: err}
	case code == http.StatusRequestTimeout, code == http.StatusConflict:
		return err
	case code >= 400 && code < 500:
		return &forge.PermanentError{Cause: forge.Refused, Err: err}
	default:
		return err
	}
}

// retryAfter is what the answer asks for, in its seconds.
func retryAfter(r *http.Response) time.Duration {
	n, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if err != nil || n < 0 {
		return secondaryWait
	}
	return time.Duration(n) * time.Second
}
