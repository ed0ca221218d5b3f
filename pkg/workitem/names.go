package workitem

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

const (
	// EventsPrefix begins the subject of everything that reaches an agent.
	EventsPrefix = "loop.events."
	// ControlPrefix begins the subject of what must not wait behind it.
	ControlPrefix = "loop.control."
	// DeadPrefix begins the subject of dead letters.
	DeadPrefix = "loop.dead."

	lanePrefix = "lane-"
	// maxConsumerName is what nats-server accepts in a consumer name.
	maxConsumerName = 255
	// maxDirName keeps a directory name below what file systems accept (255)
	// with room for suffixes.
	maxDirName = 120
)

// Key is the item's key in KV buckets and the end of its subjects:
// <host>.<owner>.<repo>.<n>, each token escaped to [a-z0-9_-] and =XX.
func (r Ref) Key() string {
	return r.hostToken() + "." + Escape(r.Owner) + "." + Escape(r.Repo) + "." + Escape(r.Number)
}

// hostToken carries the provider too, unless it is GitHub. A "/" is in neither.
func (r Ref) hostToken() string {
	if r.Provider == GitHub {
		return Escape(r.Host)
	}
	return Escape(r.Provider + "/" + r.Host)
}

// EventsSubject is where the item's events are published.
func (r Ref) EventsSubject() string { return EventsPrefix + r.Key() }

// ControlSubject is where the item's control messages are published.
func (r Ref) ControlSubject() string { return ControlPrefix + r.Key() }

// DeadSubject is where the item's dead letters are kept.
func (r Ref) DeadSubject() string { return DeadPrefix + r.Key() }

// LaneName is the name of the item's consumer. Tokens are joined by "_", so a
// "_" inside one is escaped. A name over 255 bytes ends in a hash and cannot be
// parsed back: the consumer's metadata carries the item for that.
func (r Ref) LaneName() string {
	toks := strings.Split(r.Key(), ".")
	for i, t := range toks {
		toks[i] = strings.ReplaceAll(t, "_", "=5F")
	}
	return bounded(lanePrefix+strings.Join(toks, "_"), maxConsumerName, r)
}

// DirName is a directory or file name for the item, unique and at most 120
// bytes long.
func (r Ref) DirName() string { return bounded(r.Key(), maxDirName, r) }

// bounded cuts name and ends it in a hash of r when it is longer than limit.
func bounded(name string, limit int, r Ref) string {
	if len(name) <= limit {
		return name
	}
	// An uncut name ends in ".<number>" or "_<number>", which "=" cannot be in.
	sum := "=" + hash(r, 16)
	return name[:limit-len(sum)] + sum
}

// TmuxName is the item's tmux session name: readable, free of the characters
// tmux rewrites, and told apart by four hex digits of the whole reference
// where two items read alike.
func (r Ref) TmuxName() string {
	slug := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' {
			return c
		}
		return '-'
	}, r.Owner+"-"+r.Repo)
	const maxSlug = 60
	if len(slug) > maxSlug {
		slug = slug[:maxSlug]
	}
	return "loop-" + slug + "-" + r.Number + "-" + hash(r, 4)
}

func hash(r Ref, digits int) string {
	sum := sha256.Sum256([]byte(r.String()))
	return hex.EncodeToString(sum[:])[:digits]
}

// Escape turns any string into one subject token: bytes outside [a-z0-9_-]
// become =XX.
func Escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; plain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// Unescape is the inverse of Escape; ok is false for what Escape never makes.
func Unescape(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if c := s[i]; c != '=' {
			if !plain(c) {
				return "", false
			}
			b.WriteByte(c)
			continue
		}
		if i+3 > len(s) || strings.ToUpper(s[i+1:i+3]) != s[i+1:i+3] {
			return "", false
		}
		v, err := hex.DecodeString(s[i+1 : i+3])
		if err != nil || plain(v[0]) {
			return "", false
		}
		b.WriteByte(v[0])
		i += 2
	}
	return b.String(), true
}

// ParseKey is the inverse of Key: it refuses every key that Key does not make.
func ParseKey(key string) (Ref, error) {
	r, err := parseTokens(strings.Split(key, "."), key)
	if err == nil && r.Key() != key {
		return Ref{}, fmt.Errorf("%w: key %q is written %q", ErrInvalid, clip(key), r.Key())
	}
	return r, err
}

// ParseSubject reads the item out of an events, control or dead-letter subject.
func ParseSubject(subject string) (Ref, error) {
	for _, p := range []string{EventsPrefix, ControlPrefix, DeadPrefix} {
		if key, ok := strings.CutPrefix(subject, p); ok {
			return ParseKey(key)
		}
	}
	return Ref{}, fmt.Errorf("%w: subject %q", ErrInvalid, clip(subject))
}

// ParseLaneName is the inverse of LaneName for names that were not cut.
func ParseLaneName(name string) (Ref, error) {
	body, ok := strings.CutPrefix(name, lanePrefix)
	if !ok {
		return Ref{}, fmt.Errorf("%w: consumer %q is no lane", ErrInvalid, clip(name))
	}
	toks := strings.Split(body, "_")
	for i, t := range toks {
		toks[i] = strings.ReplaceAll(t, "=5F", "_")
	}
	r, err := parseTokens(toks, name)
	if err == nil && r.LaneName() != name {
		return Ref{}, fmt.Errorf("%w: lane %q is written %q", ErrInvalid, clip(name), r.LaneName())
	}
	return r, err
}

func parseTokens(toks []string, whole string) (Ref, error) {
	if len(toks) != 4 {
		return Ref{}, fmt.Errorf("%w: %q has %d tokens, want 4", ErrInvalid, clip(whole), len(toks))
	}
	plain := make([]string, 4)
	for i, t := range toks {
		s, ok := Unescape(t)
		if !ok {
			return Ref{}, fmt.Errorf("%w: token %q of %q", ErrInvalid, clip(t), clip(whole))
		}
		plain[i] = s
	}
	provider, host := GitHub, plain[0]
	if p, h, ok := strings.Cut(plain[0], "/"); ok {
		provider, host = p, h
	}
	return New(provider, host, plain[1], plain[2], plain[3])
}
