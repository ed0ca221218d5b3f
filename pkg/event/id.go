package event

import (
	"crypto/sha256"
	"encoding/base32"
	"strconv"
	"strings"
	"time"
)

// maxID is the longest event id: it is a file name and a part of KV keys.
const maxID = 40

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewID is the semantic identity of something that happened: the same from
// webhook and poll, different for any two things. Object is the forge's id of
// the comment, review or item; for CI it is the head SHA. Lifecycle kinds add
// the action and the forge's transition time (whole seconds), so that close,
// reopen, close are three; pass a zero time for the others.
func NewID(kind Kind, host string, repoID int64, object, action string, at time.Time) string {
	parts := []string{string(kind), strings.ToLower(host), strconv.FormatInt(repoID, 10), object}
	if !at.IsZero() {
		parts = append(parts, action, strconv.FormatInt(at.Unix(), 10))
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return string(kind) + "-" + idEncoding.EncodeToString(sum[:15])
}

// ValidID reports whether s can be an event id: [a-z0-9-]{1,40}.
func ValidID(s string) bool {
	if s == "" || len(s) > maxID {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
