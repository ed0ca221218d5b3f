package status_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/status"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/workitem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site writes what the ingress and the workers write.
type site struct {
	*natstest.Server
	reg  *registry.Registry
	pub  *queue.Publisher
	log  *eventlog.Log
	deps status.Deps
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Server: natstest.Start(t, "")}
	natstest.Provision(t, s.JS)
	var err error
	if s.deps, err = status.Open(t.Context(), s.JS); err != nil {
		t.Fatal(err)
	}
	if s.reg, err = registry.Open(t.Context(), s.JS); err != nil {
		t.Fatal(err)
	}
	s.pub = queue.NewPublisher(s.JS)
	if s.log, err = eventlog.New(s.JS, eventlog.Options{Source: "ingress", Log: zerolog.New(zerolog.NewTestWriter(t))}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_ = s.log.Close(ctx)
	})
	return s
}

func item(t *testing.T, s string) workitem.Ref {
	t.Helper()
	r, err := workitem.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const (
	id   = "comment-abc"
	guid = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
)

// comment is an event as the ingress publishes it.
func comment(t *testing.T, ref string) event.Event {
	t.Helper()
	return event.Event{ID: id, Kind: event.Comment, Source: event.Webhook, WorkItem: item(t, ref), DeliveryID: guid}
}

func (s *site) publish(t *testing.T, e event.Event) uint64 {
	t.Helper()
	r, err := s.pub.Publish(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return r.Seq
}

func (s *site) outcome(t *testing.T, ref workitem.Ref, o record.Outcome) {
	t.Helper()
	if _, err := s.reg.PutOutcome(t.Context(), ref, o); err != nil {
		t.Fatal(err)
	}
}

func (s *site) emit(t *testing.T, e eventlog.Entry) {
	t.Helper()
	if err := s.log.Emit(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

func (s *site) find(t *testing.T, id string) []status.Delivery {
	t.Helper()
	got, err := status.Find(t.Context(), s.deps, id)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (s *site) expect(t *testing.T, id string, want ...status.Delivery) {
	t.Helper()
	for i := range want {
		if want[i].DeliveryIDs == nil {
			want[i].DeliveryIDs = []string{}
		}
	}
	if diff := cmp.Diff(want, s.find(t, id)); diff != "" {
		t.Errorf("status of %q (-want +got):\n%s", id, diff)
	}
}

// rule: RR-09
func TestFind_UnknownAndEmptyAreUnhandled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish(t, event.Event{ID: "comment-other", Kind: event.Comment, WorkItem: item(t, "octo/hello#42"), DeliveryID: "other"})
	for _, id := range []string{"", "comment-nope", guid, "*", ">", "a.b", "\x1b[2J", strings.Repeat("a", 5000)} {
		s.expect(t, id, status.Delivery{EventID: id, Status: status.Unhandled})
	}
}

// rule: RR-09
func TestFind_ByEventIDAndByGUID(t *testing.T) {
	t.Parallel()
	ref := "octo/hello#42"
	tests := []struct {
		name  string
		setup func(t *testing.T, s *site)
		want  status.Delivery
	}{
		{
			"stored", func(*testing.T, *site) {},
			status.Delivery{Status: status.InFlight},
		},
		{
			"failing", func(t *testing.T, s *site) {
				t.Helper()
				rec := record.New(item(t, ref))
				rec.Begin(id, 0, 1)
				rec.Fail("no pane", time.Time{})
				rec.Begin(id, 0, 1)
				if _, err := s.reg.Put(t.Context(), rec, 0); err != nil {
					t.Fatal(err)
				}
			},
			status.Delivery{Status: status.InFlight, Attempts: 1, LastError: "no pane"},
		},
		{
			"done", func(t *testing.T, s *site) {
				t.Helper()
				s.outcome(t, item(t, ref), record.Outcome{EventID: id, Kind: record.Done, Delivery: guid})
			},
			status.Delivery{Status: status.Done},
		},
		{
			"done, in the record only", func(t *testing.T, s *site) {
				t.Helper()
				rec := record.New(item(t, ref))
				rec.Finish(record.Outcome{EventID: id, Kind: record.Done, Delivery: guid})
				if _, err := s.reg.Put(t.Context(), rec, 0); err != nil {
					t.Fatal(err)
				}
			},
			status.Delivery{Status: status.Done},
		},
		{
			"dropped", func(t *testing.T, s *site) {
				t.Helper()
				s.outcome(t, item(t, ref), record.Outcome{EventID: id, Kind: record.Dropped, Reason: "closed", Delivery: guid})
			},
			status.Delivery{Status: status.Dropped, Reason: "closed"},
		},
		{
			"dead", func(t *testing.T, s *site) {
				t.Helper()
				s.outcome(t, item(t, ref), record.Outcome{EventID: id, Kind: record.Dead, Reason: "budget", Attempts: 3, Error: "no pane", Delivery: guid})
			},
			status.Delivery{Status: status.Dead, Reason: "budget", Attempts: 3, LastError: "no pane"},
		},
		{
			"dead, then sent again", func(t *testing.T, s *site) {
				t.Helper()
				s.outcome(t, item(t, ref), record.Outcome{EventID: id, Kind: record.Dead, Reason: "budget", Attempts: 3, Delivery: guid})
				e := comment(t, ref)
				e.Generation = 1
				s.publish(t, e)
			},
			status.Delivery{Status: status.InFlight},
		},
		{
			"dead, then done", func(t *testing.T, s *site) {
				t.Helper()
				s.outcome(t, item(t, ref), record.Outcome{EventID: id, Kind: record.Dead, Reason: "budget", Attempts: 3, Delivery: guid})
				s.outcome(t, item(t, ref), record.Outcome{EventID: id, Generation: 1, Kind: record.Done, Attempts: 1, Delivery: guid})
			},
			status.Delivery{Status: status.Done, Attempts: 1},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.publish(t, comment(t, ref))
			tt.setup(t, s)
			tt.want.EventID, tt.want.WorkItem, tt.want.DeliveryIDs = id, item(t, ref), []string{guid}
			s.expect(t, id, tt.want)
			s.expect(t, guid, tt.want)
		})
	}
}

// rule: RR-10
func TestFind_DoneAfterTheMessageAndTheServerWent(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	e := comment(t, "octo/hello#42")
	s.publish(t, e)
	s.emit(t, eventlog.Entry{Type: event.RoutingRouted, WorkItem: e.WorkItem, EventID: id, Delivery: guid})
	s.outcome(t, e.WorkItem, record.Outcome{EventID: id, Kind: record.Done, Delivery: guid})
	st, err := s.JS.Stream(t.Context(), queue.EventsStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Restart(t)
	want := status.Delivery{EventID: id, WorkItem: e.WorkItem, Status: status.Done, DeliveryIDs: []string{guid}}
	s.expect(t, id, want)
	s.expect(t, guid, want)
}

func TestFind_ALineOfTheLogAloneIsNoMessage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.emit(t, eventlog.Entry{Type: event.RoutingRouted, WorkItem: item(t, "octo/hello#42"), EventID: id, Delivery: guid})
	s.expect(t, id, status.Delivery{EventID: id, WorkItem: item(t, "octo/hello#42"), Status: status.Unhandled, DeliveryIDs: []string{guid}})
}

func TestFind_OneRowPerItem(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, b := comment(t, "octo/hello#1"), comment(t, "octo/hello#2")
	s.publish(t, a)
	s.publish(t, b)
	s.outcome(t, b.WorkItem, record.Outcome{EventID: id, Kind: record.Dead, Reason: "budget", Delivery: guid})
	// Another hook's GUID, which brought nothing new to the first item.
	s.emit(t, eventlog.Entry{
		Type: event.RoutingDropped, WorkItem: a.WorkItem, EventID: id, Delivery: "second", Fields: map[string]any{logkey.Reason: "duplicate"},
	})
	one := status.Delivery{EventID: id, WorkItem: a.WorkItem, Status: status.InFlight, DeliveryIDs: []string{"second", guid}}
	two := status.Delivery{EventID: id, WorkItem: b.WorkItem, Status: status.Dead, Reason: "budget", DeliveryIDs: []string{guid}}
	s.expect(t, id, one, two)
	s.expect(t, "second", one)
}

func TestFind_TwoEventsOfOneDelivery(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, b := comment(t, "octo/hello#1"), comment(t, "octo/hello#1")
	b.ID = "label-b"
	s.publish(t, a)
	s.publish(t, b)
	s.expect(t, guid,
		status.Delivery{EventID: id, WorkItem: a.WorkItem, Status: status.InFlight, DeliveryIDs: []string{guid}},
		status.Delivery{EventID: "label-b", WorkItem: a.WorkItem, Status: status.InFlight, DeliveryIDs: []string{guid}})
}

func TestFind_DroppedAtTheIngress(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.emit(t, eventlog.Entry{Type: event.WebhookReceived, Delivery: guid})
	s.emit(t, eventlog.Entry{
		Type: event.RoutingDropped, WorkItem: item(t, "octo/hello#42"), Delivery: guid, Fields: map[string]any{logkey.Reason: "not-armed"},
	})
	s.expect(t, guid, status.Delivery{
		WorkItem: item(t, "octo/hello#42"), Status: status.Dropped, Reason: "not-armed", DeliveryIDs: []string{guid},
	})
	// Redelivered after the label, it is routed: that is what became of it.
	s.publish(t, comment(t, "octo/hello#42"))
	s.expect(t, guid, status.Delivery{EventID: id, WorkItem: item(t, "octo/hello#42"), Status: status.InFlight, DeliveryIDs: []string{guid}})
}

func TestFind_RejectedAtTheIngress(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.emit(t, eventlog.Entry{Type: event.WebhookRejected, Delivery: guid, Fields: map[string]any{logkey.Reason: "signature-wrong"}})
	s.expect(t, guid, status.Delivery{Status: status.Unhandled, Reason: "signature-wrong", DeliveryIDs: []string{guid}})
}

func TestFind_ControlIsDoneWhenItWasFolded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	e := event.Event{ID: "close-a", Kind: event.Close, WorkItem: item(t, "octo/hello#42"), DeliveryID: guid}
	seq := s.publish(t, e)
	want := status.Delivery{EventID: "close-a", WorkItem: e.WorkItem, Status: status.InFlight, DeliveryIDs: []string{guid}}
	s.expect(t, "close-a", want)
	rec := record.New(e.WorkItem)
	rec.Fold([]record.Control{{EventID: e.ID, Kind: e.Kind, Seq: seq, At: time.Now()}})
	if _, err := s.reg.Put(t.Context(), rec, 0); err != nil {
		t.Fatal(err)
	}
	want.Status = status.Done
	s.expect(t, "close-a", want)
	s.expect(t, guid, want)
}

func TestDelivery_JSONIsTheContract(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(status.Delivery{EventID: id, WorkItem: item(t, "octo/hello#42"), Status: status.InFlight, DeliveryIDs: []string{guid}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"event_id":"comment-abc","work_item":"github:octo/hello#42","status":"in-flight","attempts":0,"reason":"","last_error":"","delivery_ids":["` + guid + `"]}`
	if string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
}
