package worker

import (
	"context"
	"errors"
	"maps"
	"time"

	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
	"loopfleet/pkg/workitem"
)

// watchEvery is how often the agents' processes are looked at; a death is
// noticed within twice that.
const watchEvery = 4 * time.Second

// watch notices agents that ended between events, so that nothing dead is shown
// alive. It starts nothing: the next event does.
func (w *Worker) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for item, s := range w.hostedAll() {
			if w.sessions.Alive(s) {
				continue
			}
			if err := w.buryDead(ctx, item, s); err != nil && ctx.Err() == nil && !errors.Is(err, queue.ErrNotOwner) {
				w.log.Warn().Err(err).Stringer("work_item", item).Msg("a dead session is looked at again")
			}
		}
	}
}

// hostedAll is a copy of what runs here.
func (w *Worker) hostedAll() map[workitem.Ref]record.Session {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.live)
}

// buryDead records that an agent has ended, unless something else has happened
// to its session meanwhile.
func (w *Worker) buryDead(ctx context.Context, item workitem.Ref, s record.Session) error {
	return w.engine.Item(item).Act(ctx, func(ctx context.Context) error {
		if now, here := w.hosted(item); !here || now.Token != s.Token {
			return nil
		}
		status, err := w.sessions.Inspect(ctx, s)
		if err != nil || !status.Ended() {
			return err
		}
		w.died(item, s, status)
		_, err = w.engine.Item(item).Update(ctx, func(r *record.Record) bool {
			if r.Session == nil || r.Session.Token != s.Token || r.State == record.StateClosed {
				return false
			}
			r.Set(record.StateDead, status.String(), now())
			return true
		})
		return err
	})
}
