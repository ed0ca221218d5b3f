package ingress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"

	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/fault"
	"loopfleet/pkg/logkey"
	"loopfleet/pkg/router"
	"loopfleet/pkg/webhook"
)

const (
	deliveryHeader = "X-GitHub-Delivery"
	eventHeader    = "X-GitHub-Event"
	// maxDelivery is more than any delivery's id has; GitHub's have 36 bytes.
	maxDelivery = 128
)

// Reasons of routing.dropped that are not the router's.
const (
	// ReasonDuplicate: the event is stored, or has its outcome, already.
	ReasonDuplicate router.Reason = "duplicate"
	// ReasonFiltered: webhooks.ghWebhook.events does not list the event.
	ReasonFiltered router.Reason = "event-filter"
)

func (s *Server) webhook(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	a, refused := s.take(ctx, w, r)
	if refused != nil {
		s.refuse(w, r, refused)
		return
	}
	fault.Pass(ctx, fault.PublishAnswer)
	s.counters.accepted.Add(1)
	writeJSON(w, http.StatusAccepted, a)
}

// take is the life of a delivery. It returns an answer for 202, or why not.
func (s *Server) take(ctx context.Context, w http.ResponseWriter, r *http.Request) (Answer, *refusal) {
	if r.Method != http.MethodPost {
		return Answer{}, &refusal{status: http.StatusMethodNotAllowed, reason: wrongMethod, detail: errMethod}
	}
	limit, err := bodyLimit(r.Header)
	if err != nil {
		return Answer{}, unreadable(err)
	}
	if r.ContentLength > limit {
		return Answer{}, &refusal{status: http.StatusRequestEntityTooLarge, reason: tooLarge, detail: sizeError(r.ContentLength, limit)}
	}
	// A request that cannot pass need not be read.
	if err := webhook.CheckSignatureHeader(r.Header); err != nil && !s.unsignedAllowed(err) {
		return Answer{}, unsigned(err)
	}
	leave, err := s.gate.enter(ctx, weight(r.ContentLength, limit), s.answerIn)
	if err != nil {
		return Answer{}, &refusal{status: http.StatusServiceUnavailable, reason: busy, detail: errBusy, cause: err}
	}
	defer leave()
	raw, refused := readBody(w, r, limit)
	if refused != nil {
		return Answer{}, refused
	}
	if err := s.verify(r.Header, raw); err != nil {
		return Answer{}, unsigned(err)
	}
	id, err := deliveryID(r.Header)
	if err != nil {
		return Answer{}, &refusal{status: http.StatusBadRequest, reason: headerDelivery, detail: err}
	}
	name := r.Header.Get(eventHeader)
	if name == "" {
		return Answer{}, &refusal{status: http.StatusBadRequest, reason: headerEvent, detail: errEventHeader}
	}
	s.deps.Events.Post(eventlog.Entry{Type: event.WebhookReceived, Delivery: id, Fields: map[string]any{
		logkey.EventName: name, "bytes": len(raw),
	}})
	body, err := webhook.Body(r.Header.Get("Content-Type"), raw)
	if err != nil {
		return Answer{}, unreadable(err)
	}
	facts, err := webhook.Decode(name, body)
	// From here on others are waited for. Whoever hangs up ends ctx.
	ctx, cancel := context.WithTimeout(ctx, s.answerIn)
	defer cancel()
	switch {
	case errors.Is(err, webhook.ErrUnknownEvent):
		return s.ignore(ctx, id, name, router.UnknownEvent)
	case err != nil:
		return Answer{}, unreadable(err)
	case name == webhook.Ping:
		return s.ignore(ctx, id, name, router.Ping)
	case !s.soft.Load().wanted[name]:
		return s.ignore(ctx, id, name, ReasonFiltered)
	}
	facts.DeliveryID = id
	return s.route(ctx, facts)
}

var (
	errMethod      = errors.New("webhooks are sent with POST")
	errEventHeader = errors.New("the " + eventHeader + " header is missing")
)

// bodyLimit is the most bytes of a body of this media type; an error wraps
// webhook.ErrUnsupportedMedia.
func bodyLimit(h http.Header) (int64, error) {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return 0, webhook.ErrUnsupportedMedia
	}
	switch kind {
	case "application/json":
		return webhook.MaxJSON, nil
	case "application/x-www-form-urlencoded":
		return webhook.MaxForm, nil
	default:
		return 0, webhook.ErrUnsupportedMedia
	}
}

func sizeError(n, limit int64) error {
	return fmt.Errorf("%w: %d bytes, at most %d", webhook.ErrTooLarge, n, limit)
}

// weight is what a body counts at the gate: all it may have when it does not
// say.
func weight(length, limit int64) int64 {
	if length < 0 {
		return limit
	}
	return length
}

func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, *refusal) {
	body := http.MaxBytesReader(w, r.Body, limit)
	var raw []byte
	var err error
	if r.ContentLength >= 0 {
		raw = make([]byte, r.ContentLength) // counted at the gate
		_, err = io.ReadFull(body, raw)
	} else {
		raw, err = io.ReadAll(body)
	}
	var big *http.MaxBytesError
	switch {
	case err == nil:
		return raw, nil
	case errors.As(err, &big):
		return nil, &refusal{
			status: http.StatusRequestEntityTooLarge, reason: tooLarge,
			detail: fmt.Errorf("%w: more than %d bytes", webhook.ErrTooLarge, limit),
		}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &refusal{status: http.StatusRequestTimeout, reason: bodySlow, detail: errors.New("the body did not come in time")}
	default:
		return nil, &refusal{status: http.StatusBadRequest, reason: bodyCut, detail: errors.New("the body ended early"), cause: err}
	}
}

// unsignedAllowed reports whether this verdict on a signature is let pass.
func (s *Server) unsignedAllowed(verdict error) bool {
	return s.hook.Insecure && (len(s.secret) == 0 || errors.Is(verdict, webhook.ErrSignatureMissing))
}

func (s *Server) verify(h http.Header, raw []byte) error {
	if len(s.secret) == 0 {
		return nil // New allowed it
	}
	if err := webhook.Verify(s.secret, h, raw); err != nil && !s.unsignedAllowed(err) {
		return err
	}
	return nil
}

// deliveryID reads the delivery's GUID. It is not signed, so it is checked.
func deliveryID(h http.Header) (string, error) {
	values := h.Values(deliveryHeader)
	if len(values) != 1 || values[0] == "" {
		return "", errors.New("the " + deliveryHeader + " header must be there once")
	}
	id := values[0]
	if len(id) > maxDelivery || event.HeaderSafe(id) != id {
		return "", fmt.Errorf("the %s header must be printable ASCII without spaces, at most %d bytes", deliveryHeader, maxDelivery)
	}
	return id, nil
}

// ignore answers a delivery whose name alone says that nothing follows.
func (s *Server) ignore(ctx context.Context, id, name string, why router.Reason) (Answer, *refusal) {
	e := eventlog.Entry{Delivery: id, Fields: map[string]any{logkey.EventName: name}}
	if err := s.drop(ctx, e, why); err != nil {
		return Answer{}, away(err)
	}
	return Answer{DeliveryID: id, Outcome: Ignored, Reason: string(why)}, nil
}

// drop logs why there is no event; it returns once that is durable, as the line
// is all that will be known of it.
func (s *Server) drop(ctx context.Context, e eventlog.Entry, why router.Reason) error {
	e.Type = event.RoutingDropped
	e.Fields[logkey.Reason] = string(why)
	if err := s.deps.Events.Emit(ctx, e); err != nil {
		return err
	}
	s.counters.drop(why)
	return nil
}
