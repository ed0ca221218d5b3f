package eventlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"loopfleet/pkg/event"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/workitem"
)

// Line is one line of the log as read back.
type Line struct {
	// Seq is the line's place in the stream; 0 for a line from a file.
	Seq      uint64
	TS       time.Time
	Type     event.LogType
	Level    event.Level
	WorkItem workitem.Ref
	EventID  string
	Delivery string
	Worker   string
	Source   string
	// Fields are all others. Numbers are json.Number.
	Fields map[string]any
	// Raw is the line's JSON, one object without a line break.
	Raw json.RawMessage
}

// Parse reads one line as Emit writes it. Types and fields that this version
// does not know are kept; a line without ts or type is an error, as is one whose
// own fields have another type than text.
func Parse(msg []byte) (Line, error) {
	dec := json.NewDecoder(bytes.NewReader(msg))
	dec.UseNumber()
	var all map[string]any
	if err := dec.Decode(&all); err != nil {
		return Line{}, fmt.Errorf("parse log line: %w", err)
	}
	if all == nil || dec.More() {
		return Line{}, errors.New("parse log line: not one JSON object")
	}
	var raw bytes.Buffer
	if err := json.Compact(&raw, msg); err != nil {
		return Line{}, fmt.Errorf("parse log line: %w", err)
	}
	l := Line{Raw: raw.Bytes()}
	var ts, typ, level, item string
	for name, to := range map[string]*string{
		keyTS: &ts, keyType: &typ, keyLevel: &level, logkey.WorkItem: &item, logkey.EventID: &l.EventID,
		logkey.Delivery: &l.Delivery, logkey.Worker: &l.Worker, logkey.Source: &l.Source,
	} {
		v, ok := all[name]
		if !ok {
			continue
		}
		s, ok := v.(string)
		if !ok {
			return Line{}, fmt.Errorf("parse log line: %s is not a text", name)
		}
		*to = s
		delete(all, name)
	}
	var err error
	if l.TS, err = time.Parse(time.RFC3339Nano, ts); err != nil {
		return Line{}, fmt.Errorf("parse log line: ts: %w", err)
	}
	if typ == "" {
		return Line{}, errors.New("parse log line: it has no type")
	}
	l.Type, l.Level, l.Fields = event.LogType(typ), event.Level(level), all
	if item != "" {
		if l.WorkItem, err = workitem.Parse(item); err != nil {
			return Line{}, fmt.Errorf("parse log line: %w", err)
		}
	}
	return l, nil
}

// Reason is why, when the line says so.
func (l *Line) Reason() string { return l.text(logkey.Reason) }

func (l *Line) text(key string) string {
	switch v := l.Fields[key].(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		return string(marshal(v))
	}
}

// typeColumns is the width of the type's column: most types fit.
const typeColumns = 18

// Text is the line for people, in 80 columns: local time, a mark for warnings
// (!) and errors (!!), type, item, reason, then the other fields.
func (l *Line) Text() string { return l.TextWidth(80) }

// TextWidth is Text for a terminal of that many columns; 0 cuts nothing. It
// holds nothing that a terminal would obey.
func (l *Line) TextWidth(width int) string {
	parts := []string{
		l.TS.Local().Format("01-02 15:04:05"),
		fmt.Sprintf("%-2s", map[event.Level]string{event.Warn: "!", event.Error: "!!"}[l.Level]),
		fmt.Sprintf("%-*s", typeColumns, Escape(string(l.Type))),
	}
	add := func(s string) {
		if s != "" {
			parts = append(parts, Escape(s))
		}
	}
	add(strings.TrimPrefix(l.WorkItem.String(), workitem.GitHub+":"))
	add(l.Reason())
	add(l.text(logkey.Error))
	for _, k := range slices.Sorted(maps.Keys(l.Fields)) {
		if k != logkey.Reason && k != logkey.Error {
			add(k + "=" + l.text(k))
		}
	}
	for _, kv := range [][2]string{{logkey.Worker, l.Worker}, {logkey.EventID, l.EventID}, {logkey.Delivery, l.Delivery}} {
		if kv[1] != "" {
			add(kv[0] + "=" + kv[1])
		}
	}
	return fit(strings.TrimRight(strings.Join(parts, " "), " "), width)
}
