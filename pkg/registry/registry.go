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
	names   map[string]string // repository id key -> canonical owner/repo
}

// Open binds the buckets, which streams.Apply made.
func Open(ctx context.Context, js jetstream.JetStream) (*Registry, error) {
	r := &Registry{names: map[string]string{}}
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
	case errors.Is(err, jetstream.ErrKeyDeleted):
		return Entry{Record: record.New(item), Revision: e.Revision()}, nil
	case errors.Is(err, jetstream.ErrKeyNotFound):
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
		return rec, fmt.Errorf("record %s: %w", e.Key(), err)
	}
	if rec.Version > record.Version {
		return rec, fmt.Errorf("record %s has version %d and this program knows %d: run the newer program", e.Key(), rec.Version, record.Version)
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

// update is one compare-and-set; a lost race is ErrConflict.
func update(ctx context.Context, kv jetstream.KeyValue, key string, value []byte, revision uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rev, err := kv.Update(ctx, key, value, revision)
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) || errors.Is(err, jetstream.ErrKeyExists) {
		return 0, fmt.Errorf("%w: %w", ErrConflict, err)
	}
	return rev, err
}

// List reads every record. It asks the stream afresh each time: a standing
// watch can miss an update.
func (r *Registry) List(ctx context.Context) ([]Entry, error) {
	var out []Entry
	err := each(ctx, r.records, ">", func(e jetstream.KeyValueEntry) error {
		rec, err := decodeRecord(e)
		if err != nil {
			return err
		}
		out = append(out, Entry{Record: rec, Revision: e.Revision()})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list records: %w", err)
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
	case errors.Is(err, jetstream.ErrKeyNotFound), errors.Is(err, jetstream.ErrKeyDeleted):
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
// generations.
func (r *Registry) Outcomes(ctx context.Context, eventID string) ([]ItemOutcome, error) {
	var out []ItemOutcome
	err := each(ctx, r.dedup, "*.*.*.*."+eventID+".*", func(e jetstream.KeyValueEntry) error {
		key, _, _ := strings.Cut(e.Key(), "."+eventID+".g")
		item, err := workitem.ParseKey(key)
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
