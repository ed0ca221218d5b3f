package workitem

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
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
// parts over 255 bytes, invalid UTF-8, control characters, white space and
// invisible characters, and hosts that are no host name (with a port perhaps;
// international names in their ASCII form).
func New(provider, host, owner, repo, number string) (Ref, error) {
	parts := [...]struct {
		name, value, forbidden string
	}{
		{"provider", provider, ""},
		{"host", host, ""},
		{"owner", owner, ":#"},
		{"repository", repo, "/#"},
		{"number", number, ""},
	}
	for i := range parts {
		p := &parts[i]
		// Lowering turns every invalid byte into one and the same character,
		// so it comes after this check.
		if !utf8.ValidString(p.value) {
			return Ref{}, fmt.Errorf("%w: %s %q: is not valid UTF-8", ErrInvalid, p.name, clip(p.value))
		}
		p.value = strings.ToLower(p.value)
		if err := checkPart(p.value, p.forbidden); err != nil {
			return Ref{}, fmt.Errorf("%w: %s %q: %w", ErrInvalid, p.name, clip(p.value), err)
		}
	}
	r := Ref{Provider: parts[0].value, Host: parts[1].value, Owner: parts[2].value, Repo: parts[3].value, Number: parts[4].value}
	for seg := range strings.SplitSeq(r.Owner, "/") {
		if seg == "" {
			return Ref{}, fmt.Errorf("%w: owner %q has an empty group", ErrInvalid, r.Owner)
		}
	}
	switch {
	case !validProvider(r.Provider):
		return Ref{}, fmt.Errorf("%w: provider %q must be a word of letters and digits", ErrInvalid, r.Provider)
	case !validHost(r.Host):
		return Ref{}, fmt.Errorf("%w: %q is no host name", ErrInvalid, r.Host)
	case !validNumber(r.Number, r.Provider != GitHub):
		return Ref{}, fmt.Errorf("%w: number %q must be digits without a leading zero", ErrInvalid, r.Number)
	}
	return r, nil
}

// clip keeps an error message short whatever was passed in.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}

func checkPart(s, forbidden string) error {
	switch {
	case s == "":
		return errors.New("is empty")
	case len(s) > maxPart:
		return fmt.Errorf("is longer than %d bytes", maxPart)
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

// validProvider keeps ":" and "/" out, which separate it from the host in
// printed references and keys.
func validProvider(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// validHost accepts a host name or bracketed IPv6 address with an optional
// port. A name of digits alone is refused: "localhost:3000/..." would read as
// a provider and a host.
func validHost(s string) bool {
	if rest, ok := strings.CutPrefix(s, "["); ok {
		addr, tail, closed := strings.Cut(rest, "]")
		a, err := netip.ParseAddr(addr)
		if !closed || err != nil || !a.Is6() || a.Zone() != "" {
			return false
		}
		port, ok := strings.CutPrefix(tail, ":")
		return tail == "" || ok && validPort(port)
	}
	host, port, hasPort := strings.Cut(s, ":")
	if hasPort && !validPort(port) {
		return false
	}
	if host == "" || !alphanumeric(host[0]) || !alphanumeric(host[len(host)-1]) || strings.Contains(host, "..") {
		return false
	}
	for i := range len(host) {
		if c := host[i]; !alphanumeric(c) && c != '.' && c != '-' && c != '_' {
			return false
		}
	}
	return strings.Trim(host, "0123456789") != ""
}

func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && s[0] != '0'
}

func alphanumeric(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

// validNumber accepts digits, after one letter where the forge counts issues
// and merge requests apart.
func validNumber(s string, letter bool) bool {
	if letter && s[0] >= 'a' && s[0] <= 'z' {
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
//
// A nested owner keeps the host too: it would read as one.
func (r Ref) String() string {
	if r.Zero() {
		return ""
	}
	host := r.Host + "/"
	if r.Provider == GitHub && r.Host == gitHubHost && !strings.Contains(r.Owner, "/") {
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
