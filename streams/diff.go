package streams

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Action is what a definition needs on a server.
type Action string

// Actions.
const (
	OK     Action = "ok"
	Create Action = "create"
	Update Action = "update"
	Refuse Action = "refuse"
)

// Field is a setting that differs from its definition.
type Field struct {
	Name string `json:"name"`
	Have string `json:"have"`
	Want string `json:"want"`
}

// Object is what Plan found out about one definition.
type Object struct {
	Kind   Kind    `json:"kind"`
	Name   string  `json:"name"`
	Action Action  `json:"action"`
	Fields []Field `json:"fields,omitempty"`
	// Reasons say why it is refused and what to do, one sentence each.
	Reasons []string `json:"reasons,omitempty"`

	// on is the stream of a consumer.
	on string
	// overlay is what Create or Update sets, on top of what the server has.
	overlay map[string]any
	stream  jetstream.StreamConfig
	cons    jetstream.ConsumerConfig
}

// Diff is the difference between a server and the definitions.
type Diff struct {
	Objects []Object `json:"objects"`
}

// Clean reports whether the server is as defined.
func (d Diff) Clean() bool { return d.Count(OK) == len(d.Objects) }

// Count returns how many objects need the action.
func (d Diff) Count(a Action) int {
	n := 0
	for i := range d.Objects {
		if d.Objects[i].Action == a {
			n++
		}
	}
	return n
}

var signs = map[Action]string{OK: " ", Create: "+", Update: "~", Refuse: "!"}

// String is the difference for people, a line per object and per field. Text
// that comes from the server is quoted where it is not plain.
func (d Diff) String() string {
	var b strings.Builder
	for _, o := range d.Objects {
		fmt.Fprintf(&b, "%s %s %s: %s\n", signs[o.Action], o.Kind, o.Name, o.Action)
		for _, f := range o.Fields {
			fmt.Fprintf(&b, "    %s: %s -> %s\n", f.Name, f.Have, f.Want)
		}
		for _, r := range o.Reasons {
			fmt.Fprintf(&b, "    %s\n", r)
		}
	}
	fmt.Fprintf(&b, "%d to create, %d to update, %d refused, %d as defined\n",
		d.Count(Create), d.Count(Update), d.Count(Refuse), d.Count(OK))
	return b.String()
}

// diff compares the members that want names. Both sides went through JSON.
func diff(have, want map[string]any) []Field {
	var fields []Field
	for _, k := range sortedKeys(want) {
		h, w := normal(have[k]), normal(want[k])
		if !reflect.DeepEqual(h, w) {
			fields = append(fields, Field{Name: k, Have: show(k, h), Want: show(k, w)})
		}
	}
	return fields
}

// normal makes what the server leaves out equal to what it spells out.
func normal(v any) any {
	switch x := v.(type) {
	case bool:
		if !x {
			return nil
		}
	case json.Number:
		if x == "0" {
			return nil
		}
	case string:
		if x == "" || x == "default" {
			return nil
		}
	case []any:
		if len(x) == 0 {
			return nil
		}
		x = slices.Clone(x)
		slices.SortFunc(x, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		return x
	}
	return v
}

// durations are the members that count nanoseconds.
var durations = map[string]bool{
	"ack_wait": true, "duplicate_window": true, "inactive_threshold": true,
	"max_age": true, "subject_delete_marker_ttl": true,
}

func show(key string, v any) string {
	switch x := v.(type) {
	case nil:
		return "unset"
	case string:
		return quoted(x)
	case json.Number:
		if n, err := x.Int64(); err == nil && durations[key] {
			return showDuration(time.Duration(n))
		}
		return x.String()
	case []any:
		parts := make([]string, len(x))
		for i := range x {
			parts[i] = show("", x[i])
		}
		return strings.Join(parts, ",")
	default:
		return fmt.Sprint(x)
	}
}

// showDuration writes days as the nats CLI does.
func showDuration(d time.Duration) string {
	if day := 24 * time.Hour; d > 0 && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if t, ok := strings.CutSuffix(s, "m0s"); ok {
		s = t + "m"
	}
	if t, ok := strings.CutSuffix(s, "h0m"); ok {
		s = t + "h"
	}
	return s
}

// quoted leaves plain words alone.
func quoted(s string) string {
	if q := strconv.QuoteToASCII(s); q != `"`+s+`"` {
		return q
	}
	return s
}
