package streams

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// Server is the part of jetstream.JetStream that is needed here.
type Server interface {
	Stream(ctx context.Context, name string) (jetstream.Stream, error)
	CreateStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error)
	UpdateStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error)
	Consumer(ctx context.Context, stream, name string) (jetstream.Consumer, error)
	CreateConsumer(ctx context.Context, stream string, cfg jetstream.ConsumerConfig) (jetstream.Consumer, error)
	UpdateConsumer(ctx context.Context, stream string, cfg jetstream.ConsumerConfig) (jetstream.Consumer, error)
}

// ErrRefused says that a difference is left to a person; Diff tells which.
var ErrRefused = errors.New("a difference must be resolved by hand")

// rounds bounds how often Apply looks again when another process changes the
// same objects meanwhile.
const rounds = 5

// Plan compares the server with the definitions and changes nothing.
func Plan(ctx context.Context, js Server, opts Options) (Diff, error) {
	var d Diff
	if opts.Replicas == 0 {
		var err error
		if opts.Replicas, err = Replicas(ctx, js); err != nil {
			return d, err
		}
	}
	for _, def := range Definitions() {
		var (
			o   Object
			err error
		)
		switch def.Kind {
		case Lanes:
			continue
		case Consumer:
			o, err = planConsumer(ctx, js, def, opts)
		default:
			o, err = planStream(ctx, js, def, opts)
		}
		if err != nil {
			return Diff{}, fmt.Errorf("read %s %s: %w", def.Kind, def.Name, err)
		}
		d.Objects = append(d.Objects, o)
	}
	return d, nil
}

// Replicas is how many copies the server keeps of LOOP_EVENTS; 0 when it has no
// such stream.
func Replicas(ctx context.Context, js Server) (int, error) {
	s, err := js.Stream(ctx, Events)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("read stream %s: %w", Events, err)
	}
	return s.CachedInfo().Config.Replicas, nil
}

// Apply brings the server to the definitions and returns what it found before
// it began. When anything is refused it changes nothing and returns ErrRefused
// with the reasons.
func Apply(ctx context.Context, js Server, opts Options) (Diff, error) {
	var first Diff
	for round := range rounds {
		d, err := Plan(ctx, js, opts)
		if err != nil {
			return first, err
		}
		if round == 0 {
			first = d
		}
		if d.Count(Refuse) > 0 {
			return d, refused(d)
		}
		if d.Clean() {
			return first, nil
		}
		for i := range d.Objects {
			if err := d.Objects[i].apply(ctx, js); err != nil && !raced(err) {
				return first, err
			}
		}
	}
	d, err := Plan(ctx, js, opts)
	if err != nil || d.Clean() {
		return first, err
	}
	return d, fmt.Errorf("the server did not keep what was set %d times: is it older than nats-server 2.12, or does another version of loopfleet change it back?\n%s", rounds, d)
}

func refused(d Diff) error {
	var lines []string
	for _, o := range d.Objects {
		for _, r := range o.Reasons {
			lines = append(lines, fmt.Sprintf("%s %s: %s", o.Kind, o.Name, r))
		}
	}
	return fmt.Errorf("%w; nothing was changed:\n%s", ErrRefused, strings.Join(lines, "\n"))
}

// raced reports whether another process was faster, so that looking again helps.
func raced(err error) bool {
	for _, e := range []error{
		jetstream.ErrStreamNameAlreadyInUse, jetstream.ErrStreamNotFound,
		jetstream.ErrConsumerExists, jetstream.ErrConsumerDoesNotExist, jetstream.ErrConsumerNotFound,
		&jetstream.APIError{ErrorCode: jetstream.JSErrCodeConsumerAlreadyExists},
		&jetstream.APIError{ErrorCode: jetstream.JSErrCodeConsumerNameExists},
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// object starts an Object with the wanted members, as JSON has them.
func object(def Definition, opts Options) (Object, error) {
	want, err := toFields(opts.wanted(def))
	return Object{Kind: def.Kind, Name: def.Name, Action: OK, on: def.Stream(), overlay: want}, err
}

func planStream(ctx context.Context, js Server, def Definition, opts Options) (Object, error) {
	o, err := object(def, opts)
	if err != nil {
		return o, err
	}
	name := def.Stream()
	s, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		o.Action = Create
		return o, nil
	}
	if err != nil {
		return o, err
	}
	info := s.CachedInfo()
	o.stream = info.Config
	have, err := toFields(info.Config)
	if err != nil {
		return o, err
	}
	if o.Fields = diff(have, o.overlay); len(o.Fields) == 0 {
		return o, nil
	}
	o.Action = Update
	state := info.State
	if def.Name == leases {
		state = jetstream.StreamState{} // what would go has expired, or is renewed at once
	}
	if o.Reasons = refuseStream(name, o.Fields, have, o.overlay, state, info.TimeStamp); len(o.Reasons) > 0 {
		o.Action = Refuse
	}
	return o, nil
}

func planConsumer(ctx context.Context, js Server, def Definition, opts Options) (Object, error) {
	o, err := object(def, opts)
	if err != nil {
		return o, err
	}
	c, err := js.Consumer(ctx, o.on, def.Name)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		o.Action = Create
		return o, nil
	case errors.Is(err, jetstream.ErrNotPullConsumer):
		o.Action, o.Reasons = Refuse, []string{"it is a push consumer: " + remakeConsumer(o.on, def.Name)}
		return o, nil
	case err != nil:
		return o, err
	}
	o.cons = c.CachedInfo().Config
	have, err := toFields(o.cons)
	if err != nil {
		return o, err
	}
	if o.Fields = diff(have, o.overlay); len(o.Fields) == 0 {
		return o, nil
	}
	o.Action = Update
	if o.Reasons = refuseConsumer(o.on, def.Name, o.Fields); len(o.Reasons) > 0 {
		o.Action = Refuse
	}
	return o, nil
}

// apply creates or updates the object. An update sets the members that the
// definition names on top of what the server has.
func (o *Object) apply(ctx context.Context, js Server) error {
	var err error
	switch {
	case o.Action == OK || o.Action == Refuse:
		return nil
	case o.Kind == Consumer:
		if err = fromFields(o.overlay, &o.cons); err != nil {
			break
		}
		if o.Action == Create {
			_, err = js.CreateConsumer(ctx, o.on, o.cons)
		} else {
			_, err = js.UpdateConsumer(ctx, o.on, o.cons)
		}
	default:
		if err = fromFields(o.overlay, &o.stream); err != nil {
			break
		}
		if o.Action == Create {
			_, err = js.CreateStream(ctx, o.stream)
		} else {
			_, err = js.UpdateStream(ctx, o.stream)
		}
	}
	if err != nil {
		return fmt.Errorf("%s %s %s: %w", o.Action, o.Kind, o.Name, err)
	}
	return nil
}
