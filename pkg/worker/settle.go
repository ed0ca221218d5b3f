package worker

import (
	"context"
	"errors"
	"time"

	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/fault"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/record"
	"loopfleet/pkg/session"
	"loopfleet/pkg/workitem"
)

// Settle makes what runs here agree with the record: a session of a closed item
// ends, one that survived its worker is adopted, one that did not is marked
// dead. It never starts anything; the next event does.
func (w *Worker) Settle(ctx context.Context, it *queue.Item) {
	err := it.Act(ctx, func(context.Context) error {
		// Not the context that a control message ends: this is its effect.
		rec, owned := it.Record()
		if !owned {
			return queue.ErrNotOwner
		}
		if rec.Want.Ended() {
			return w.endClosed(ctx, it, rec)
		}
		if err := w.showPause(ctx, it, rec); err != nil {
			return err
		}
		if rec.Session == nil || rec.Session.Host != w.cfg.ID {
			return w.endStranger(ctx, it, rec)
		}
		if _, here := w.hosted(it.Ref); here || rec.State == record.StateClosed {
			return nil
		}
		return w.recover(ctx, it, rec)
	})
	if err != nil && !errors.Is(err, queue.ErrNotOwner) {
		w.log.Warn().Err(err).Stringer("work_item", it.Ref).Msg("the session is settled with the next event or sweep")
	}
}

// showPause lets the state follow what the item wants.
func (w *Worker) showPause(ctx context.Context, it *queue.Item, rec record.Record) error {
	from, to := record.StateActive, record.StatePaused
	if rec.Want == record.Run {
		from, to = to, from
	}
	if rec.State != from {
		return nil
	}
	_, err := it.Update(ctx, func(r *record.Record) bool {
		if r.State != from || r.Want != rec.Want {
			return false
		}
		r.Set(to, "", now())
		return true
	})
	return err
}

// recover takes up a session that ran on while no worker looked after it.
func (w *Worker) recover(ctx context.Context, it *queue.Item, rec record.Record) error {
	s := *rec.Session
	status, err := w.sessions.Recover(ctx, s)
	if err != nil {
		return err
	}
	if status.Ended() {
		switch rec.State {
		case record.StateDead, record.StateSleeping, record.StateFailed, record.StateLost:
			return nil
		default:
		}
		w.died(it.Ref, s, status)
		_, err := it.Update(ctx, func(r *record.Record) bool {
			r.Set(record.StateDead, status.String(), now())
			return true
		})
		return err
	}
	w.hosts(it.Ref, s)
	w.events.Post(eventlog.Entry{Type: event.SessionAdopted, WorkItem: it.Ref, Fields: map[string]any{
		logkey.Harness: s.Harness, logkey.Session: s.TmuxTarget, "incarnation": rec.Incarnation, "pane_pid": s.PanePID,
	}})
	_, err = it.Update(ctx, func(r *record.Record) bool {
		switch r.State {
		case record.StateLost, record.StateDead, record.StateSleeping:
			r.Set(record.StateActive, "", now())
			return true
		default:
			return false
		}
	})
	return err
}

// died logs that an agent's process was found ended.
func (w *Worker) died(item workitem.Ref, s record.Session, status session.Status) {
	w.gone(item)
	w.events.Post(eventlog.Entry{Type: event.SessionDied, Level: event.Warn, WorkItem: item, Fields: map[string]any{
		logkey.Harness: s.Harness, logkey.Session: s.TmuxTarget, logkey.Reason: status.String(),
	}})
}

// endClosed ends the session of a closed item and records that it has ended.
func (w *Worker) endClosed(ctx context.Context, it *queue.Item, rec record.Record) error {
	first := rec.State != record.StateClosed
	if !rec.Wishes() && (!first || !rec.ForgottenAt.IsZero()) {
		return w.endStranger(ctx, it, rec)
	}
	s := rec.Session
	if s == nil || s.Host != w.cfg.ID {
		s = w.localSession(ctx, it.Ref)
	}
	if first && rec.Want == record.Closed {
		w.events.Post(eventlog.Entry{Type: event.SessionAutoclosed, WorkItem: it.Ref, Fields: map[string]any{
			logkey.Reason: rec.CloseReason, "had_session": s != nil,
		}})
	}
	opt := w.closeOptions()
	if rec.KillTmux || rec.Forget {
		opt.KillSession, opt.KeepHarness = true, false
	}
	end := record.End{At: now(), Worker: w.cfg.ID}
	switch {
	case s != nil:
		end = w.end(ctx, it.Ref, *s, opt)
	case rec.Session != nil:
		end.Error = "its session was on worker " + rec.Session.Host + ", which is away; it ends there when that worker comes back"
	}
	w.gone(it.Ref)
	if rec.Forget {
		return w.forget(ctx, it, end)
	}
	if !end.KeptHarness {
		w.dropCheckout(ctx, it.Ref, false, &end)
	}
	fault.Pass(ctx, fault.SessionEnded)
	_, err := it.Update(ctx, func(r *record.Record) bool {
		if !r.Want.Ended() {
			return false
		}
		r.Set(record.StateClosed, r.CloseReason, now())
		r.End = &end
		if rec.KillTmux && (s != nil || r.Session == nil) {
			r.KillTmux = false
		}
		return true
	})
	return err
}

// forget removes what the item left on this machine, and erases its record.
// What cannot be removed is reported and stays.
func (w *Worker) forget(ctx context.Context, it *queue.Item, end record.End) error {
	dir, err := w.sessions.Forget(ctx, it.Ref)
	end.Dir, end.DirRemoved = dir, dir != "" && err == nil
	if err != nil {
		end.Fail(err.Error())
	}
	w.dropCheckout(ctx, it.Ref, true, &end)
	fault.Pass(ctx, fault.SessionEnded)
	erased := false
	_, uerr := it.Update(ctx, func(r *record.Record) bool {
		if erased = r.Forget; erased {
			r.Erase(now(), end)
		}
		return erased
	})
	if uerr != nil || !erased {
		return uerr
	}
	level := event.Info
	if end.Error != "" {
		level = event.Warn
	}
	w.events.Post(eventlog.Entry{Type: event.ItemForgotten, Level: level, WorkItem: it.Ref, Fields: map[string]any{
		"dir": end.Dir, "removed": end.DirRemoved, logkey.Error: end.Error,
	}})
	return nil
}

func (w *Worker) closeOptions() session.EndOptions {
	t := w.routing().Tmux
	return session.EndOptions{KillSession: !t.KeepSessionOnClose, KeepHarness: t.KeepSessionOnClose && !t.KillHarnessOnClose, Grace: t.KillGrace()}
}

// end ends a session and logs what became of it; the record is closed whatever
// is left.
func (w *Worker) end(ctx context.Context, item workitem.Ref, s record.Session, opt session.EndOptions) record.End {
	rep, err := w.sessions.End(ctx, item, s, opt)
	end := record.End{
		At: now(), Worker: w.cfg.ID, PanePID: s.PanePID, Missing: rep.Missing,
		Ended: rep.Ended, Killed: rep.Killed, Survivors: len(rep.Survivors),
		KeptHarness: opt.KeepHarness && !rep.Missing, Retained: !opt.KillSession && !rep.Missing,
	}
	level := event.Info
	if err != nil || len(rep.Survivors) > 0 {
		level = event.Warn
	}
	fields := map[string]any{
		logkey.Harness: s.Harness, logkey.Session: s.TmuxTarget, "missing": rep.Missing,
		"pane_pid": s.PanePID, "ended": rep.Ended, "killed": rep.Killed, "survivors": len(rep.Survivors),
	}
	if err != nil {
		end.Error = err.Error()
		fields[logkey.Error] = end.Error
	}
	if !opt.KeepHarness {
		w.events.Post(eventlog.Entry{Type: event.SessionEnded, Level: level, WorkItem: item, Fields: fields})
	}
	if end.Retained {
		w.events.Post(eventlog.Entry{Type: event.SessionRetained, WorkItem: item, Fields: map[string]any{
			logkey.Session: s.TmuxTarget, "harness_runs": end.KeptHarness,
		}})
	}
	return end
}

// localSession is the session this machine has of an item, recorded or not.
func (w *Worker) localSession(ctx context.Context, item workitem.Ref) *record.Session {
	if s, ok := w.hosted(item); ok {
		return &s
	}
	found, err := w.sessions.Local(ctx)
	if err != nil {
		w.log.Warn().Err(err).Msg("not all sessions on this machine could be listed")
	}
	for _, f := range found {
		if f.Item == item {
			return &f.Session
		}
	}
	return nil
}

// endStranger ends what runs here of an item whose record knows nothing of it:
// what a crash left between a spawn and its record, when no event is about to
// adopt it.
func (w *Worker) endStranger(ctx context.Context, it *queue.Item, rec record.Record) error {
	if rec.Started != nil {
		return nil // the event under way adopts it by its token
	}
	if s, ok := w.hosted(it.Ref); ok && (rec.Session == nil || rec.Session.Token != s.Token) {
		w.end(ctx, it.Ref, s, session.EndOptions{KillSession: true, Grace: w.routing().Tmux.KillGrace()})
		w.gone(it.Ref)
	}
	return nil
}

// Evict ends the session of an item that is handed over.
func (w *Worker) Evict(ctx context.Context, it *queue.Item) {
	err := it.Act(ctx, func(context.Context) error {
		s, here := w.hosted(it.Ref)
		if !here {
			return nil
		}
		w.end(ctx, it.Ref, s, session.EndOptions{KillSession: true, Grace: w.routing().Tmux.KillGrace()})
		w.gone(it.Ref)
		_, err := it.Update(ctx, func(r *record.Record) bool {
			if r.State == record.StateClosed {
				return false
			}
			r.Set(record.StateSleeping, "drained", now())
			return true
		})
		return err
	})
	if err != nil && !errors.Is(err, queue.ErrNotOwner) {
		w.log.Warn().Err(err).Stringer("work_item", it.Ref).Msg("handing over is not recorded")
	}
}

// Leftover ends what runs here of an item that this worker does not own, unless
// the record names that very process and wants it. The screen of a session that
// has ended stays.
func (w *Worker) Leftover(ctx context.Context, rec record.Record) {
	s := w.localSession(ctx, rec.WorkItem)
	if s == nil {
		return
	}
	opt := session.EndOptions{KillSession: true, Grace: w.routing().Tmux.KillGrace()}
	if r := rec.Session; r != nil && r.Host == w.cfg.ID && r.Token == s.Token {
		if !rec.Want.Ended() {
			return
		}
		if !rec.KillTmux {
			if status, err := w.sessions.Inspect(ctx, *s); err == nil && status.Ended() {
				return
			}
			opt = w.closeOptions()
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), opt.Grace+time.Minute)
	defer cancel()
	w.end(ctx, rec.WorkItem, *s, opt)
	w.gone(rec.WorkItem)
}
