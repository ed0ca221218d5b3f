package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/workitem"
)

// Status is how far an event has come.
type Status string

// Statuses.
const (
	// Done: the agent has it, or the control message was applied.
	Done Status = "done"
	// Dropped: it ended without a prompt, for Reason.
	Dropped Status = "dropped"
	// Dead: it was given up and is kept as a dead letter.
	Dead Status = "dead"
	// InFlight: it is stored and has no outcome yet.
	InFlight Status = "in-flight"
	// Unhandled: nothing is known of it.
	Unhandled Status = "unhandled"
)

// Delivery is what became of one event for one work item.
type Delivery struct {
	EventID string `json:"event_id"`
	// WorkItem is the zero Ref when no item is known.
	WorkItem workitem.Ref `json:"work_item"`
	Status   Status       `json:"status"`
	// Attempts counts recorded failures of the newest generation.
	Attempts int `json:"attempts"`
	// Reason says why it was dropped or died.
	Reason    string `json:"reason"`
	LastError string `json:"last_error"`
	// DeliveryIDs are the transport's ids under which it is known to have come.
	DeliveryIDs []string `json:"delivery_ids"`
}

// Registry is what is read of the buckets.
type Registry interface {
	Get(ctx context.Context, item workitem.Ref) (registry.Entry, error)
	List(ctx context.Context) ([]registry.Entry, error)
	Outcomes(ctx context.Context, eventID string) ([]registry.ItemOutcome, error)
}

// JetStream is what is read of the streams.
type JetStream interface {
	eventlog.Reader
	OrderedConsumer(ctx context.Context, stream string, cfg jetstream.OrderedConsumerConfig) (jetstream.Consumer, error)
}

// Deps are the stores.
type Deps struct {
	Registry Registry
	JS       JetStream
}

// Open binds the stores on js.
func Open(ctx context.Context, js jetstream.JetStream) (Deps, error) {
	reg, err := registry.Open(ctx, js)
	if err != nil {
		return Deps{}, err
	}
	return Deps{Registry: reg, JS: js}, nil
}

// Find tells what became of id, an event id or a delivery's GUID: one row per
// event and item, sorted by both. An id that nothing is known of, the empty one
// among them, gives one row that says unhandled.
//
// It reads the headers of the whole events stream and the routing lines of the
// log, so it is for people; a program that knows the item asks the registry.
func Find(ctx context.Context, d Deps, id string) ([]Delivery, error) {
	if id == "" {
		return []Delivery{unhandled("")}, nil
	}
	f := finder{deps: d, id: id, rows: map[key]*row{}}
	for _, step := range []func(context.Context) error{f.fromLog, f.fromStream, f.fromOutcomes, f.fromRecords} {
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("status of %q: %w", id, err)
		}
	}
	return f.answer(), nil
}

func unhandled(id string) Delivery {
	return Delivery{EventID: id, Status: Unhandled, DeliveryIDs: []string{}}
}

type key struct {
	eventID string
	item    workitem.Ref
}

// row gathers what is known of one event of one item.
type row struct {
	// latest is the newest generation seen anywhere.
	latest int
	// stored is the newest generation's message, if the stream has it.
	stored bool
	seq    uint64
	// started says that the newest generation is being tried.
	started bool
	// control says that it is a control message, which has no outcome but a
	// place in the record.
	control  bool
	outcomes map[int]record.Outcome
	guids    []string
}

type finder struct {
	deps Deps
	id   string
	rows map[key]*row
	// drop is the newest drop at the ingress under this GUID.
	drop *Delivery
	// rejected is why the request itself was refused.
	rejected string
}

func (f *finder) row(eventID string, item workitem.Ref) *row {
	k := key{eventID, item}
	r := f.rows[k]
	if r == nil {
		r = &row{outcomes: map[int]record.Outcome{}}
		f.rows[k] = r
	}
	return r
}

func (r *row) guid(id string) {
	if id != "" && !slices.Contains(r.guids, id) {
		r.guids = append(r.guids, id)
	}
}

// outcome takes the first one recorded of a generation, as the registry does.
func (r *row) outcome(o record.Outcome) {
	if _, ok := r.outcomes[o.Generation]; !ok {
		r.outcomes[o.Generation] = o
	}
	r.latest = max(r.latest, o.Generation)
	r.guid(o.Delivery)
}

// eventIDs are the events that the id stands for: itself, and what its GUID
// brought.
func (f *finder) eventIDs() []string {
	var ids []string
	if event.ValidID(f.id) {
		ids = append(ids, f.id)
	}
	for k := range f.rows {
		ids = append(ids, k.eventID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// fromOutcomes reads the dedup bucket.
func (f *finder) fromOutcomes(ctx context.Context) error {
	for _, id := range f.eventIDs() {
		outs, err := f.deps.Registry.Outcomes(ctx, id)
		if err != nil {
			return err
		}
		for _, o := range outs {
			if f.concerns([]string{id}, id, o.WorkItem) {
				f.row(id, o.WorkItem).outcome(o.Outcome)
			}
		}
	}
	return nil
}

// fromRecords completes the rows from the records: outcomes that have not
// reached the bucket, attempts under way and control that was applied.
func (f *finder) fromRecords(ctx context.Context) error {
	entries, err := f.records(ctx)
	if err != nil {
		return err
	}
	ids := f.eventIDs()
	for _, e := range entries {
		rec := e.Record
		for _, o := range rec.Recent {
			if f.concerns(ids, o.EventID, rec.WorkItem) || o.Delivery == f.id {
				f.row(o.EventID, rec.WorkItem).outcome(o)
			}
		}
		if s := rec.Started; s != nil && f.concerns(ids, s.EventID, rec.WorkItem) {
			r := f.row(s.EventID, rec.WorkItem)
			r.latest = max(r.latest, s.Generation)
		}
		for _, id := range rec.ControlIDs {
			if f.concerns(ids, id, rec.WorkItem) {
				f.row(id, rec.WorkItem).control = true
			}
		}
		for k, r := range f.rows {
			if k.item == rec.WorkItem {
				r.judge(k, rec)
			}
		}
	}
	return nil
}

// concerns reports whether an event of the ids is asked for: by its own id for
// every item, by a GUID only for the items that the GUID brought it to.
func (f *finder) concerns(ids []string, eventID string, item workitem.Ref) bool {
	return slices.Contains(ids, eventID) && (eventID == f.id || f.rows[key{eventID, item}] != nil)
}

// records reads those of the rows' items, or all of them when the id may be of
// an event whose message is gone.
func (f *finder) records(ctx context.Context) ([]registry.Entry, error) {
	if event.ValidID(f.id) {
		return f.deps.Registry.List(ctx)
	}
	seen := map[workitem.Ref]bool{}
	var out []registry.Entry
	for k := range f.rows {
		if seen[k.item] {
			continue
		}
		seen[k.item] = true
		e, err := f.deps.Registry.Get(ctx, k.item)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// judge adds what the item's record says of the newest generation.
func (r *row) judge(k key, rec record.Record) {
	if r.control && (slices.Contains(rec.ControlIDs, k.eventID) || r.stored && rec.ControlSeq >= r.seq) {
		r.outcome(record.Outcome{EventID: k.eventID, Generation: r.latest, Kind: record.Done})
		return
	}
	s := rec.Started
	if s == nil || s.EventID != k.eventID || s.Generation != r.latest {
		return
	}
	if _, ended := r.outcomes[r.latest]; !ended {
		r.started = true
		r.outcomes[r.latest] = record.Outcome{Attempts: s.Failures, Error: s.Error} // no Kind: under way
	}
}

func (r *row) delivery(k key) Delivery {
	o := r.outcomes[r.latest]
	d := Delivery{
		EventID: k.eventID, WorkItem: k.item, Attempts: o.Attempts, Reason: o.Reason, LastError: o.Error,
		Status: InFlight, DeliveryIDs: append([]string{}, r.guids...),
	}
	switch o.Kind {
	case record.Done:
		d.Status = Done
	case record.Dropped:
		d.Status = Dropped
	case record.Dead:
		d.Status = Dead
	default:
		if !r.stored && !r.started {
			d.Status = Unhandled // it was routed once, and nothing is left of it
		}
	}
	return d
}

func (f *finder) answer() []Delivery {
	var out []Delivery
	for k, r := range f.rows {
		out = append(out, r.delivery(k))
	}
	slices.SortFunc(out, func(a, b Delivery) int {
		return cmp.Or(cmp.Compare(a.EventID, b.EventID), cmp.Compare(a.WorkItem.String(), b.WorkItem.String()))
	})
	switch {
	case len(out) > 0:
	case f.drop != nil:
		out = append(out, *f.drop)
	default:
		d := unhandled(f.id)
		if f.rejected != "" {
			d.EventID, d.Reason, d.DeliveryIDs = "", f.rejected, []string{f.id}
		}
		out = append(out, d)
	}
	return out
}
