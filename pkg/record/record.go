package record

import (
	"slices"
	"time"

	"loopfleet/pkg/workitem"
)

// Want is what people and the forge want of the item.
type Want string

// Wants.
const (
	Run     Want = "run"
	Paused  Want = "paused"
	Closed  Want = "closed"
	Stopped Want = "stopped"
)

// Ended reports whether no session may run.
func (w Want) Ended() bool { return w == Closed || w == Stopped }

// State is what the session is, as people see it.
type State string

// States, in the words of `sessions list`.
const (
	StateWaiting  State = "waiting"
	StateStarting State = "starting"
	StateActive   State = "active"
	StatePaused   State = "paused"
	StateSleeping State = "sleeping"
	StateDead     State = "dead"
	StateLost     State = "lost"
	StateFailed   State = "failed"
	StateClosed   State = "closed"
)

// Reasons that go with a state.
const (
	ReasonNoRoom           = "no-room"
	ReasonNoHarness        = "no-harness"
	ReasonNoReceipt        = "no-receipt"
	ReasonWaitingForPerson = "waiting-for-person"
)

// OutcomeKind is how an event ended.
type OutcomeKind string

// Outcomes.
const (
	Done    OutcomeKind = "done"
	Dropped OutcomeKind = "dropped"
	Dead    OutcomeKind = "dead"
)

// Outcome is how one generation of an event ended for one item.
type Outcome struct {
	EventID    string      `json:"event_id"`
	Generation int         `json:"generation,omitempty"`
	Kind       OutcomeKind `json:"outcome"`
	// Reason says why it was dropped or died.
	Reason string `json:"reason,omitempty"`
	// Seq is the event's sequence in LOOP_EVENTS.
	Seq      uint64    `json:"seq,omitempty"`
	Attempts int       `json:"attempts,omitempty"`
	Error    string    `json:"last_error,omitempty"`
	Delivery string    `json:"delivery_id,omitempty"`
	At       time.Time `json:"at"`
}

// Attempt is the event at the head of the lane, from its first start on.
type Attempt struct {
	EventID    string `json:"event_id"`
	Generation int    `json:"generation,omitempty"`
	Seq        uint64 `json:"seq"`
	// Starts counts starts, Failures recorded failures. Starts above Failures
	// means that a start is under way or was lost in a crash.
	Starts   int `json:"starts"`
	Failures int `json:"failures,omitempty"`
	// Lost counts the starts that ended without a recorded outcome.
	Lost  int    `json:"lost,omitempty"`
	Error string `json:"last_error,omitempty"`
	// NotBefore is when the next try is due.
	NotBefore time.Time `json:"not_before,omitzero"`
	// Incarnation is the session that was tried.
	Incarnation int `json:"incarnation,omitempty"`
}

// Session is the handle of the agent conversation, enough to find the very
// process again after a restart of the worker.
type Session struct {
	// Token proves that a tmux session is ours; it is in its environment.
	Token string `json:"token"`
	// Host is the worker on whose machine it runs.
	Host             string `json:"host"`
	Harness          string `json:"harness"`
	HarnessSessionID string `json:"harness_session_id,omitempty"`
	TmuxTarget       string `json:"tmux_target"`
	TmuxSocket       string `json:"tmux_socket"`
	// ServerPID and ServerStart identify the tmux server; the session is
	// missing only when that very process is gone. Start is in clock ticks
	// since boot, field 22 of /proc/<pid>/stat.
	ServerPID   int    `json:"server_pid"`
	ServerStart uint64 `json:"server_start"`
	// PanePID and PaneStart identify the agent's own process the same way.
	PanePID   int    `json:"pane_pid"`
	PaneStart uint64 `json:"pane_start"`
	// Dir is the session's private directory (receipts), outside the checkout.
	Dir string `json:"dir"`
	// Cwd is the directory the agent was started in.
	Cwd       string    `json:"cwd"`
	StartedAt time.Time `json:"started_at"`
	// BootEvent is the event whose pointer was the boot prompt.
	BootEvent string `json:"boot_event,omitempty"`
}

// End is what ending a session did, for whoever asked for it.
type End struct {
	At time.Time `json:"at"`
	// Worker did it.
	Worker string `json:"worker"`
	// PanePID was the agent's process; 0 when there was no session.
	PanePID int `json:"pane_pid,omitempty"`
	// Missing says that the session was gone already.
	Missing bool `json:"missing,omitempty"`
	// Ended counts the processes that are gone, Killed those of them that had to
	// be killed, Survivors those that could not be.
	Ended     int `json:"ended,omitempty"`
	Killed    int `json:"killed,omitempty"`
	Survivors int `json:"survivors,omitempty"`
	// KeptHarness says that the agent was left running, as configured.
	KeptHarness bool `json:"kept_harness,omitempty"`
	// Retained says that the screen stays readable.
	Retained bool `json:"retained,omitempty"`
	// Dir is the work directory that was there, DirRemoved whether it is gone.
	Dir        string `json:"dir,omitempty"`
	DirRemoved bool   `json:"dir_removed,omitempty"`
	// DirKept says why it is still there.
	DirKept string `json:"dir_kept,omitempty"`
	// Error is what could not be done.
	Error string `json:"error,omitempty"`
}

// Fail adds something that could not be done.
func (e *End) Fail(what string) {
	if e.Error != "" {
		e.Error += "; "
	}
	e.Error += what
}

// Bounds of the histories a record carries.
const (
	MaxRecent     = 50
	MaxControlIDs = 20
)

// Record is everything durable about one work item.
type Record struct { //nolint:recvcheck // Clone works on a copy, the changes on the record
	Version  int          `json:"version"`
	WorkItem workitem.Ref `json:"work_item"`
	// Owner is the worker whose lane it is; empty when nobody's.
	Owner string `json:"owner,omitempty"`
	// Floor is the sequence up to which every event of the item has an outcome.
	Floor uint64 `json:"floor"`
	Want  Want   `json:"want"`
	State State  `json:"state"`
	// Reason explains State, or says why Want is what it is.
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
	// Was is the state below a wait, which Unwait restores.
	Was State `json:"was,omitempty"`
	// Armed says that an arming event was ever obeyed: somebody asked for an
	// agent. Whether one may run now is Want's to say.
	Armed bool `json:"armed,omitempty"`
	// ArmedAt is the forge's time of the latest arming event that was obeyed or
	// confirmed that the item is open; closes older than that are old news.
	ArmedAt time.Time `json:"armed_at,omitzero"`
	// ClosedAt is the forge's time of the latest close that was obeyed.
	ClosedAt time.Time `json:"closed_at,omitzero"`
	// CloseReason is why it was closed or stopped last.
	CloseReason string `json:"close_reason,omitempty"`
	// ClosedSeq is the sequence of the newest close or stop; events below it are
	// dropped.
	ClosedSeq  uint64   `json:"closed_seq,omitempty"`
	ControlSeq uint64   `json:"control_seq,omitempty"`
	ControlIDs []string `json:"control_ids,omitempty"`

	// Incarnation counts the spawns of this item.
	Incarnation int `json:"incarnation,omitempty"`
	// Harness is what the item runs on; a respawn derives nothing anew.
	Harness string   `json:"harness,omitempty"`
	Session *Session `json:"session,omitempty"`

	Started *Attempt  `json:"started,omitempty"`
	Recent  []Outcome `json:"recent,omitempty"`
	// Pace counts the prompts of the last hour.
	Pace Pace `json:"pace,omitzero"`

	// KillTmux says that a person wants the tmux session gone too; whoever can
	// reach it does so and takes the wish back.
	KillTmux bool `json:"kill_tmux,omitempty"`
	// Forget says that a person wants everything of the item ended, its work
	// directory gone and this record forgotten, and that it is not done yet.
	Forget bool `json:"forget,omitempty"`
	// ForgottenAt is when that was done; zero once the item is armed anew.
	ForgottenAt time.Time `json:"forgotten_at,omitzero"`
	// End is how the last session that was ended for good came to its end.
	End *End `json:"end,omitempty"`

	// PullRequest says that the item is one itself.
	PullRequest bool `json:"pull_request,omitempty"`

	LastEventAt time.Time `json:"last_event_at,omitzero"`
	Title       string    `json:"title,omitempty"`
	URL         string    `json:"url,omitempty"`
}

// Version is the shape this code writes.
const Version = 1

// New returns the record of an item that nothing is known of.
func New(item workitem.Ref) Record { return Record{Version: Version, WorkItem: item, Want: Run} }

// Clone returns a deep copy.
func (r Record) Clone() Record {
	r.ControlIDs = slices.Clone(r.ControlIDs)
	r.Recent = slices.Clone(r.Recent)
	if r.Session != nil {
		s := *r.Session
		r.Session = &s
	}
	if r.Started != nil {
		a := *r.Started
		r.Started = &a
	}
	if r.End != nil {
		e := *r.End
		r.End = &e
	}
	return r
}

// Live reports whether the session is thought to run.
func (r *Record) Live() bool {
	switch r.State {
	case StateActive, StatePaused, StateStarting:
		return r.Session != nil
	default:
		return false
	}
}

// Outcome returns what is recorded for this generation of the event among the
// recent outcomes.
func (r *Record) Outcome(eventID string, generation int) (Outcome, bool) {
	for _, o := range slices.Backward(r.Recent) {
		if o.EventID == eventID && o.Generation == generation {
			return o, true
		}
	}
	return Outcome{}, false
}
