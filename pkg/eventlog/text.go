package eventlog

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"loopfleet/pkg/event"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/workitem"
)

const (
	// typeColumns is the width of the type's column.
	typeColumns = 18
	// leastReason is how much of a long reason or error is shown before what
	// follows it gives way.
	leastReason = 8
)

// shortTypes are the types that do not fit their column, as people see them.
var shortTypes = map[event.LogType]string{
	event.DeadLetterDropped:  "letter.dropped",
	event.DeadLetterReplayed: "letter.replayed",
	event.SessionEnded:       "session.terminated",
}

// TextWidth is the line for people, for a terminal of that many columns: when
// (the local time, or the date too when it is not today's), a mark for warnings
// (!) and errors (!!), the type, the item, what happened and why. Ids follow
// where they fit whole. A width of 0 cuts nothing and leaves nothing out. It
// holds nothing that a terminal would obey.
func (l *Line) TextWidth(width int) string { return l.textAt(time.Now(), width) }

func (l *Line) textAt(now time.Time, width int) string {
	mark := map[event.Level]string{event.Warn: "!", event.Error: "!!"}[l.Level]
	head := fmt.Sprintf("%s %-2s%s", when(now, l.TS), mark, typeColumn(l.Type, width))
	if item := strings.TrimPrefix(l.WorkItem.String(), workitem.GitHub+":"); item != "" {
		head += " " + Escape(item)
	}
	r := reading{l: l, zone: now.Location(), used: map[string]bool{}}
	tell := tellers[l.Type]
	if tell == nil {
		tell = tellUnknown
	}
	said := tell(&r)
	said.before, said.long, said.after = Escape(said.before), Escape(said.long), Escape(said.after)
	line := strings.TrimRight(head+" "+said.fit(width-textColumns(head)-1), " ")
	for _, more := range r.rest(width <= 0) {
		more = " " + Escape(more)
		if width > 0 && textColumns(line+more) > width {
			break
		}
		line += more
	}
	return fit(line, width)
}

// when is t for the first column.
func when(now, t time.Time) string {
	t = t.In(now.Location())
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format("01-02 15:04")
}

// typeColumn is the type in its column, so that what follows is aligned.
func typeColumn(t event.LogType, width int) string {
	s := string(t)
	if short, ok := shortTypes[t]; ok && width > 0 {
		s = short
	}
	s = Escape(s)
	if width > 0 {
		s = fit(s, typeColumns)
	}
	return s + strings.Repeat(" ", max(0, typeColumns-textColumns(s)))
}

// textColumns is about how many columns s takes.
func textColumns(s string) int {
	n := 0
	for _, r := range s {
		n += Columns(r)
	}
	return n
}

// said is what a line tells: a long part, cut to leave room for what stands
// before and after it.
type said struct{ before, long, after string }

func (s said) fit(width int) string {
	long := s.long
	if width > 0 && long != "" {
		room := max(leastReason, width-textColumns(joined(" ", s.before, "x", s.after))+1)
		if cut := fit(long, room); cut != long {
			if open, ok := strings.CutPrefix(long, "("); ok {
				cut = "(" + fit(open, room-2) + ")"
			}
			long = cut
		}
	}
	return joined(" ", s.before, long, s.after)
}

// joined joins the texts that are not empty.
func joined(sep string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), sep)
}

// reading reads a line's fields and remembers which were shown.
type reading struct {
	l    *Line
	zone *time.Location
	used map[string]bool
}

// text is a field's value, "" when there is none or nothing to say.
func (r *reading) text(key string) string {
	r.used[key] = true
	switch v := r.l.text(key); v {
	case "false", "0", "[]", "null":
		return ""
	default:
		return v
	}
}

// error is the line's error from where it says more than the line does: what
// merely names its item again is left out.
func (r *reading) error() string {
	err := r.text(logkey.Error)
	item := r.l.WorkItem.String()
	for item != "" {
		first, rest, ok := strings.Cut(err, ": ")
		if !ok || !strings.Contains(first, item) {
			break
		}
		err = rest
	}
	return err
}

// with is the field between two texts, "" when it has no value.
func (r *reading) with(before, key, after string) string {
	if v := r.text(key); v != "" {
		return before + v + after
	}
	return ""
}

// is says what a field that is set means.
func (r *reading) is(key, means string) string {
	if r.text(key) != "" {
		return means
	}
	return ""
}

// over is the field between two texts when it is a number above least.
func (r *reading) over(least int, before, key, after string) string {
	if n, err := strconv.Atoi(r.text(key)); err == nil && n > least {
		return before + strconv.Itoa(n) + after
	}
	return ""
}

// clock is a field that holds a time.
func (r *reading) clock(before, key string) string {
	if t, err := time.Parse(time.RFC3339Nano, r.text(key)); err == nil {
		return before + t.In(r.zone).Format(time.TimeOnly)
	}
	return ""
}

// wait is a field that holds a duration, to the second.
func (r *reading) wait(before, key, after string) string {
	d, err := time.ParseDuration(r.text(key))
	if err != nil {
		return ""
	}
	return before + d.Round(time.Second).String() + after
}

// ref is a field that holds a work item; one of the line's repository is shown
// by its number.
func (r *reading) ref(before, key string) string {
	v := r.text(key)
	ref, err := workitem.Parse(v)
	if v == "" || err != nil {
		return v
	}
	here := r.l.WorkItem
	if ref.Host == here.Host && ref.Owner == here.Owner && ref.Repo == here.Repo {
		return before + "#" + ref.Number
	}
	return before + strings.TrimPrefix(v, workitem.GitHub+":")
}

// what names the event: its kind, or the forge's words where it has none.
func (r *reading) what() string {
	forge := joined(" ", r.text(logkey.EventName), r.text(logkey.Action))
	if kind := r.text("kind"); kind != "" {
		return kind
	}
	return forge
}

// rest lists what is not shown yet: ids, and with all also every other field.
func (r *reading) rest(all bool) []string {
	var out []string
	session, _ := r.l.Fields[logkey.Session].(string)
	for _, id := range [][2]string{{logkey.Session, session}, {logkey.EventID, r.l.EventID}, {logkey.Delivery, r.l.Delivery}, {logkey.Worker, r.l.Worker}} {
		if id[1] != "" && !r.used[id[0]] {
			r.used[id[0]] = true
			out = append(out, id[0]+"="+id[1])
		}
	}
	if !all {
		return out
	}
	for _, k := range slices.Sorted(maps.Keys(r.l.Fields)) {
		if !r.used[k] {
			out = append(out, k+"="+r.l.text(k))
		}
	}
	return out
}

// tellers say, type by type, which fields matter and in which order.
var tellers = map[event.LogType]func(*reading) said{
	event.ConfigRejected: func(r *reading) said { return said{long: r.text(logkey.Error)} },
	event.ConfigReloaded: func(r *reading) said {
		return said{before: r.with("needs a restart: ", "needs_restart", ""), long: r.with("in force: ", "applied", "")}
	},
	event.ControlApplied: func(r *reading) said {
		return said{
			before: joined(" ", r.text(logkey.Action), r.text("effect"), r.with("by ", logkey.Actor, "")),
			long:   r.with("(", logkey.Reason, ")"),
		}
	},
	event.DeadLetterDropped:  (*reading).letter,
	event.DeadLetterReplayed: (*reading).letter,
	event.DispatchDead: func(r *reading) said {
		return said{before: r.with("", logkey.Reason, ":"), long: r.error()}
	},
	event.DispatchDropped: func(r *reading) said {
		return said{before: joined(": ", r.text(logkey.Reason), r.text("kind")), long: r.text(logkey.Error)}
	},
	event.DispatchFailed: func(r *reading) said {
		after := "(the last try)"
		if r.text("will_retry") != "" {
			after = r.wait("(again in ", "retry_in", ")")
		}
		return said{before: r.with("", logkey.Reason, ":"), long: r.error(), after: after}
	},
	event.DispatchStarted: func(r *reading) said {
		return said{before: joined(", ", joined(" ", r.text(logkey.Action), r.text("kind")),
			r.over(1, "try ", logkey.Attempt, ""), r.is("resent", "maybe resent"))}
	},
	event.DispatchSucceeded: func(r *reading) said {
		return said{before: joined(", ", r.text("kind"), r.over(1, "try ", logkey.Attempt, ""))}
	},
	event.DispatchWaiting: func(r *reading) said { return said{before: r.text(logkey.Reason)} },
	event.DispatchWithheld: func(r *reading) said {
		return said{before: r.text(logkey.Reason), long: r.with("(", logkey.Error, ")"), after: r.clock("until ", "until")}
	},
	event.ItemForgotten: func(r *reading) said {
		return said{before: r.is("removed", "removed"), long: joined(" ", r.text("dir"), r.with("(", logkey.Error, ")"))}
	},
	event.LeaseLost:  func(r *reading) said { return said{before: r.worker() + ":", long: r.text(logkey.Error)} },
	event.LeaseTaken: func(r *reading) said { return said{before: r.worker()} },
	event.LinkRecorded: func(r *reading) said {
		return said{before: joined(" ", "gets", r.ref("", "pull_request"), r.with("commit ", "sha", ""))}
	},
	event.OwnerChanged: func(r *reading) said {
		from, to := r.text("from"), r.text("to")
		if r.l.Worker == from || r.l.Worker == to {
			r.used[logkey.Worker] = true
		}
		return said{before: orNobody(from) + " -> " + orNobody(to), long: r.with("(", logkey.Reason, ")")}
	},
	event.RoutingDropped: func(r *reading) said {
		return said{before: joined(" ", r.with("", logkey.Reason, ":"), r.text(logkey.Actor), r.what(), r.with("(", "outcome", ")"))}
	},
	event.RoutingRouted: func(r *reading) said {
		return said{before: joined(" ", r.what(), r.with("by ", logkey.Actor, ""), r.ref("on ", "via"), r.over(0, "(generation ", "generation", ")"))}
	},
	event.SessionAdopted:    (*reading).session,
	event.SessionAutoclosed: func(r *reading) said { return said{before: r.text(logkey.Reason)} },
	event.SessionDied: func(r *reading) said {
		return said{before: r.text(logkey.Reason), after: r.with("(", logkey.Harness, ")")}
	},
	event.SessionEnded: func(r *reading) said {
		return said{
			before: joined(", ", r.text(logkey.Harness), r.is("missing", "was gone already"), r.is("killed", "needed KILL"),
				r.with("", "survivors", " processes are left")),
			long: r.with("(", logkey.Error, ")"),
		}
	},
	event.SessionRespawned: (*reading).session,
	event.SessionRetained:  func(*reading) said { return said{} }, // its name follows
	event.SessionSpawned:   (*reading).session,
	event.WebhookReceived:  func(r *reading) said { return said{before: r.text(logkey.EventName)} },
	event.WebhookRejected: func(r *reading) said {
		return said{
			before: joined(" ", r.with("", logkey.Reason, ":"), r.text(logkey.EventName), r.with("from ", "remote", ""),
				r.with("and ", "hidden", " more")),
			long: r.with("(", logkey.Error, ")"),
		}
	},
	event.WorkerStarted: func(r *reading) said {
		return said{before: joined(" ", r.worker(), r.with("has room for ", "capacity", "")), long: r.with("(", "harnesses", ")")}
	},
	event.WorkerStopped: func(r *reading) said { return said{before: joined(" ", r.worker(), r.with("(", "mode", ")"))} },
}

// tellUnknown tells a line of a type that has no order of its own, such as one
// of a newer version: why, then all fields.
func tellUnknown(r *reading) said {
	s := said{before: r.text(logkey.Reason), long: r.text(logkey.Error)}
	var more []string
	for _, k := range slices.Sorted(maps.Keys(r.l.Fields)) {
		if !r.used[k] {
			more = append(more, k+"="+r.text(k))
		}
	}
	s.after = strings.Join(more, " ")
	return s
}

// session tells of a session that runs.
func (r *reading) session() said {
	return said{
		before: joined(", ", r.text(logkey.Harness), r.over(1, "incarnation ", "incarnation", ""), r.is("resumed", "resumed")),
		long:   r.with("(", logkey.Reason, ")"),
	}
}

// letter tells of a dead letter: what it is and why it was given up.
func (r *reading) letter() said {
	return said{before: joined(" ", r.text("kind"), r.with("(", logkey.Reason, ")"), r.over(1, "and ", "letters", " letters"))}
}

func (r *reading) worker() string {
	r.used[logkey.Worker] = true
	return r.l.Worker
}

func orNobody(worker string) string {
	if worker == "" {
		return "nobody"
	}
	return worker
}
