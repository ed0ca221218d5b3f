package event

// LogType is the type of a log event, as in the subject loop.log.<type>.
type LogType string

// Level says who should care: info is the normal course, warn means that
// somebody may have to look, error that work is lost or stuck.
type Level string

// Levels.
const (
	Info  Level = "info"
	Warn  Level = "warn"
	Error Level = "error"
)

// The log types. Catalogue describes each.
const (
	BreakerTripped     LogType = "breaker.tripped"
	ConfigRejected     LogType = "config.rejected"
	ConfigReloaded     LogType = "config.reloaded"
	ControlApplied     LogType = "control.applied"
	DeadLetterDropped  LogType = "dead_letter.dropped"
	DeadLetterReplayed LogType = "dead_letter.replayed"
	DispatchDead       LogType = "dispatch.dead"
	DispatchDropped    LogType = "dispatch.dropped"
	DispatchFailed     LogType = "dispatch.failed"
	DispatchStarted    LogType = "dispatch.started"
	DispatchSucceeded  LogType = "dispatch.succeeded"
	DispatchWaiting    LogType = "dispatch.waiting"
	DispatchWithheld   LogType = "dispatch.withheld"
	ItemForgotten      LogType = "item.forgotten"
	LeaseLost          LogType = "lease.lost"
	LeaseTaken         LogType = "lease.taken"
	LinkRecorded       LogType = "link.recorded"
	NoticeFailed       LogType = "notice.failed"
	NoticePosted       LogType = "notice.posted"
	OwnerChanged       LogType = "owner.changed"
	RoutingDropped     LogType = "routing.dropped"
	RoutingRouted      LogType = "routing.routed"
	SessionAdopted     LogType = "session.adopted"
	SessionAutoclosed  LogType = "session.autoclosed"
	SessionDied        LogType = "session.died"
	SessionEnded       LogType = "session.harness_terminated"
	SessionRespawned   LogType = "session.respawned"
	SessionRetained    LogType = "session.retained"
	SessionSpawned     LogType = "session.spawned"
	WebhookReceived    LogType = "webhook.received"
	WebhookRejected    LogType = "webhook.rejected"
	WorkerStarted      LogType = "worker.started"
	WorkerStopped      LogType = "worker.stopped"
	WorkspaceKept      LogType = "workspace.kept"
	WorkspacePrepared  LogType = "workspace.prepared"
	WorkspaceRemoved   LogType = "workspace.removed"
)

// Catalogue lists every log type with what it means. A test says that each is
// emitted somewhere and that nothing else is.
var Catalogue = map[LogType]string{
	BreakerTripped:     "an item got too many prompts within an hour and is paused",
	ConfigRejected:     "an edited configuration cannot be used; the one before stays in force",
	ConfigReloaded:     "an edited configuration is in force, except for what needs a restart",
	ControlApplied:     "a close, pause, resume, stop, retry or cleanup was read and, where its effect says so, changed what the item wants",
	DeadLetterDropped:  "a person threw a dead letter away",
	DeadLetterReplayed: "a person sent an event that was given up once more, with a fresh budget",
	DispatchDead:       "an event was given up; it is kept as a dead letter",
	DispatchDropped:    "an event ended without a prompt, for the reason given",
	DispatchFailed:     "a try to deliver an event failed and is charged to its budget",
	DispatchStarted:    "a try to deliver an event began",
	DispatchSucceeded:  "an event reached the agent",
	DispatchWaiting:    "an item waits for a worker with room or with its harness",
	DispatchWithheld:   "an event waits, uncharged, for the reason given",
	ItemForgotten:      "a person had everything of an item ended, its work directory removed and its record forgotten",
	LeaseLost:          "the worker could not renew its lease and let go of everything",
	LeaseTaken:         "the worker holds its lease",
	LinkRecorded:       "a pull request or commit now belongs to a work item",
	NoticeFailed:       "a ticket cannot be told what happened, for the reason given",
	NoticePosted:       "a ticket was told that an event was given up or its item paused",
	OwnerChanged:       "a worker became or ceased to be the owner of an item",
	RoutingDropped:     "an event was not published, for the reason given",
	RoutingRouted:      "an event was published to its work item",
	SessionAdopted:     "a running session was taken over without a respawn",
	SessionAutoclosed:  "the forge closed the item and its session ends",
	SessionDied:        "an agent's process was found ended",
	SessionEnded:       "an agent's process tree was ended by us",
	SessionRespawned:   "a dead session was started again with the event that found it dead",
	SessionRetained:    "the screen of an ended session is kept readable",
	SessionSpawned:     "a session was started",
	WebhookReceived:    "a request passed its signature check",
	WebhookRejected:    "a request was refused, for the reason given",
	WorkerStarted:      "a worker began to take work",
	WorkerStopped:      "a worker stopped taking work",
	WorkspaceKept:      "the checkout of a closed item stays, for the reason given",
	WorkspacePrepared:  "an item's checkout is there for its agent",
	WorkspaceRemoved:   "the checkout of a closed item is gone",
}
