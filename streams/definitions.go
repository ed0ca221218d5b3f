package streams

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Names of the streams and of the shared consumers: Notices is on Dead, the
// others are on Events.
const (
	Events = "LOOP_EVENTS"
	Log    = "LOOP_LOG"
	Dead   = "LOOP_DEAD"

	Doorbell = "doorbell"
	Control  = "control"
	Notices  = "notices"

	leases = "loop_leases"
)

// Lifetimes that other packages reckon with.
const (
	// EventsMaxAge is how long an event is kept.
	EventsMaxAge = 14 * 24 * time.Hour
	// OutcomeTTL is how long the outcome of an event is remembered.
	OutcomeTTL = EventsMaxAge + 7*24*time.Hour
	// LeaseTTL is how long a worker lives after its last renewal.
	LeaseTTL = 10 * time.Second
)

// Kind tells what a definition defines.
type Kind string

// Kinds of definitions. A Lane is a template; Apply makes none.
const (
	Stream   Kind = "stream"
	Bucket   Kind = "bucket"
	Consumer Kind = "consumer"
	Lanes    Kind = "lane"
)

// Definition is one of the JSON files.
type Definition struct {
	Kind Kind
	// Name is the stream's, the bucket's (without KV_) or the consumer's.
	Name string
	// JSON is the file as it is embedded.
	JSON []byte

	fields map[string]any
}

// Path is where the file is below this package's directory.
func (d Definition) Path() string {
	dir, name := d.Kind, d.Name
	if d.Kind == Lanes {
		dir = Consumer
	}
	return path.Join(string(dir), name+".json")
}

// Stream is the stream that a Consumer or Lanes is on, and that holds the object
// of any other kind.
func (d Definition) Stream() string {
	switch {
	case d.Kind == Bucket:
		return "KV_" + d.Name
	case d.Kind == Stream:
		return d.Name
	case d.Name == Notices:
		return Dead
	default:
		return Events
	}
}

//go:embed stream/*.json bucket/*.json consumer/*.json
var files embed.FS

// Definitions returns all of them: streams, buckets, then consumers.
func Definitions() []Definition {
	var defs []Definition
	for _, kind := range []Kind{Stream, Bucket, Consumer} {
		entries, err := files.ReadDir(string(kind))
		if err != nil {
			panic(err) // the directory is embedded
		}
		for _, e := range entries {
			defs = append(defs, load(kind, strings.TrimSuffix(e.Name(), ".json")))
		}
	}
	return defs
}

func load(kind Kind, name string) Definition {
	b, err := files.ReadFile(path.Join(string(kind), name+".json"))
	if err != nil {
		panic(err) // embedded
	}
	d := Definition{Kind: kind, Name: name, JSON: b}
	if kind == Consumer && name == "lane" {
		d.Kind = Lanes
	}
	if d.fields, err = toFields(json.RawMessage(b)); err != nil {
		panic(fmt.Sprintf("%s: %v", d.Path(), err)) // a test reads every file
	}
	return d
}

// Options adapt the definitions to a site. The zero value is the JSON files.
type Options struct {
	// Replicas of every stream and consumer; 0 means as many as there are, so
	// that nobody takes copies away unasked, or 1 on a new server.
	Replicas int
	// LeaseTTL replaces the lease's time to live; 0 means LeaseTTL. At least
	// 100 ms.
	LeaseTTL time.Duration
	// Memory keeps everything in memory, for tests.
	Memory bool
	// MaxBytes replaces the size limit of the streams named, in bytes.
	MaxBytes map[string]int64
}

// wanted applies the options to the definition's fields.
func (o Options) wanted(d Definition) map[string]any {
	f := maps.Clone(d.fields)
	replicas := max(o.Replicas, 1)
	f["num_replicas"] = replicas
	if d.Kind == Consumer || d.Kind == Lanes {
		return f
	}
	if o.Memory {
		f["storage"] = "memory"
	}
	if _, async := f["persist_mode"]; async && (o.Memory || replicas > 1) {
		f["persist_mode"] = "default" // the server refuses async there
	}
	if n, ok := o.MaxBytes[d.Name]; ok {
		f["max_bytes"] = n
	}
	if d.Name == leases && o.LeaseTTL > 0 {
		f["max_age"] = o.LeaseTTL
		f["duplicate_window"] = min(o.LeaseTTL, 2*time.Minute)
	}
	return f
}

// Lane is the configuration that every lane shares. The caller adds Durable,
// FilterSubject, OptStartSeq (the floor plus one) and Metadata.
func Lane(replicas int) jetstream.ConsumerConfig {
	var cfg jetstream.ConsumerConfig
	if err := fromFields(Options{Replicas: replicas}.wanted(load(Consumer, "lane")), &cfg); err != nil {
		panic(err) // a test reads the template
	}
	cfg.Durable, cfg.FilterSubject, cfg.OptStartSeq = "", "", 0
	return cfg
}

// toFields turns a configuration into its JSON members. Numbers keep their
// digits: durations are too long for a float.
func toFields(v any) (map[string]any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var f map[string]any
	if err := dec.Decode(&f); err != nil {
		return nil, err
	}
	return f, nil
}

// fromFields sets the members of v that fields names, and leaves the others.
func fromFields(fields map[string]any, v any) error {
	b, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
