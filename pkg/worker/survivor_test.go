package worker_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/harness"
	"loopfleet/pkg/record"
	"loopfleet/pkg/session"
	"loopfleet/pkg/tmux"
	"loopfleet/pkg/worker"
	"loopfleet/pkg/workitem"
)

// immortal is the real driver on a kernel that keeps a process of ours, as one
// that hangs in a file system does; nothing here can make one.
type immortal struct{ *session.Driver }

func (d immortal) End(ctx context.Context, item workitem.Ref, s record.Session, opt session.EndOptions) (session.EndReport, error) {
	rep, err := d.Driver.End(ctx, item, s, opt)
	rep.Survivors = []tmux.Process{{PID: s.PanePID, Start: s.PaneStart}}
	return rep, err
}

// rule: CL-14: a process that cannot be ended is a warning, and the record is
// closed all the same.
func TestClose_Survivor(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx := t.Context()
	nc := f.nats.Connect(t)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	log := zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.InfoLevel)
	ttl, err := f.reg.LeaseTTL(ctx)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := f.reg.NewLease("w1", ttl, "the test's")
	if err != nil {
		t.Fatal(err)
	}
	events, err := eventlog.New(js, eventlog.Options{Worker: "w1", Source: "worker", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	set, err := harness.NewSet(f.cfg.Harnesses, "")
	if err != nil {
		t.Fatal(err)
	}
	driver, err := session.New(session.Config{
		Worker: "w1", Dir: filepath.Join(f.cfg.StateDir, "workers", "w1"), WorkDir: filepath.Join(f.cfg.StateDir, "work"),
		Tmux: f.cfg.Routing.Tmux, Log: log, Environ: os.Environ(),
	}, set)
	if err != nil {
		t.Fatal(err)
	}
	w, err := worker.New(ctx, worker.Config{ID: "w1", Capacity: 1, Routing: f.cfg.Routing, PollRetries: 3}, worker.Deps{
		Conn: nc, JS: js, Registry: f.reg, Events: events, Sessions: immortal{driver}, Lease: lease, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		w.Stop(ctx, true)
		if err := events.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	ref := item(t, 94)
	f.running(ref)
	f.publish(closing(ref, 100))
	r := f.state(ref, record.StateClosed)
	if r.End.Survivors != 1 {
		t.Errorf("end %+v, want the survivor in it", r.End)
	}
	lines := f.wantLogged(event.SessionEnded, ref, 1)
	if len(lines) == 1 && (lines[0].Level != event.Warn || !strings.Contains(raw(lines[0]), `"survivors":1`)) {
		t.Errorf("no warning: %s", raw(lines[0]))
	}
}
