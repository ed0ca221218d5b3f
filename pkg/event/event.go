package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"loopfleet/pkg/workitem"
)

// Kind is what happened, in the words that decide what it does.
type Kind string

// Kinds of events. Label, Presence and Reopen arm an item; the control kinds
// travel on the control subject; the rest are prompts.
const (
	Label         Kind = "label"
	Presence      Kind = "presence"
	Reopen        Kind = "reopen"
	Comment       Kind = "comment"
	Review        Kind = "review"
	ReviewComment Kind = "review-comment"
	CI            Kind = "ci"

	Close   Kind = "close"
	Pause   Kind = "pause"
	Resume  Kind = "resume"
	Stop    Kind = "stop"
	Retry   Kind = "retry"
	Cleanup Kind = "cleanup"
)

// Arming reports whether the event can start a session by itself.
func (k Kind) Arming() bool { return k == Label || k == Presence || k == Reopen }

// Control reports whether the event must not wait behind others of its item.
func (k Kind) Control() bool {
	switch k {
	case Close, Pause, Resume, Stop, Retry, Cleanup:
		return true
	default:
		return false
	}
}

// Source is how an event reached Loopfleet.
type Source string

// Sources.
const (
	Webhook  Source = "webhook"
	Poll     Source = "poll"
	Operator Source = "operator"
	// Breaker is Loopfleet itself, pausing an item that gets too many prompts.
	Breaker Source = "breaker"
)

// Marker is the hidden line in everything that Loopfleet and its agents post. A
// text that has it on a line of its own is not an event.
const Marker = "<!-- loopfleet -->"

// Close reasons, as session.autoclosed carries them.
const (
	IssueClosed = "issue-closed"
	PRMerged    = "pr-merged"
	PRClosed    = "pr-closed"
	Stopped     = "stopped"
)

// Actor is who did it on the forge.
type Actor struct {
	// Login is the account's name as the forge spells it; empty for a deleted
	// account and for CI.
	Login string `json:"login,omitempty"`
	ID    int64  `json:"id,omitempty"`
	// Bot says that the forge calls the account a bot or an app.
	Bot bool `json:"bot,omitempty"`
}

// Event is one normalised thing that happened to a work item.
type Event struct {
	// ID is the semantic identity, [a-z0-9-]{1,40}; see NewID.
	ID string `json:"id"`
	// Generation counts how often this id was given up before.
	Generation int  `json:"generation,omitempty"`
	Kind       Kind `json:"kind"`
	// Name and Action are the forge's own words: issue_comment, created.
	Name   string `json:"name,omitempty"`
	Action string `json:"action,omitempty"`
	Source Source `json:"source"`
	// WorkItem is the item the event was routed to.
	WorkItem workitem.Ref `json:"work_item"`
	// Via is the pull request it happened on, when that is not the work item.
	Via workitem.Ref `json:"via,omitzero"`
	// RepoID is the forge's number of the repository it happened in.
	RepoID int64 `json:"repo_id,omitempty"`
	Actor  Actor `json:"actor,omitzero"`
	// At is the forge's time of the transition, to the second.
	At time.Time `json:"at"`
	// DeliveryID is the transport's id (X-GitHub-Delivery).
	DeliveryID string `json:"delivery_id,omitempty"`
	// Labeled says that the item carried the routing label at the time.
	Labeled bool `json:"labeled,omitempty"`

	Title string `json:"title,omitempty"`
	Body  string `json:"body,omitempty"`
	URL   string `json:"url,omitempty"`
	// Truncated says that a text was cut; URL leads to the whole.
	Truncated bool `json:"truncated,omitempty"`

	// Reason is why a Close happened: one of the close reasons.
	Reason string `json:"reason,omitempty"`
	// KillTmux says that a Stop is to end the tmux session too, screen and all.
	KillTmux bool `json:"kill_tmux,omitempty"`
	// ReviewState is approved, changes_requested or commented.
	ReviewState string `json:"review_state,omitempty"`
	// Path and Line place a review comment.
	Path string `json:"path,omitempty"`
	Line int    `json:"line,omitempty"`
	// SHA is the head that CI judged; Checks names what failed.
	SHA    string   `json:"sha,omitempty"`
	Checks []string `json:"checks,omitempty"`
}

// Limits of the texts of an event, in bytes.
const (
	MaxTitle = 1 << 10
	MaxBody  = 64 << 10
	maxShort = 512
	maxURL   = 2 << 10
	// maxChecks bounds how many failed checks one event lists.
	maxChecks = 50
)

// Bound cuts every text to its limit at a rune's edge and sets Truncated.
func (e *Event) Bound() {
	cut := func(s *string, limit int) {
		if len(*s) <= limit {
			return
		}
		i := limit
		for i > 0 && !utf8.RuneStart((*s)[i]) {
			i--
		}
		*s = (*s)[:i]
		e.Truncated = true
	}
	cut(&e.Title, MaxTitle)
	cut(&e.Body, MaxBody)
	cut(&e.URL, maxURL)
	for _, s := range []*string{&e.Name, &e.Action, &e.Actor.Login, &e.DeliveryID, &e.Reason, &e.ReviewState, &e.Path, &e.SHA} {
		cut(s, maxShort)
	}
	if len(e.Checks) > maxChecks {
		e.Checks, e.Truncated = e.Checks[:maxChecks], true
	}
	for i := range e.Checks {
		cut(&e.Checks[i], maxShort)
	}
}

// MessageID is the broker's duplicate key: <event id>.<item>.g<n>.
func (e *Event) MessageID() string {
	return e.ID + "." + e.WorkItem.Key() + ".g" + strconv.Itoa(e.Generation)
}

// Subject is where the event is published.
func (e *Event) Subject() string {
	if e.Kind.Control() {
		return e.WorkItem.ControlSubject()
	}
	return e.WorkItem.EventsSubject()
}

// Header names that every message of LOOP_EVENTS carries, so that a
// headers-only reader can tell what waits.
const (
	HeaderID         = "Loop-Event"
	HeaderKind       = "Loop-Kind"
	HeaderGeneration = "Loop-Generation"
	HeaderAt         = "Loop-At"
	HeaderDelivery   = "Loop-Delivery"
)

// Headers returns the event's message headers (without the duplicate key).
func (e *Event) Headers() map[string]string {
	h := map[string]string{
		HeaderID:         e.ID,
		HeaderKind:       string(e.Kind),
		HeaderGeneration: strconv.Itoa(e.Generation),
		HeaderAt:         e.At.UTC().Format(time.RFC3339Nano),
	}
	if e.DeliveryID != "" {
		h[HeaderDelivery] = HeaderSafe(e.DeliveryID)
	}
	return h
}

// HeaderSafe keeps the printable ASCII of s, up to 128 bytes: header values come
// from strangers too.
func HeaderSafe(s string) string {
	var b []byte
	for i := 0; i < len(s) && len(b) < 128; i++ {
		if s[i] > ' ' && s[i] < 0x7f {
			b = append(b, s[i])
		}
	}
	return string(b)
}

// Encode returns the event as JSON.
func (e *Event) Encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, fmt.Errorf("encode event %s: %w", e.ID, err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// Decode reads what Encode wrote. An event without an id, kind or work item is
// an error.
func Decode(b []byte) (Event, error) {
	var e Event
	if err := json.Unmarshal(b, &e); err != nil {
		return Event{}, fmt.Errorf("decode event: %w", err)
	}
	if e.ID == "" || e.Kind == "" || e.WorkItem.Zero() {
		return Event{}, fmt.Errorf("decode event: id %q, kind %q, work item %q: none may be empty", e.ID, e.Kind, e.WorkItem)
	}
	return e, nil
}
