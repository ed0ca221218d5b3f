package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/event"
	"loopfleet/pkg/record"
	"loopfleet/pkg/workitem"
)

// Bucket names.
const (
	RecordsBucket = "loop_registry"
	DedupBucket   = "loop_dedup"
	LinksBucket   = "loop_links"
	ReposBucket   = "loop_repos"
	WorkersBucket = "loop_workers"
	LeasesBucket  = "loop_leases"
)

// callTimeout bounds one request to the server.
const callTimeout = 3 * time.Second

// ErrConflict says that a record changed since it was read.
var ErrConflict = errors.New("changed by another since it was read")

// Registry is the open set of buckets.
type Registry struct {
	records, dedup, links, repos, workers, leases jetstream.KeyValue

	namesMu sync.RWMutex
	names   map[repoName]string // -> canonical owner/repo
}

// repoName is a repository with a name that was seen to lead to it.
type repoName struct{ idKey, name string }

// Open binds the buckets, which streams.Apply made.
func Open(ctx context.Context, js jetstream.JetStream) (*Registry, error) {
	r := &Registry{names: map[repoName]string{}}
	for _, b := range []struct {
		name string
		into *jetstream.KeyValue
	}{
		{RecordsBucket, &r.records},
		{DedupBucket, &r.dedup},
		{LinksBucket, &r.links},
		{ReposBucket, &r.repos},
		{WorkersBucket, &r.workers},
		{LeasesBucket, &r.leases},
	} {
		kv, err := js.KeyValue(ctx, b.name)
		if err != nil {
			return nil, fmt.Errorf("open bucket %s: %w (run `loopfleet streams apply`)", b.name, err)
		}
		*b.into = kv
	}
	return r, nil
}

// Entry is a record with the revision it was read at. Revision 0 means that the
// item has no record yet.
type Entry struct {
	Record   record.Record
	Revision uint64
}

// Get reads an item's record from the leader. An item without one gives a fresh
// record at revision 0.
func (r *Registry) Get(ctx context.Context, item workitem.Ref) (Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	e, err := r.records.Get(ctx, item.Key())
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound): // also when it was deleted
		return Entry{Record: record.New(item)}, nil
	case err != nil:
		return Entry{}, fmt.Errorf("read record of %s: %w", item, err)
	}
	rec, err := decodeRecord(e)
	if err != nil {
		return Entry{}, err
	}
	return Entry{Record: rec, Revision: e.Revision()}, nil
}

func decodeRecord(e jetstream.KeyValueEntry) (record.Record, error) {
	var rec record.Record
	if err := json.Unmarshal(e.Value(), &rec); err != nil {
		return rec, fmt.Errorf("%w: %s: %w", ErrUnreadable, e.Key(), err)
	}
	if rec.Version > record.Version {
		return rec, fmt.Errorf("%w: %s has version %d and this program knows %d: run the newer program", ErrUnreadable, e.Key(), rec.Version, record.Version)
	}
	if rec.WorkItem.Key() != e.Key() {
		return rec, fmt.Errorf("%w: %s names %s", ErrUnreadable, e.Key(), rec.WorkItem)
	}
	return rec, nil
}

// Put writes the record if nobody wrote it since revision, and returns the new
// revision. A lost race is ErrConflict; any other error leaves it open whether
// the write landed.
func (r *Registry) Put(ctx context.Context, rec record.Record, revision uint64) (uint64, error) {
	b, err := json.Marshal(rec)
	if err != nil {
		return 0, fmt.Errorf("encode record of %s: %w", rec.WorkItem, err)
	}
	rev, err := update(ctx, r.records, rec.WorkItem.Key(), b, revision)
	if err != nil {
		return 0, fmt.Errorf("write record of %s: %w", rec.WorkItem, err)
	}
	return rev, nil
}

// update is one compare-and-set; a lost race is ErrConflict. Revision 0 means
// that the key has no value.
func update(ctx context.Context, kv jetstream.KeyValue, key string, value []byte, revision uint64) (rev uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if revision == 0 {
		// Not Update: a value that was deleted or has expired leaves a marker
		// with a revision of its own, for up to a minute.
		rev, err = kv.Create(ctx, key, value)
	} else {
		rev, err = kv.Update(ctx, key, value, revision)
	}
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) || errors.Is(err, jetstream.ErrKeyExists) {
		return 0, fmt.Errorf("%w: %w", ErrConflict, err)
	}
	return rev, err
}

// ErrUnreadable says that a record cannot be decoded: it is damaged, or of a
// newer program.
var ErrUnreadable = errors.New("a record cannot be read")

// List reads every record. It asks the stream afresh each time: a standing
// watch can miss an update. When some cannot be decoded, it returns all others
// with an error that wraps ErrUnreadable: one of them must not stop the fleet.
func (r *Registry) List(ctx context.Context) ([]Entry, error) {
	var (
		out        []Entry
		unreadable []error
	)
	err := each(ctx, r.records, ">", func(e jetstream.KeyValueEntry) error {
		rec, err := decodeRecord(e)
		if err != nil {
			unreadable = append(unreadable, err)
			return nil
		}
		out = append(out, Entry{Record: rec, Revision: e.Revision()})
		return nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("list records: %w", err)
	case len(unreadable) > 0:
		return out, fmt.Errorf("list records: %w", errors.Join(unreadable...))
	}
	return out, nil
}

// each calls fn for the current value of every key that matches.
func each(ctx context.Context, kv jetstream.KeyValue, keys string, fn func(jetstream.KeyValueEntry) error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*callTimeout)
	defer cancel()
	w, err := kv.Watch(ctx, keys, jetstream.IgnoreDeletes())
	if err != nil {
		return err
	}
	defer func() { _ = w.Stop() }()
	for {
		select {
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				return errors.New("the listing was cut off")
			case e == nil:
				return nil
			}
			if err := fn(e); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// outcomeKey is where the outcome of one generation is kept.
func outcomeKey(item workitem.Ref, eventID string, generation int) string {
	return fmt.Sprintf("%s.%s.g%d", item.Key(), eventID, generation)
}

// PutOutcome records how a generation of an event ended. The first outcome
// stays; created is false when there was one already.
func (r *Registry) PutOutcome(ctx context.Context, item workitem.Ref, o record.Outcome) (created bool, err error) {
	b, err := json.Marshal(o)
	if err != nil {
		return false, fmt.Errorf("encode outcome of %s: %w", o.EventID, err)
	}
	_, err = update(ctx, r.dedup, outcomeKey(item, o.EventID, o.Generation), b, 0)
	switch {
	case errors.Is(err, ErrConflict):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("record outcome of %s for %s: %w", o.EventID, item, err)
	}
	return true, nil
}

// Outcome reads how a generation ended; ok is false when it has not.
func (r *Registry) Outcome(ctx context.Context, item workitem.Ref, eventID string, generation int) (o record.Outcome, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	e, err := r.dedup.Get(ctx, outcomeKey(item, eventID, generation))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return o, false, nil
	case err != nil:
		return o, false, fmt.Errorf("read outcome of %s for %s: %w", eventID, item, err)
	}
	if err := json.Unmarshal(e.Value(), &o); err != nil {
		return o, false, fmt.Errorf("outcome %s: %w", e.Key(), err)
	}
	return o, true, nil
}

// ItemOutcome is an outcome with the item it is of.
type ItemOutcome struct {
	WorkItem workitem.Ref
	record.Outcome
}

// Outcomes lists every recorded outcome of an event id, over all items and
// generations. What cannot be an event id has none.
func (r *Registry) Outcomes(ctx context.Context, eventID string) ([]ItemOutcome, error) {
	if !event.ValidID(eventID) {
		return nil, nil // and its "*" or "." would list something else
	}
	var out []ItemOutcome
	err := each(ctx, r.dedup, "*.*.*.*."+eventID+".*", func(e jetstream.KeyValueEntry) error {
		key := e.Key()
		item, err := workitem.ParseKey(key[:strings.LastIndex(key, "."+eventID+".g")])
		if err != nil {
			return fmt.Errorf("outcome %s: %w", e.Key(), err)
		}
		var o record.Outcome
		if err := json.Unmarshal(e.Value(), &o); err != nil {
			return fmt.Errorf("outcome %s: %w", e.Key(), err)
		}
		out = append(out, ItemOutcome{WorkItem: item, Outcome: o})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list outcomes of %s: %w", eventID, err)
	}
	return out, nil
}
