package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"loopfleet/pkg/record"
	"loopfleet/pkg/registry"
	"loopfleet/pkg/workitem"
)

// sessionView is one line of `sessions list`; its JSON is a contract.
type sessionView struct {
	WorkItem         workitem.Ref `json:"work_item"`
	State            record.State `json:"state"`
	Incarnation      int          `json:"incarnation"`
	Worker           string       `json:"worker"`
	Harness          string       `json:"harness"`
	HarnessSessionID string       `json:"harness_session_id"`
	TmuxTarget       string       `json:"tmux_target"`
	TmuxSocket       string       `json:"tmux_socket"`
	Cwd              string       `json:"cwd"`
	// LastEventAt is null before the first event that was not dropped.
	LastEventAt *time.Time `json:"last_event_at"`
	Reason      string     `json:"reason"`
}

// workers is what is known of all workers.
type workers struct {
	byID  map[string]registry.Worker
	alive map[string]bool
	now   time.Time
}

// workerState is a worker's state as people see it.
type workerState string

// workerLost is a worker that said nothing of stopping and whose lease is gone.
const workerLost workerState = "lost"

// state is what the worker says of itself while its lease lives; without it,
// only an announced restart or stop is believed.
func (ws workers) state(id string) workerState {
	w := ws.byID[id]
	switch {
	case w.State == registry.WorkerRestarting && ws.now.Before(w.Until):
		return workerState(w.State)
	case w.State == registry.WorkerStopped:
		return workerState(w.State)
	case ws.alive[id] && w.State == registry.WorkerRestarting, ws.alive[id] && w.State == "":
		return workerState(registry.WorkerRunning)
	case ws.alive[id]:
		return workerState(w.State)
	default:
		return workerLost
	}
}

// gone reports whether nobody looks after what the worker hosts.
func (ws workers) gone(id string) bool {
	s := ws.state(id)
	return s == workerLost || s == workerState(registry.WorkerStopped)
}

// view computes what people see of a record: a session whose worker is gone is
// lost, whatever the record says, because nobody was left to write it down.
func view(rec *record.Record, ws workers) sessionView {
	v := sessionView{
		WorkItem: rec.WorkItem, State: rec.State, Reason: rec.Reason, Incarnation: rec.Incarnation,
		Worker: rec.Owner, Harness: rec.Harness,
	}
	if s := rec.Session; s != nil {
		v.Harness = cmp.Or(s.Harness, v.Harness)
		v.Worker = cmp.Or(s.Host, v.Worker)
		v.HarnessSessionID, v.TmuxTarget, v.TmuxSocket, v.Cwd = s.HarnessSessionID, s.TmuxTarget, s.TmuxSocket, s.Cwd
	}
	if !rec.LastEventAt.IsZero() {
		at := rec.LastEventAt.UTC()
		v.LastEventAt = &at
	}
	switch {
	case v.State != "", forgotten(rec):
	case rec.Want.Ended():
		v.State = record.StateClosed
	case rec.Owner != "" || rec.Started != nil:
		v.State = record.StateWaiting
	}
	if v.Worker != "" && running(v.State) && ws.gone(v.Worker) {
		v.State, v.Reason = record.StateLost, v.Worker
	}
	return v
}

// forgotten reports whether nothing is left of an item that was cleaned up.
func forgotten(rec *record.Record) bool {
	return !rec.ForgottenAt.IsZero() && rec.State == "" && rec.Session == nil && rec.Started == nil
}

// running reports whether the state says that an agent's process runs or is
// being started.
func running(s record.State) bool {
	return s == record.StateStarting || s == record.StateActive || s == record.StatePaused
}

// listed reports whether the item is of interest: not when all that ever
// happened to it was dropped, and when it is closed only if asked for.
func listed(v *sessionView, closedToo bool) bool {
	return v.State != "" && (closedToo || v.State != record.StateClosed)
}

// loadWorkers reads all workers and their leases.
func loadWorkers(ctx context.Context, reg *registry.Registry) (workers, []registry.Worker, error) {
	list, alive, err := reg.Workers(ctx)
	if err != nil {
		return workers{}, nil, err
	}
	ws := workers{byID: map[string]registry.Worker{}, alive: alive, now: time.Now()}
	for _, w := range list {
		ws.byID[w.ID] = w
	}
	return ws, list, nil
}

// knowing adds the lease of a worker that a record names and that has not
// described itself.
func (ws workers) knowing(ctx context.Context, reg *registry.Registry, id string) error {
	if _, known := ws.alive[id]; known || id == "" {
		return nil
	}
	alive, err := reg.LeaseAlive(ctx, id)
	if err != nil {
		return err
	}
	ws.alive[id] = alive
	return nil
}

// seen is a record with what people see of it.
type seen struct {
	sessionView
	rec record.Record
}

// loadSessions reads every record, in the order of items.
func loadSessions(ctx context.Context, reg *registry.Registry) ([]seen, error) {
	// Workers first: a worker that starts in between may not make its older
	// records look lost, but one that is found dead stays dead.
	ws, _, err := loadWorkers(ctx, reg)
	if err != nil {
		return nil, err
	}
	entries, err := reg.List(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]seen, 0, len(entries))
	for i := range entries {
		rec := &entries[i].Record
		if err := ws.knowing(ctx, reg, holder(rec)); err != nil {
			return nil, err
		}
		out = append(out, seen{sessionView: view(rec, ws), rec: *rec})
	}
	slices.SortFunc(out, func(a, b seen) int { return byItem(a.WorkItem, b.WorkItem) })
	return out, nil
}

// holder is the worker that a record's session depends on.
func holder(rec *record.Record) string {
	if rec.Session != nil && rec.Session.Host != "" {
		return rec.Session.Host
	}
	return rec.Owner
}

// byItem orders items by repository, and numbers as numbers.
func byItem(a, b workitem.Ref) int {
	return cmp.Or(
		cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Host, b.Host),
		cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Repo, b.Repo),
		cmp.Compare(len(a.Number), len(b.Number)), cmp.Compare(a.Number, b.Number),
	)
}

// short is an item as people write it: github: goes without saying.
func short(item workitem.Ref) string {
	return strings.TrimPrefix(item.String(), workitem.GitHub+":")
}
