package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"loopfleet/pkg/event"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/streams"
)

// What the floor has passed is completed and acknowledged, not handled again.
func TestGuard_BelowTheFloorIsCompletedNotHandled(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		item := ref(t, 1)
		n := r.start("a", 5, func(h *recorder) {
			h.handle = func(ctx context.Context, it *queue.Item, m *queue.Message) (queue.Verdict, bool) {
				if m.Event.ID != "e-1" {
					return queue.Verdict{}, false
				}
				// The outcome is in the record; before the dedup bucket and the
				// ack, the message goes back.
				_, err := it.Update(ctx, func(rec *record.Record) bool {
					rec.Arm(m.Event.At)
					rec.Finish(record.Outcome{EventID: m.Event.ID, Kind: record.Done, Seq: m.Seq})
					return true
				})
				if err != nil {
					t.Error(err)
				}
				return queue.Back, true
			}
		})
		r.publish(item, label, "e-1")
		r.wantOutcome(item, "e-1", record.Done, "")
		r.publish(item, comment, "e-2")
		r.wantOutcome(item, "e-2", record.Done, "")
		if got := n.count(&n.handled, "e-1"); got != 1 {
			t.Errorf("handled %d times", got)
		}
	})
}

// What the owner before left uncompleted is completed before the next event is
// handed out, however often that takes.
func TestGuard_LastOutcomeIsCompletedFirst(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		item := ref(t, 1)
		seq := r.publish(item, label, "e-1")
		rec := record.New(item)
		rec.Arm(r.record(item).ArmedAt)
		rec.Finish(record.Outcome{EventID: "e-1", Kind: record.Done, Seq: seq})
		if _, err := r.reg.Put(t.Context(), rec, 0); err != nil {
			t.Fatal(err)
		}
		r.publish(item, comment, "e-2")
		var tries atomic.Int32
		n := r.start("a", 5, func(h *recorder) {
			h.complete = func(o record.Outcome) error {
				if o.EventID == "e-1" && tries.Add(1) < 4 {
					return errWork
				}
				return nil
			}
		})
		r.wantOutcome(item, "e-2", record.Done, "")
		n.mu.Lock()
		defer n.mu.Unlock()
		if !slices.Equal(n.completed, []string{"e-1", "e-1", "e-1", "e-1", "e-2"}) || !slices.Equal(n.handled, []string{"e-2"}) {
			t.Errorf("completed %v, handled %v", n.completed, n.handled)
		}
	})
}

// The stream's duplicate window is an hour; a second publish within it is none.
func TestPublish_DuplicateAndRefused(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		e := event.Event{ID: "e-1", Kind: comment, WorkItem: ref(t, 1)}
		first, err := r.pub.Publish(t.Context(), e)
		if err != nil || first.Duplicate {
			t.Fatalf("%+v, %v", first, err)
		}
		again, err := r.pub.Publish(t.Context(), e)
		if err != nil || !again.Duplicate || again.Seq != first.Seq {
			t.Errorf("again: %+v, %v", again, err)
		}
		e.Generation = 1
		if next, err := r.pub.Publish(t.Context(), e); err != nil || next.Duplicate {
			t.Errorf("the next generation: %+v, %v", next, err)
		}
		e.WorkItem = ref(t, 2)
		if other, err := r.pub.Publish(t.Context(), e); err != nil || other.Duplicate {
			t.Errorf("another item: %+v, %v", other, err)
		}
		e.ID, e.Body = "e-2", strings.Repeat("x", 2<<20)
		if _, err := r.pub.Publish(t.Context(), e); !errors.Is(err, queue.ErrRefused) {
			t.Errorf("an event beyond the stream's limit: %v", err)
		}
	})
}

func TestLane_Undecodable(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		item := ref(t, 1)
		named := nats.NewMsg(item.EventsSubject())
		named.Data = []byte("{")
		named.Header.Set(event.HeaderID, "comment-x")
		hostile := nats.NewMsg(item.EventsSubject())
		hostile.Header.Set(event.HeaderID, "../../etc/passwd")
		elsewhere := nats.NewMsg(item.EventsSubject())
		elsewhere.Data = []byte(`{"id":"comment-y","kind":"comment","work_item":"github:octo/other#9"}`)
		elsewhere.Header.Set(event.HeaderID, "comment-y")
		for _, m := range []*nats.Msg{named, hostile, elsewhere} {
			if _, err := r.srv.JS.PublishMsg(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		r.start("a", 5)
		for _, id := range []string{"comment-x", "undecodable-2", "comment-y"} {
			r.wantOutcome(item, id, record.Dead, "undecodable")
		}
	})
}

// A bell of no item is acknowledged, and keeps nobody waiting.
func TestBell_PoisonSubject(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		for _, subject := range []string{"loop.events.x", "loop.events.a.b.c.d.e", "loop.events.github=2Ecom.o.r.*", "loop.control.x"} {
			if _, err := r.srv.JS.Publish(t.Context(), subject, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		r.start("a", 5)
		r.publish(ref(t, 1), label, "e-1")
		r.wantOutcome(ref(t, 1), "e-1", record.Done, "")
		for _, name := range []string{streams.Doorbell, streams.Control} {
			waitfor.Until(t, name+" to be done with all", func() bool {
				c, err := r.srv.JS.Consumer(t.Context(), streams.Events, name)
				if err != nil {
					return false
				}
				info := c.CachedInfo()
				return info.NumAckPending == 0 && info.NumPending == 0 && info.NumRedelivered == 0
			})
		}
	})
}

// A record that cannot be read keeps its own item waiting and no other, and its
// bell does not come round and round.
func TestBell_UnreadableRecord(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		kv, err := r.srv.JS.KeyValue(t.Context(), registry.RecordsBucket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.PutString(t.Context(), ref(t, 1).Key(), `{"version":99}`); err != nil {
			t.Fatal(err)
		}
		r.publish(ref(t, 1), label, "e-1")
		r.publish(ref(t, 2), label, "e-2")
		r.start("a", 0)
		r.start("b", 1)
		r.wantOutcome(ref(t, 2), "e-2", record.Done, "")
		waitfor.Until(t, "the bell to be acknowledged", func() bool {
			c, err := r.srv.JS.Consumer(t.Context(), streams.Events, streams.Doorbell)
			return err == nil && c.CachedInfo().NumAckPending == 0
		})
	})
}

func TestLane_HandlerPanics(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		n := r.start("a", 5, func(h *recorder) {
			h.handle = func(_ context.Context, _ *queue.Item, m *queue.Message) (queue.Verdict, bool) {
				if h.count(&h.handled, m.Event.ID) == 1 {
					panic("a bug")
				}
				return queue.Verdict{}, false
			}
		})
		r.publish(ref(t, 1), label, "e-1")
		r.wantOutcome(ref(t, 1), "e-1", record.Done, "")
		if got := n.count(&n.handled, "e-1"); got != 2 {
			t.Errorf("handed out %d times", got)
		}
	})
}

// A compare-and-set whose answer was lost is applied once.
func TestUpdate_LostAnswer(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]bool{"and read back at once": false, "and the server gone with it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false)
			defer r.close()
			item := ref(t, 1)
			var calls atomic.Int32
			up := make(chan struct{})
			done := make(chan error, 1)
			r.start("a", 5, func(h *recorder) {
				h.handle = func(ctx context.Context, it *queue.Item, m *queue.Message) (queue.Verdict, bool) {
					if m.Event.ID != "e-2" || calls.Load() > 0 {
						return queue.Verdict{}, false
					}
					rec, err := it.Update(ctx, func(rec *record.Record) bool {
						rec.Begin(m.Event.ID, 0, m.Seq)
						rec.Incarnation += 10
						if calls.Add(1) == 1 {
							// Our write lands; we never hear of it.
							e, err := r.reg.Get(ctx, item)
							if err != nil {
								t.Error(err)
							}
							if _, err := r.reg.Put(ctx, *rec, e.Revision); err != nil {
								t.Error(err)
							}
							if outage {
								r.srv.Down()
								close(up)
							}
						}
						return true
					})
					if err == nil && (rec.Incarnation != 11 || rec.Started.Starts != 1) {
						err = fmt.Errorf("applied more than once: %+v", rec)
					}
					done <- err
					return queue.Verdict{}, false
				}
			})
			r.publish(item, label, "e-1")
			r.wantOutcome(item, "e-1", record.Done, "")
			r.publish(item, comment, "e-2")
			if outage {
				<-up
				r.srv.Up(t)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			if calls.Load() != 1 {
				t.Errorf("the change was applied %d times", calls.Load())
			}
			r.wantOutcome(item, "e-2", record.Done, "")
		})
	}
}

// A lost race is applied anew to what the other wrote.
func TestUpdate_Conflict(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		item := ref(t, 1)
		var calls atomic.Int32
		r.start("a", 5, func(h *recorder) {
			h.handle = func(ctx context.Context, it *queue.Item, _ *queue.Message) (queue.Verdict, bool) {
				_, err := it.Update(ctx, func(rec *record.Record) bool {
					if calls.Add(1) == 1 {
						e, err := r.reg.Get(ctx, item)
						if err != nil {
							t.Error(err)
						}
						e.Record.Harness = "theirs"
						if _, err := r.reg.Put(ctx, e.Record, e.Revision); err != nil {
							t.Error(err)
						}
					}
					rec.Title = "ours"
					return true
				})
				if err != nil {
					t.Error(err)
				}
				return queue.Verdict{}, false
			}
		})
		r.publish(item, label, "e-1")
		r.wantOutcome(item, "e-1", record.Done, "")
		if rec := r.record(item); rec.Harness != "theirs" || rec.Title != "ours" || calls.Load() != 2 {
			t.Errorf("%+v after %d calls", rec, calls.Load())
		}
	})
}

// A worker whose item was taken by another learns it from its next write, does
// nothing more with it and ends what it runs of it.
func TestUpdate_LostOwnership(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		item := ref(t, 1)
		theirs, err := r.reg.NewLease("other", ttl, "lock of other")
		if err != nil {
			t.Fatal(err)
		}
		if err := theirs.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := r.start("a", 5, func(h *recorder) {
			h.work = func(ctx context.Context, _ *queue.Item, m *queue.Message) error {
				if m.Event.ID != "e-2" {
					return nil
				}
				e, err := r.reg.Get(ctx, item)
				if err != nil {
					return err
				}
				e.Record.Owner = "other"
				_, err = r.reg.Put(ctx, e.Record, e.Revision)
				return err
			}
		})
		r.publish(item, label, "e-1")
		r.wantOutcome(item, "e-1", record.Done, "")
		r.publish(item, comment, "e-2")
		waitfor.Until(t, "the leftover to be ended", func() bool { return n.hasRef(&n.leftovers, item) })
		if rec := r.record(item); rec.Owner != "other" || rec.Floor >= r.lastSeq(item) {
			t.Errorf("the record is %+v", rec)
		}
		if _, ok, err := r.reg.Outcome(t.Context(), item, "e-2", 0); ok || err != nil {
			t.Errorf("an outcome was written without ownership: %t, %v", ok, err)
		}
	})
}

// Bound to fail: nothing is started, nothing is left behind.
func TestEngine_StartThatFails(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		r.start("a", 1)
		lease, err := r.reg.NewLease("a", ttl, "another folder")
		if err != nil {
			t.Fatal(err)
		}
		e, err := queue.New(t.Context(), queue.Config{Worker: "a", Memory: true}, r.srv.Conn, r.srv.JS, r.reg, lease, r.events, nop)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errWork)
		err = e.Start(ctx, &recorder{engine: e, reg: r.reg, ledger: &r.ledger})
		if !errors.Is(err, errWork) {
			t.Errorf("start: %v", err)
		}
		e.Stop(t.Context(), true)
		if w, _, err := r.reg.Worker(t.Context(), "a"); err != nil || w.State != registry.WorkerRunning {
			t.Errorf("the worker that runs is said to be %s, %v", w.State, err)
		}
	})
}

// Drain: what runs is ended, what waits goes to a peer, at once and in order.
func TestStop_DrainHandsOver(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		a := r.start("a", 20)
		const items = 10
		for i := 1; i <= items; i++ {
			r.publish(ref(t, i), label, fmt.Sprintf("e-%d-0", i))
			r.wantOutcome(ref(t, i), fmt.Sprintf("e-%d-0", i), record.Done, "")
		}
		b := r.start("b", 20)
		for i := 1; i <= items; i++ {
			r.publish(ref(t, i), comment, fmt.Sprintf("e-%d-1", i))
		}
		a.stop(false)
		for i := 1; i <= items; i++ {
			r.publish(ref(t, i), comment, fmt.Sprintf("e-%d-2", i))
		}
		for i := 1; i <= items; i++ {
			item := ref(t, i)
			for c := range 3 {
				r.wantOutcome(item, fmt.Sprintf("e-%d-%d", i, c), record.Done, "")
			}
			if !a.hasRef(&a.evicted, item) || !b.hosts(item) || r.record(item).Owner != "b" {
				t.Errorf("%s was not handed over", item)
			}
		}
		if alive, err := r.reg.LeaseAlive(t.Context(), "a"); alive || err != nil {
			t.Errorf("the lease is not given back: %t, %v", alive, err)
		}
		if w, _, err := r.reg.Worker(t.Context(), "a"); err != nil || w.State != registry.WorkerStopped {
			t.Errorf("a says it is %s, %v", w.State, err)
		}
	})
}
