package eventlog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// field is one member of a line.
type field struct {
	name  string
	value []byte
}

// cost is about how many bytes a field takes in its line.
func (f field) cost() int { return len(f.name) + len(f.value) + len(`"":,`) }

// rank is the field's place among those that are not sorted by name.
func (f field) rank() int {
	if i := slices.Index(first, f.name); i >= 0 {
		return i
	}
	return len(first)
}

// encode returns the line of e.
func (e *Entry) encode(now time.Time, worker, source string) ([]byte, error) {
	if _, ok := event.Catalogue[e.Type]; !ok {
		return nil, fmt.Errorf("log %q: %w", e.Type, ErrUnknownType)
	}
	const named = 8
	fields := make([]field, 0, len(e.Fields)+named)
	size := 0
	// The first of a name stays.
	add := func(name string, v any) {
		name = clean(name)
		if name == "" || slices.ContainsFunc(fields, func(f field) bool { return f.name == name }) {
			return
		}
		if b := encodeValue(v); b != nil {
			f := field{name, b}
			fields = append(fields, f)
			size += f.cost()
		}
	}
	add(keyTS, now)
	add(keyType, string(e.Type))
	add(keyLevel, string(e.level()))
	if !e.WorkItem.Zero() {
		add(logkey.WorkItem, e.WorkItem)
	}
	add(logkey.EventID, e.EventID)
	add(logkey.Delivery, e.Delivery)
	for k, v := range e.Fields {
		add(k, v)
	}
	if _, own := e.Fields[logkey.Worker]; !own {
		add(logkey.Worker, worker)
	}
	if _, own := e.Fields[logkey.Source]; !own {
		add(logkey.Source, source)
	}
	if size > maxLine {
		fields = shorten(fields, size)
	}
	return join(fields), nil
}

// shorten leaves fields out of a line that is too long, the longest first: they
// are the least likely to be the reason.
func shorten(fields []field, size int) []field {
	for size > maxLine {
		longest := -1
		for i, f := range fields {
			if slices.Contains(always, f.name) {
				continue
			}
			if longest < 0 || f.cost() > fields[longest].cost() || f.cost() == fields[longest].cost() && f.name < fields[longest].name {
				longest = i
			}
		}
		if longest < 0 {
			break
		}
		size -= fields[longest].cost()
		fields = slices.Delete(fields, longest, longest+1)
	}
	return append(fields, field{keyTruncated, []byte("true")})
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

// join writes the fields as one flat object, known names first, the others by
// name.
func join(fields []field) []byte {
	slices.SortFunc(fields, func(a, b field) int {
		if c := a.rank() - b.rank(); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	n := len("{}")
	for _, f := range fields {
		n += f.cost()
	}
	b := make([]byte, 0, n)
	for i, f := range fields {
		b = append(b, "{,"[min(i, 1)])
		b = append(b, quote(f.name)...)
		b = append(b, ':')
		b = append(b, f.value...)
	}
	return append(b, '}')
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
		return quote(clean(v))
	case bool:
		return strconv.AppendBool(nil, v)
	case int:
		return strconv.AppendInt(nil, int64(v), 10)
	case uint64:
		return strconv.AppendUint(nil, v, 10)
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
		return quote(v.UTC().Format(timeFormat))
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

// quote is marshal for text; most text needs no escape.
func quote(s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return marshal(s)
		}
	}
	b := make([]byte, 0, len(s)+len(`""`))
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
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
