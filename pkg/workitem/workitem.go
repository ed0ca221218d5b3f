package workitem

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// GitHub is the provider whose items need no prefix in keys.
const GitHub = "github"

// gitHubHost is the public forge; it is left out when an item is printed.
const gitHubHost = "github.com"

// maxPart bounds each part of a Ref in bytes. GitHub allows 39 for an owner and
// 100 for a repository; nested groups of other forges are longer.
const maxPart = 255

// ErrInvalid is wrapped by every error that New, Parse and the key parsers
// return.
var ErrInvalid = errors.New("not a work item")

// Ref names one work item. The zero value names none. All fields are
// case-folded; make a Ref with New, Parse or one of the key parsers only.
type Ref struct {
	// Provider is the kind of forge: "github".
	Provider string
	// Host is the forge's host name, with a port if it has one.
	Host string
	// Owner is the account, organisation or group; nested groups keep their
	// slashes.
	Owner string
	// Repo is the repository's name.
	Repo string
	// Number is the item's number. Forges that count issues and merge
	// requests apart prefix a letter (i12, m12).
	Number string
}

// New returns the case-folded Ref of the given parts. It refuses empty parts,
// invalid UTF-8, control characters and white space, and parts over 255 bytes.
func New(provider, host, owner, repo, number string) (Ref, error) {
	r := Ref{
		Provider: strings.ToLower(provider),
		Host:     strings.ToLower(host),
		Owner:    strings.ToLower(owner),
		Repo:     strings.ToLower(repo),
		Number:   strings.ToLower(number),
	}
	for _, p := range []struct{ name, value, forbidden string }{
		{"provider", r.Provider, ":/#"},
		{"host", r.Host, "/#"},
		{"owner", r.Owner, ":#"},
		{"repository", r.Repo, "/#"},
		{"number", r.Number, "/#:"},
	} {
		if err := checkPart(p.value, p.forbidden); err != nil {
			return Ref{}, fmt.Errorf("%w: %s %q: %w", ErrInvalid, p.name, p.value, err)
		}
	}
	for seg := range strings.SplitSeq(r.Owner, "/") {
		if seg == "" {
			return Ref{}, fmt.Errorf("%w: owner %q has an empty group", ErrInvalid, r.Owner)
		}
	}
	if !validNumber(r.Number) {
		return Ref{}, fmt.Errorf("%w: number %q must be digits without a leading zero, with at most one letter before them", ErrInvalid, r.Number)
	}
	return r, nil
}

func checkPart(s, forbidden string) error {
	switch {
	case s == "":
		return errors.New("is empty")
	case len(s) > maxPart:
		return fmt.Errorf("is longer than %d bytes", maxPart)
	case !utf8.ValidString(s):
		return errors.New("is not valid UTF-8")
	case strings.ContainsAny(s, forbidden):
		return fmt.Errorf("may not contain any of %q", forbidden)
	case strings.ToLower(s) != s:
		return errors.New("cannot be case-folded")
	}
	for _, c := range s {
		if unicode.IsControl(c) || unicode.IsSpace(c) || unicode.Is(unicode.Cf, c) {
			return fmt.Errorf("contains the invisible character %U", c)
		}
	}
	return nil
}

func validNumber(s string) bool {
	if s[0] >= 'a' && s[0] <= 'z' {
		s = s[1:]
	}
	if s == "" || len(s) > 18 || s[0] == '0' {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// Zero reports whether r names no item.
func (r Ref) Zero() bool { return r == Ref{} }

// String prints r as people write it: github:octo/hello#42, with the host in
// front of the owner unless it is github.com.
func (r Ref) String() string {
	if r.Zero() {
		return ""
	}
	host := r.Host + "/"
	if r.Provider == GitHub && r.Host == gitHubHost {
		host = ""
	}
	return r.Provider + ":" + host + r.Owner + "/" + r.Repo + "#" + r.Number
}

// MarshalText prints r as String does.
func (r Ref) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses what MarshalText printed; empty text gives the zero Ref.
func (r *Ref) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*r = Ref{}
		return nil
	}
	p, err := Parse(string(b))
	if err != nil {
		return err
	}
	*r = p
	return nil
}

// WithNumber returns the item of the same repository with another number.
func (r Ref) WithNumber(number string) (Ref, error) {
	return New(r.Provider, r.Host, r.Owner, r.Repo, number)
}
