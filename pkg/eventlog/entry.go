package eventlog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"loopfleet/pkg/event"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/workitem"
)

// Names of the fields that only log lines have.
const (
	keyTS        = "ts"
	keyType      = "type"
	keyLevel     = "level"
	keyTruncated = "truncated"
)

const (
	// timeFormat is RFC 3339 in UTC with milliseconds, always 24 characters.
	timeFormat = "2006-01-02T15:04:05.000Z07:00"

	maxText = 2 << 10
	maxLine = 32 << 10
	// maxList bounds the lists of a field.
	maxList = 50
)

// ErrUnknownType means that an entry's type is not in event.Catalogue: an error
// of the program, not of its surroundings.
var ErrUnknownType = errors.New("log type is not in the catalogue")

// Entry is one decision.
type Entry struct {
	// Type is one of the catalogue.
	Type event.LogType
	// Level is info when empty.
	Level event.Level
	// WorkItem is the item it is about; zero for none.
	WorkItem workitem.Ref
	// EventID is the event it is about.
	EventID string
	// Delivery is the transport's id of that event, as a person would look it
	// up (X-GitHub-Delivery).
	Delivery string
	// Key, when set, makes entries of one type and item with the same key one
	// line: for a line that may be written again after a crash. It holds for
	// the stream's duplicate window, and not in the file.
	Key string
	// Fields are everything else, by the names of package logkey. Empty texts
	// and nil are left out; errors, durations and times are written as text. The
	// fields above win over the same name here, and these over Options.
	Fields map[string]any
}

// first is the order in which a line's fields are written; the others follow by
// name.
var first = []string{
	keyTS, keyType, keyLevel, logkey.WorkItem, logkey.EventID, logkey.Delivery,
	logkey.Worker, logkey.Source, logkey.Reason, logkey.Error,
}

// always are the fields that stay when a line is too long.
var always = []string{keyTS, keyType, keyLevel, keyTruncated, logkey.WorkItem, logkey.EventID, logkey.Worker}

// cost is about how many bytes a field takes in its line.
func cost(name string, value []byte) int { return len(name) + len(value) + len(`"":,`) }

// encode returns the line of e.
func (e *Entry) encode(now time.Time, worker, source string) ([]byte, error) {
	if _, ok := event.Catalogue[e.Type]; !ok {
		return nil, fmt.Errorf("log %q: %w", e.Type, ErrUnknownType)
	}
	all := map[string]any{logkey.Worker: worker, logkey.Source: source}
	maps.Copy(all, e.Fields)
	delete(all, "")
	if !e.WorkItem.Zero() {
		all[logkey.WorkItem] = e.WorkItem.String()
	}
	if e.EventID != "" {
		all[logkey.EventID] = e.EventID
	}
	if e.Delivery != "" {
		all[logkey.Delivery] = e.Delivery
	}
	all[keyTS], all[keyType], all[keyLevel] = now, e.Type, e.level()

	values := make(map[string][]byte, len(all))
	size := 0
	for k, v := range all {
		if b := encodeValue(v); b != nil {
			values[clean(k)] = b
			size += cost(clean(k), b)
		}
	}
	for size > maxLine { // the longest go first: they are the least likely to be the reason
		longest := ""
		for k, b := range values {
			n := cost(longest, values[longest])
			if c := cost(k, b); !slices.Contains(always, k) && (c > n || c == n && k < longest) {
				longest = k
			}
		}
		size -= cost(longest, values[longest])
		delete(values, longest)
		values[keyTruncated] = []byte("true")
	}
	return join(values), nil
}

func (e *Entry) level() event.Level {
	if e.Level == "" {
		return event.Info
	}
	return e.Level
}

// messageID is the duplicate key of the line, or unique when it is empty.
func (e *Entry) messageID(unique string) string {
	if e.Key == "" {
		return unique
	}
	sum := sha256.Sum256([]byte(string(e.Type) + "\x00" + e.WorkItem.String() + "\x00" + e.Key))
	return "k-" + hex.EncodeToString(sum[:16])
}

// join writes the values as one flat object, known names first.
func join(values map[string][]byte) []byte {
	names := slices.SortedFunc(maps.Keys(values), func(a, b string) int {
		ia, ib := slices.Index(first, a), slices.Index(first, b)
		switch {
		case ia < 0 && ib < 0:
			return strings.Compare(a, b)
		case ia < 0:
			return 1
		case ib < 0:
			return -1
		default:
			return ia - ib
		}
	})
	var b bytes.Buffer
	for i, k := range names {
		b.WriteByte("{,"[min(i, 1)])
		b.Write(marshal(clean(k)))
		b.WriteByte(':')
		b.Write(values[k])
	}
	b.WriteByte('}')
	return b.Bytes()
}

// encodeValue returns v as JSON of bounded size, nil for nothing to say. What
// cannot be encoded says so: a line is never lost for one of its fields.
func encodeValue(v any) []byte {
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		if v == "" {
			return nil
		}
		return marshal(clean(v))
	case []byte:
		return encodeValue(string(v))
	case error:
		return encodeValue(v.Error())
	case time.Duration:
		return encodeValue(v.String())
	case time.Time:
		if v.IsZero() {
			return nil
		}
		return marshal(v.UTC().Format(timeFormat))
	case []string:
		list := make([]string, min(len(v), maxList))
		for i := range list {
			list[i] = clean(v[i])
		}
		if len(list) == 0 {
			return nil
		}
		return marshal(list)
	case workitem.Ref:
		return encodeValue(v.String())
	}
	raw := marshal(v)
	if s := ""; len(raw) > 1 && raw[0] == '"' && json.Unmarshal(raw, &s) == nil {
		return encodeValue(s) // a named string type
	}
	if string(raw) == "null" {
		return nil
	}
	if len(raw) > maxText {
		return encodeValue(string(raw))
	}
	return raw
}

func marshal(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // people read these lines in a terminal
	if err := enc.Encode(v); err != nil {
		return marshal(fmt.Sprintf("a %T that cannot be encoded: %s", v, clean(err.Error())))
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// clean makes s valid UTF-8 and cuts it at a rune's edge.
func clean(s string) string {
	if len(s) > maxText {
		const mark = "…"
		i := maxText - len(mark)
		for i > 0 && !utf8.RuneStart(s[i]) {
			i--
		}
		s = s[:i] + mark
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
