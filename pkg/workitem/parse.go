package workitem

import (
	"fmt"
	"net/url"
	"strings"
)

// Parse reads the forms a person writes: octo/hello#42, github:octo/hello#42,
// github:git.example.com/octo/hello#42, and the URL of an issue or pull
// request. The error names the forms it takes.
func Parse(s string) (Ref, error) {
	s = strings.TrimSpace(s)
	if lower := strings.ToLower(s); strings.HasPrefix(lower, "https://") || strings.HasPrefix(lower, "http://") {
		return parseURL(s)
	}
	provider, rest := GitHub, s
	if p, after, ok := strings.Cut(s, ":"); ok && !strings.ContainsAny(p, "/#.") {
		provider, rest = p, after
	}
	path, number, ok := cutLast(rest, "#")
	if !ok {
		return Ref{}, fmt.Errorf("%w: %q: write it as octo/hello#42, github:host/octo/hello#42 or the issue's URL", ErrInvalid, s)
	}
	segs := strings.Split(path, "/")
	host := gitHubHost
	switch {
	case strings.EqualFold(provider, GitHub) && len(segs) == 2:
	case len(segs) >= 3:
		host, segs = segs[0], segs[1:]
	default:
		return Ref{}, fmt.Errorf("%w: %q: write it as octo/hello#42, github:host/octo/hello#42 or the issue's URL", ErrInvalid, s)
	}
	last := len(segs) - 1
	return New(provider, host, strings.Join(segs[:last], "/"), segs[last], number)
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func parseURL(s string) (Ref, error) {
	u, err := url.Parse(s)
	if err != nil {
		return Ref{}, fmt.Errorf("%w: %q: %w", ErrInvalid, s, err)
	}
	segs := strings.Split(strings.Trim(u.Path, "/"), "/")
	if len(segs) < 4 || (segs[2] != "issues" && segs[2] != "pull") {
		return Ref{}, fmt.Errorf("%w: %q is not the URL of an issue or pull request (https://host/owner/repo/issues/42)", ErrInvalid, s)
	}
	return New(GitHub, u.Host, segs[0], segs[1], segs[3])
}
