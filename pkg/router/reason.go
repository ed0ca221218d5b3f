package router

// Reason is why an event was not published.
type Reason string

// The reasons, as routing.dropped carries them.
const (
	// ActionIgnored says that nothing follows from this action, here or ever.
	ActionIgnored Reason = "action-ignored"
	// AgentLogin says that an account of routing.agentLogins did it: an agent
	// is not prompted by its own doings.
	AgentLogin Reason = "agent-login"
	// Deleted says that a comment was deleted: what it said stays said.
	Deleted Reason = "deleted"
	// Edited says that a text was edited: an edit is no new prompt, and an
	// editor is not the author.
	Edited Reason = "edited"
	// ForkHead says that CI judged a fork's commit, which anybody can push.
	ForkHead Reason = "fork-head"
	// InvalidItem says that the forge's names make no work item.
	InvalidItem Reason = "invalid-item"
	// LinkedPRClosed says that a pull request closed that delivers an item:
	// the item's session goes on.
	LinkedPRClosed Reason = "linked-pr-closed"
	// NotAFailure says that CI has not failed.
	NotAFailure Reason = "not-a-failure"
	// NotArmed says that the item neither carries the label nor is known.
	NotArmed Reason = "not-armed"
	// OtherLabel says that the label put on the item is not the routing label.
	OtherLabel Reason = "other-label"
	// Ping says that GitHub only tried the hook.
	Ping Reason = "ping"
	// SelfAuthored says that the text carries Marker: Loopfleet or an agent of
	// it wrote it.
	SelfAuthored Reason = "self-authored"
	// StaleHead says that CI judged a commit that is no longer the head.
	StaleHead Reason = "stale-head"
	// UnauthorizedActor says that who did it is not on the list, or unknown.
	UnauthorizedActor Reason = "unauthorized-actor"
	// UnknownEvent says that no rule is about events of this name.
	UnknownEvent Reason = "unknown-event"
	// UnresolvedHead says that no work item is recorded for CI's commit.
	UnresolvedHead Reason = "unresolved-head"
)

// Reasons lists every reason, sorted.
var Reasons = []Reason{
	ActionIgnored, AgentLogin, Deleted, Edited, ForkHead, InvalidItem, LinkedPRClosed, NotAFailure, NotArmed,
	OtherLabel, Ping, SelfAuthored, StaleHead, UnauthorizedActor, UnknownEvent, UnresolvedHead,
}
