package eventlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
	case []any:
		texts := make([]string, len(v))
		for i := range v {
			texts[i] = fmt.Sprint(v[i])
		}
		return strings.Join(texts, ", ")
	default:
		return string(marshal(v))
	}
}
