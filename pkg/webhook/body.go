package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/url"
)

// Limits of a request's body in bytes. GitHub sends nothing larger than
// MaxJSON; percent-encoding can triple it.
const (
	MaxJSON = 25 << 20
	MaxForm = 80 << 20
)

var (
	// ErrMalformed is wrapped by every error that says the body is not a
	// delivery: answer 400.
	ErrMalformed = errors.New("malformed delivery")
	// ErrTooLarge says that the JSON is over MaxJSON; answer 413.
	ErrTooLarge = errors.New("the delivery is too large")
	// ErrUnsupportedMedia says that it is neither JSON nor a form; answer 415.
	ErrUnsupportedMedia = errors.New("the content type must be application/json or application/x-www-form-urlencoded")
)

// Body returns the JSON of a delivery: the raw body itself, or the form field
// "payload" of one that was sent as a form. Verify the raw body first: that is
// what was signed.
func Body(contentType string, raw []byte) ([]byte, error) {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, ErrUnsupportedMedia
	}
	switch kind {
	case "application/json":
		if len(raw) > MaxJSON {
			return nil, fmt.Errorf("%w: %d bytes of JSON, at most %d", ErrTooLarge, len(raw), MaxJSON)
		}
		return raw, nil
	case "application/x-www-form-urlencoded":
		return formPayload(raw)
	default:
		return nil, ErrUnsupportedMedia
	}
}

// formPayload finds the one payload field. It reads the form itself: the
// standard parser would copy every field of a body that may be 80 MiB.
func formPayload(raw []byte) ([]byte, error) {
	var payload []byte
	found := false
	for field := range bytes.SplitSeq(raw, []byte("&")) {
		value, ok := bytes.CutPrefix(field, []byte("payload="))
		if !ok {
			continue
		}
		if found {
			return nil, fmt.Errorf("%w: the form has two payload fields", ErrMalformed)
		}
		payload, found = value, true
	}
	if !found {
		return nil, fmt.Errorf("%w: the form has no payload field", ErrMalformed)
	}
	text, err := url.QueryUnescape(string(payload))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: payload field: %w", ErrMalformed, err)
	case len(text) > MaxJSON:
		return nil, fmt.Errorf("%w: %d bytes of JSON, at most %d", ErrTooLarge, len(text), MaxJSON)
	}
	return []byte(text), nil
}
