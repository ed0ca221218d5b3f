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
	if lower := strings.ToLower(clip(s)); strings.HasPrefix(lower, "https://") || strings.HasPrefix(lower, "http://") {
		return parseURL(s)
	}
	provider, rest := splitProvider(s)
	path, number, ok := cutLast(rest, "#")
	segs := strings.Split(path, "/")
	host := gitHubHost
	switch {
	case !ok:
		return Ref{}, badForm(s)
	case len(segs) == 2 && (provider == "" || strings.EqualFold(provider, GitHub)):
	case len(segs) >= 3 && (provider != "" || strings.ContainsAny(segs[0], ".:")):
		// Without a provider, octo/hello/docs#1 is more likely a slip than an
		// item on the host octo.
		host, segs = segs[0], segs[1:]
	default:
		return Ref{}, badForm(s)
	}
	if provider == "" {
		provider = GitHub
	}
	last := len(segs) - 1
	return New(provider, host, strings.Join(segs[:last], "/"), segs[last], number)
}

func badForm(s string) error {
	return fmt.Errorf("%w: %q: write it as octo/hello#42, github:host/octo/hello#42 or the issue's URL", ErrInvalid, clip(s))
}

// splitProvider cuts "github:" off. In localhost:3000/octo/hello#1 the word is a
// host and the digits its port; in github:3000/hello#1 they are an owner.
func splitProvider(s string) (provider, rest string) {
	p, after, ok := strings.Cut(s, ":")
	if !ok || !validProvider(strings.ToLower(p)) {
		return "", s
	}
	path, _, _ := cutLast(after, "#")
	if port, tail, _ := strings.Cut(path, "/"); validPort(port) && strings.Contains(tail, "/") {
		return "", s
	}
	return p, after
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
		return Ref{}, fmt.Errorf("%w: %q is no URL", ErrInvalid, clip(s))
	}
	segs := strings.Split(strings.Trim(u.Path, "/"), "/")
	if len(segs) < 4 || (segs[2] != "issues" && segs[2] != "pull") {
		return Ref{}, fmt.Errorf("%w: %q is not the URL of an issue or pull request (https://host/owner/repo/issues/42)", ErrInvalid, clip(s))
	}
	return New(GitHub, urlHost(u), segs[0], segs[1], segs[3])
}

// HostOf returns the case-folded host of an http or https URL as a Ref carries
// it: with a port only where it is not the scheme's own. ok is false when the
// URL has no usable host.
func HostOf(rawURL string) (host string, ok bool) {
	u, err := url.Parse(rawURL)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") {
		return "", false
	}
	host = urlHost(u)
	return host, validHost(host)
}

func urlHost(u *url.URL) string {
	host := strings.ToLower(u.Host)
	if u.Scheme == "https" {
		host = strings.TrimSuffix(host, ":443")
	} else {
		host = strings.TrimSuffix(host, ":80")
	}
	if host == "www."+gitHubHost { // its payloads carry the other name
		host = gitHubHost
	}
	return host
}
