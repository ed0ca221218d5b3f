package eventlog

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"loopfleet/pkg/event"
	"loopfleet/pkg/logkey"
)

func encode(t *testing.T, e Entry) []byte {
	t.Helper()
	b, err := e.encode(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), "w1", "worker")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEntry_RoundTrip(t *testing.T) {
	t.Parallel()
	e := Entry{
		Type: event.SessionSpawned, Level: event.Warn, WorkItem: item42(t), EventID: "label-x", Delivery: "guid",
		Fields: map[string]any{"attempt": 2, "big": int64(1) << 60, "text": "a\x00b\x1b[0m\xffc\u202e"},
	}
	l, err := Parse(encode(t, e))
	if err != nil {
		t.Fatal(err)
	}
	want := Line{
		TS: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Type: e.Type, Level: event.Warn, WorkItem: e.WorkItem,
		EventID: "label-x", Delivery: "guid", Worker: "w1", Source: "worker",
		Fields: map[string]any{"attempt": json.Number("2"), "big": json.Number("1152921504606846976"), "text": "a\x00b\x1b[0m\uFFFDc\u202e"},
	}
	l.Raw = nil
	if diff := cmp.Diff(want, l); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
}

func TestEntry_Precedence(t *testing.T) {
	t.Parallel()
	l, err := Parse(encode(t, Entry{
		Type: event.OwnerChanged, EventID: "comment-a",
		Fields: map[string]any{
			logkey.Worker: "w2", logkey.Source: "webhook", logkey.EventID: "loses", logkey.Delivery: "kept",
			keyType: "loses", keyTS: "loses", keyLevel: "loses", "": "dropped",
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	if l.Worker != "w2" || l.Source != "webhook" || l.EventID != "comment-a" || l.Delivery != "kept" ||
		l.Type != event.OwnerChanged || l.Level != event.Info || len(l.Fields) != 0 {
		t.Errorf("got %+v", l)
	}
}

func TestEntry_Bounds(t *testing.T) {
	t.Parallel()
	fields := map[string]any{
		"text":       strings.Repeat("é", 4000),
		"bytes":      []byte(strings.Repeat("x", 5000)),
		"err":        errors.New(strings.Repeat("y", 5000)),
		"nested":     map[string]string{"a": strings.Repeat("z", 5000)},
		"channel":    make(chan int),
		"list":       make([]string, 1000),
		"strangekey": "ok",
	}
	b := encode(t, Entry{Type: event.DispatchDead, Fields: fields})
	l, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"text", "bytes", "err", "nested"} {
		s, ok := l.Fields[k].(string)
		if !ok || len(s) > maxText || !utf8.ValidString(s) || !strings.HasSuffix(s, "…") {
			t.Errorf("%s is %d bytes, valid %v, ends %q", k, len(s), utf8.ValidString(s), s[max(0, len(s)-4):])
		}
	}
	if s := l.text("channel"); !strings.Contains(s, "cannot be encoded") {
		t.Errorf("channel = %q", s)
	}
	if list, ok := l.Fields["list"].([]any); !ok || len(list) != maxList {
		t.Errorf("list has %d entries", len(list))
	}

	many := map[string]any{logkey.Reason: "kept"}
	for i := range 100 {
		many["f"+strings.Repeat("i", i)] = strings.Repeat("x", 1900)
	}
	for i := range 100 { // long names, short values
		many[strings.Repeat("n", 1000+i)] = 1
	}
	b = encode(t, Entry{Type: event.DispatchDead, WorkItem: item42(t), Fields: many})
	if l, err = Parse(b); err != nil {
		t.Fatal(err)
	}
	if len(b) > maxLine+64 || l.Fields["truncated"] != true || l.Reason() != "kept" || l.WorkItem.Zero() {
		t.Errorf("line of %d bytes, truncated %v, reason %q", len(b), l.Fields["truncated"], l.Reason())
	}
}

func TestParse_Errors(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"empty":         ``,
		"no JSON":       `hello`,
		"null":          `null`,
		"an array":      `[]`,
		"two objects":   `{"ts":"2026-03-01T12:00:00Z","type":"a.b"}{}`,
		"no ts":         `{"type":"a.b"}`,
		"no type":       `{"ts":"2026-03-01T12:00:00Z"}`,
		"type a number": `{"ts":"2026-03-01T12:00:00Z","type":1}`,
		"bad item":      `{"ts":"2026-03-01T12:00:00Z","type":"a.b","work_item":"nothing"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if l, err := Parse([]byte(in)); err == nil {
				t.Errorf("no error, line %+v", l)
			}
		})
	}
}

func TestParse_OfANewerVersion(t *testing.T) {
	t.Parallel()
	l, err := Parse([]byte("{\n \"ts\": \"2027-01-01T00:00:00.5Z\", \"type\": \"merge.queued\", \"level\": \"notice\", \"x\": {\"y\": 1}}"))
	if err != nil {
		t.Fatal(err)
	}
	if l.Type != "merge.queued" || l.Level != "notice" || strings.ContainsAny(string(l.Raw), "\n ") {
		t.Errorf("got %+v, raw %s", l, l.Raw)
	}
}

func FuzzLine(f *testing.F) {
	f.Add("reason", "a\x1b[31m\u202e", 80)
	f.Add("", "\xff", 1)
	f.Add("ts", strings.Repeat("界", 3000), 20)
	f.Fuzz(func(t *testing.T, key, value string, width int) {
		e := Entry{Type: event.RoutingDropped, Delivery: value, Fields: map[string]any{key: value, "k": map[string]string{key: value}}}
		b, err := e.encode(time.Unix(0, 0), value, "")
		if err != nil {
			t.Fatal(err)
		}
		l, err := Parse(b)
		if err != nil {
			if key != logkey.WorkItem { // whose text must name an item
				t.Fatalf("%v: %s", err, b)
			}
			return
		}
		width = width % 200
		text := l.TextWidth(width)
		for _, r := range text {
			if !unicode.IsPrint(r) {
				t.Fatalf("%U in %q", r, text)
			}
		}
		if cols := 0; width > 0 {
			for _, r := range text {
				cols += Columns(r)
			}
			if cols > width {
				t.Fatalf("%d columns, want %d: %q", cols, width, text)
			}
		}
	})
}
