package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/workitem"
	"loopfleet/streams"
)

// State is what a letter means now.
type State string

// States.
const (
	// Open: nothing has become of the event since it was given up.
	Open State = "open"
	// InFlight: a later generation was published and has no outcome yet.
	InFlight State = "in-flight"
	// Settled: a later generation ended, done or dropped.
	Settled State = "settled"
	// Superseded: a later generation was given up as well.
	Superseded State = "superseded"
	// Forgotten: the letter is older than outcomes are remembered, so nobody
	// can tell whether the event was replayed.
	Forgotten State = "forgotten"
)

// Pending reports whether somebody may still want to do something about it.
func (s State) Pending() bool { return s == Open || s == InFlight || s == Forgotten }

// Entry is a letter in LOOP_DEAD with what it means now.
type Entry struct {
	Letter
	State State `json:"state"`
	// Outcome is the later generation's, when Settled or Superseded.
	Outcome record.Outcome `json:"-"`
	// Seqs are its places in LOOP_DEAD.
	Seqs []uint64 `json:"-"`
}

// Registry is what is read of the buckets.
type Registry interface {
	Get(ctx context.Context, item workitem.Ref) (registry.Entry, error)
	Outcomes(ctx context.Context, eventID string) ([]registry.ItemOutcome, error)
}

// Events reads an item's stored events in order.
type Events interface {
	Events(ctx context.Context, item workitem.Ref, from uint64, limit int) ([]queue.Stored, error)
}

// Publisher publishes an event unless its generation is there already.
type Publisher interface {
	Publish(ctx context.Context, e event.Event) (queue.Receipt, error)
}

// Log writes the event log.
type Log interface {
	Emit(ctx context.Context, e eventlog.Entry) error
}

// Deps are what a Box works on.
type Deps struct {
	JS        jetstream.JetStream
	Registry  Registry
	Events    Events
	Publisher Publisher
	Log       Log
}

// Box is all dead letters.
type Box struct {
	deps Deps
	now  func() time.Time
}

// New returns the Box of a fleet.
func New(d Deps) *Box { return &Box{deps: d, now: time.Now} }

// idle is how long a read waits before it asks whether anything is left: what
// it waits for may have been dropped meanwhile.
const idle = time.Second

// List returns the letters of an item, or all of them for the zero Ref, oldest
// first. An event that was given up more than once for an item has a letter per
// generation.
func (b *Box) List(ctx context.Context, item workitem.Ref) ([]Entry, error) {
	out, err := b.read(ctx, item)
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	j := judging{box: b, records: map[workitem.Ref]record.Record{}, events: map[workitem.Ref][]queue.Stored{}}
	for i := range out {
		if err := j.judge(ctx, &out[i], out); err != nil {
			return nil, fmt.Errorf("list dead letters: %w", err)
		}
	}
	return out, nil
}

// read lists the letters without judging them.
func (b *Box) read(ctx context.Context, item workitem.Ref) ([]Entry, error) {
	subject := workitem.DeadPrefix + ">"
	if !item.Zero() {
		subject = item.DeadSubject()
	}
	cons, err := b.deps.JS.OrderedConsumer(ctx, streams.Dead, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
	if err != nil {
		return nil, err
	}
	info, err := cons.Info(ctx)
	if err != nil {
		return nil, err
	}
	if info.NumPending == 0 && info.Delivered.Stream == 0 {
		return nil, nil
	}
	msgs, err := cons.Messages()
	if err != nil {
		return nil, err
	}
	defer msgs.Stop()
	var out []Entry
	for {
		m, err := next(ctx, msgs)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			if info, err = cons.Info(ctx); err != nil {
				return nil, err
			}
			if info.NumPending == 0 {
				return out, nil
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		md, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		// What cannot be read is nothing of ours; it must not hide the others.
		if l, err := Decode(m.Data()); err == nil {
			out = add(out, l, md.Sequence.Stream)
		}
		if md.NumPending == 0 {
			return out, nil
		}
	}
}

func next(ctx context.Context, msgs jetstream.MessagesContext) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, idle)
	defer cancel()
	return msgs.Next(jetstream.NextContext(ctx))
}

// add appends a letter, or only its place when two workers kept it at once.
func add(out []Entry, l Letter, seq uint64) []Entry {
	for i := range out {
		if same(&out[i].Letter, &l) && out[i].Event.Generation == l.Event.Generation {
			out[i].Seqs = append(out[i].Seqs, seq)
			return out
		}
	}
	return append(out, Entry{Letter: l, Seqs: []uint64{seq}})
}

// same reports whether both letters are of one event and item.
func same(a, b *Letter) bool {
	return a.Event.ID == b.Event.ID && a.Event.WorkItem == b.Event.WorkItem
}

// judging reads what several letters need only once.
type judging struct {
	box     *Box
	records map[workitem.Ref]record.Record
	events  map[workitem.Ref][]queue.Stored
}

// judge finds out what became of the letter's event. The newest generation
// decides, wherever it is known from.
func (j *judging) judge(ctx context.Context, e *Entry, all []Entry) error {
	item, id := e.Event.WorkItem, e.Event.ID
	newest := record.Outcome{Generation: e.Event.Generation, Kind: record.Dead}
	take := func(o record.Outcome) {
		if o.EventID == id && o.Generation > newest.Generation {
			newest = o
		}
	}
	for i := range all {
		if other := &all[i]; same(&e.Letter, &other.Letter) {
			take(record.Outcome{EventID: id, Generation: other.Event.Generation, Kind: record.Dead, Reason: other.Reason, At: other.At})
		}
	}
	outs, err := j.box.deps.Registry.Outcomes(ctx, id)
	if err != nil {
		return err
	}
	for i := range outs {
		if outs[i].WorkItem == item {
			take(outs[i].Outcome)
		}
	}
	rec, err := j.record(ctx, item)
	if err != nil {
		return err
	}
	for i := range rec.Recent { // also what has not reached the bucket
		take(rec.Recent[i])
	}
	switch {
	case newest.Generation == e.Event.Generation:
		return j.pending(ctx, e, rec)
	case newest.Kind == record.Dead:
		e.State = Superseded
	default:
		e.State = Settled
	}
	e.Outcome = newest
	return nil
}

// pending tells apart letters of which no later outcome is known.
func (j *judging) pending(ctx context.Context, e *Entry, rec record.Record) error {
	e.State = Open
	if j.box.now().Sub(e.At) > streams.OutcomeTTL {
		e.State = Forgotten
	}
	if s := rec.Started; s != nil && s.EventID == e.Event.ID && s.Generation > e.Event.Generation {
		e.State = InFlight
		return nil
	}
	evs, err := j.stored(ctx, e.Event.WorkItem, rec.Floor)
	if err != nil {
		return err
	}
	for i := range evs {
		if s := &evs[i].Event; s.ID == e.Event.ID && s.Generation > e.Event.Generation {
			e.State = InFlight
		}
	}
	return nil
}

func (j *judging) record(ctx context.Context, item workitem.Ref) (record.Record, error) {
	if r, ok := j.records[item]; ok {
		return r, nil
	}
	e, err := j.box.deps.Registry.Get(ctx, item)
	if err != nil {
		return record.Record{}, err
	}
	j.records[item] = e.Record
	return e.Record, nil
}

// stored lists the item's events above its floor: those without an outcome.
func (j *judging) stored(ctx context.Context, item workitem.Ref, floor uint64) ([]queue.Stored, error) {
	if evs, ok := j.events[item]; ok {
		return evs, nil
	}
	const page = 256
	var all []queue.Stored
	for from := floor + 1; ; {
		evs, err := j.box.deps.Events.Events(ctx, item, from, page)
		if err != nil {
			return nil, err
		}
		all = append(all, evs...)
		if len(evs) < page {
			break
		}
		from = evs[len(evs)-1].Seq + 1
	}
	j.events[item] = all
	return all, nil
}

// ErrNotReplayable says that the event is not whole, so no agent could be told
// what happened.
var ErrNotReplayable = errors.New("its message could not be read; look at the forge for what happened")

// Replayed is what Replay did.
type Replayed struct {
	// Sent says that the event was published now.
	Sent bool
	// State is the letter's, from just before; with Sent it was Open or
	// Forgotten.
	State State
	// Generation is the one that was sent, or the newest one known.
	Generation int
	// Outcome is the later generation's, when there is one.
	Outcome record.Outcome
}

// Replay publishes the event of a letter once more with the next generation,
// unless a later generation is there already or the letter is no longer kept.
// An error that wraps queue.ErrRefused, or any other but ErrNotReplayable, may be
// tried again.
func (b *Box) Replay(ctx context.Context, l Letter) (Replayed, error) {
	ev := l.Event
	all, err := b.List(ctx, ev.WorkItem)
	if err != nil {
		return Replayed{}, fmt.Errorf("replay %s for %s: %w", ev.ID, ev.WorkItem, err)
	}
	i := slices.IndexFunc(all, func(e Entry) bool {
		return same(&e.Letter, &l) && e.Event.Generation == ev.Generation
	})
	switch {
	case i < 0:
		return Replayed{}, fmt.Errorf("replay %s for %s: %w", ev.ID, ev.WorkItem, ErrGone)
	case all[i].State != Open && all[i].State != Forgotten:
		e := &all[i]
		return Replayed{State: e.State, Generation: max(e.Outcome.Generation, ev.Generation), Outcome: e.Outcome}, nil
	case l.Reason == ReasonUndecodable || ev.Kind == "":
		return Replayed{}, fmt.Errorf("replay %s for %s: %w", ev.ID, ev.WorkItem, ErrNotReplayable)
	}
	out := Replayed{Sent: true, State: all[i].State, Generation: ev.Generation + 1}
	ev.Generation++
	ev.Source = event.Operator
	r, err := b.deps.Publisher.Publish(ctx, ev)
	switch {
	case err != nil:
		return Replayed{}, fmt.Errorf("replay: %w", err)
	case r.Duplicate: // another was faster
		return Replayed{State: InFlight, Generation: ev.Generation}, nil
	}
	err = b.deps.Log.Emit(ctx, eventlog.Entry{
		Type: event.DeadLetterReplayed, WorkItem: ev.WorkItem, EventID: ev.ID, Delivery: ev.DeliveryID,
		Fields: map[string]any{"kind": string(ev.Kind), "generation": ev.Generation, logkey.Reason: l.Reason, logkey.Seq: r.Seq},
	})
	if err != nil {
		return out, fmt.Errorf("%s was replayed: %w", ev.ID, err)
	}
	return out, nil
}

// ErrGone says that a letter is no longer kept: it was dropped, or has expired.
var ErrGone = errors.New("there is no such dead letter any more")

// Drop takes the letters of an event away from an item: every generation, as an
// older one would take the newest's place. It returns how many there were; none
// is ErrGone. A notice that was not posted yet is not posted any more.
func (b *Box) Drop(ctx context.Context, l Letter) (int, error) {
	ev := l.Event
	fail := func(err error) error {
		return fmt.Errorf("drop the dead letter of %s for %s: %w", ev.ID, ev.WorkItem, err)
	}
	all, err := b.read(ctx, ev.WorkItem)
	if err != nil {
		return 0, fail(err)
	}
	st, err := b.deps.JS.Stream(ctx, streams.Dead)
	if err != nil {
		return 0, fail(err)
	}
	all = slices.DeleteFunc(all, func(e Entry) bool { return !same(&e.Letter, &l) })
	// The newest goes last: what fails on the way leaves the letter that counts.
	slices.SortFunc(all, func(x, y Entry) int { return cmp.Compare(x.Event.Generation, y.Event.Generation) })
	n := 0
	for i := range all {
		for _, seq := range all[i].Seqs {
			if err := remove(ctx, st, seq); err != nil {
				return n, fail(err)
			}
		}
		n++
	}
	if n == 0 {
		return 0, fail(ErrGone)
	}
	err = b.deps.Log.Emit(ctx, eventlog.Entry{
		Type: event.DeadLetterDropped, Level: event.Warn, WorkItem: ev.WorkItem, EventID: ev.ID, Delivery: ev.DeliveryID,
		Fields: map[string]any{"kind": string(ev.Kind), "letters": n, logkey.Reason: l.Reason},
	})
	if err != nil {
		return n, fmt.Errorf("the dead letter of %s was dropped: %w", ev.ID, err)
	}
	return n, nil
}

// remove deletes a message; one that is gone already is fine.
func remove(ctx context.Context, st jetstream.Stream, seq uint64) error {
	err := st.DeleteMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		if _, look := st.GetMsg(ctx, seq); errors.Is(look, jetstream.ErrMsgNotFound) {
			return nil // another dropped it at the same time
		}
	}
	return err
}
