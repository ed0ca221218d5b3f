package ingress

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/webhook"
	"loopfleet/pkg/workitem"
)

// Outcome is what became of a delivery.
type Outcome string

// Outcomes. Rejected never comes with 202, the others never without.
const (
	// Routed: at least one event was stored.
	Routed Outcome = "routed"
	// Duplicate: everything it brought was stored, or has its outcome, already.
	Duplicate Outcome = "duplicate"
	// Dropped: it is about nothing that concerns an agent, for the reason given.
	Dropped Outcome = "dropped"
	// Ignored: its event name is not one that is listened to.
	Ignored  Outcome = "ignored"
	Rejected Outcome = "rejected"
)

// Answer is the body of every answer to a webhook, for people with curl.
type Answer struct {
	DeliveryID string  `json:"delivery_id,omitempty"`
	Outcome    Outcome `json:"outcome"`
	Reason     string  `json:"reason,omitempty"`
	// Detail says what to do about a rejection.
	Detail string        `json:"detail,omitempty"`
	Events []EventAnswer `json:"events,omitempty"`
}

// EventAnswer is one event of a delivery.
type EventAnswer struct {
	EventID   string       `json:"event_id"`
	WorkItem  workitem.Ref `json:"work_item"`
	Duplicate bool         `json:"duplicate"`
}

// rejection is why a request was refused, as webhook.rejected carries it.
type rejection string

const (
	bodyCut         rejection = "body-cut"
	bodySlow        rejection = "body-slow"
	busy            rejection = "busy"
	headerEvent     rejection = "event-header"
	headerDelivery  rejection = "delivery-header"
	malformed       rejection = "malformed"
	panicked        rejection = "panic"
	sha1Only        rejection = "signature-sha1-only"
	signatureBad    rejection = "signature-malformed"
	signatureGone   rejection = "signature-missing"
	signatureWrong  rejection = "signature-wrong"
	tooLarge        rejection = "too-large"
	unavailable     rejection = "unavailable"
	unsupportedType rejection = "media-type"
	wrongMethod     rejection = "method"
)

// refusal is an answer that is not 202.
type refusal struct {
	status int
	reason rejection
	detail error
	// cause is for the log only.
	cause error
}

// retryAfter tells whoever retries when to, in seconds.
const retryAfter = 5

// unsigned turns the verdict on a signature into an answer.
func unsigned(err error) *refusal {
	reason := signatureWrong
	switch {
	case errors.Is(err, webhook.ErrSignatureMissing):
		reason = signatureGone
	case errors.Is(err, webhook.ErrSignatureSHA1):
		reason = sha1Only
	case errors.Is(err, webhook.ErrSignatureMalformed):
		reason = signatureBad
	}
	return &refusal{status: http.StatusUnauthorized, reason: reason, detail: err}
}

// unreadable turns a body that webhook could not read into an answer.
func unreadable(err error) *refusal {
	switch {
	case errors.Is(err, webhook.ErrTooLarge):
		return &refusal{status: http.StatusRequestEntityTooLarge, reason: tooLarge, detail: err}
	case errors.Is(err, webhook.ErrUnsupportedMedia):
		return &refusal{status: http.StatusUnsupportedMediaType, reason: unsupportedType, detail: err}
	default:
		return &refusal{status: http.StatusBadRequest, reason: malformed, detail: err}
	}
}

var (
	errAway = errors.New("the event could not be stored; send the delivery again later")
	errBusy = errors.New("too many large deliveries at once; send it again later")
)

// away says that a store failed: nothing is promised, and doing it again is
// harmless.
func away(cause error) *refusal {
	return &refusal{status: http.StatusServiceUnavailable, reason: unavailable, detail: errAway, cause: cause}
}

func (s *Server) refuse(w http.ResponseWriter, r *http.Request, f *refusal) {
	s.counters.reject(f.reason)
	id, err := deliveryID(r.Header)
	if err != nil {
		id = "" // not worth repeating
	}
	s.logRefusal(r, f, id)
	if f.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	if f.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", http.MethodPost)
	}
	writeJSON(w, f.status, Answer{DeliveryID: id, Outcome: Rejected, Reason: string(f.reason), Detail: f.detail.Error()})
}

func (s *Server) logRefusal(r *http.Request, f *refusal, id string) {
	fields := map[string]any{logkey.Reason: string(f.reason), "status": f.status}
	level := event.Warn
	switch {
	case f.status >= http.StatusInternalServerError:
		level = event.Error // GitHub sends it once
		fields[logkey.Hint] = "GitHub does not send it again by itself: redeliver it in the hook's settings"
	case f.status == http.StatusMethodNotAllowed, f.status == http.StatusUnsupportedMediaType:
		level = event.Info
	}
	// What was stopped by us is never hidden by what strangers send.
	if level != event.Error {
		ok, hidden := s.refusals.allow(time.Now())
		if !ok {
			return
		}
		if hidden > 0 {
			fields["hidden"] = hidden
		}
	}
	for _, err := range []error{f.cause, f.detail} {
		if err != nil {
			fields[logkey.Error] = err
			break
		}
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		fields["remote"] = host
	}
	if name := event.HeaderSafe(r.Header.Get(eventHeader)); name != "" {
		fields[logkey.EventName] = name
	}
	s.deps.Events.Post(eventlog.Entry{Type: event.WebhookRejected, Level: level, Delivery: id, Fields: fields})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		b = []byte(`{"outcome":"rejected","reason":"panic"}`) // our own types always encode
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(b)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // whoever hung up needs no answer
}
