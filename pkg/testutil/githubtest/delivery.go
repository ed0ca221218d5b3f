package githubtest

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Delivery is one webhook delivery.
type Delivery struct {
	// Event is the X-GitHub-Event.
	Event string
	// GUID is the X-GitHub-Delivery.
	GUID string
	// Payload is the body before encoding.
	Payload map[string]any
}

// Body returns the JSON. HTML is not escaped: GitHub does not.
func (d Delivery) Body() []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(d.Payload); err != nil {
		panic(fmt.Sprintf("githubtest: payload cannot be encoded: %v", err))
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// Form returns the body as a form, as GitHub sends it when told to.
func (d Delivery) Form() []byte {
	return []byte(url.Values{"payload": {string(d.Body())}}.Encode())
}

// Redeliver returns the same delivery again, with the same GUID.
func (d Delivery) Redeliver() Delivery { return d }

// Again returns the same event under another GUID, as a second hook sends it.
func (d Delivery) Again() Delivery {
	d.GUID = guid()
	return d
}

// Sign returns the X-Hub-Signature-256 of body.
func Sign(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// NewRequest returns the signed request of d. It panics if target is no URL.
func NewRequest(ctx context.Context, target, secret string, d Delivery) *http.Request {
	return NewRawRequest(ctx, target, secret, d, "application/json", d.Body())
}

// NewFormRequest is NewRequest for a hook whose content type is a form.
func NewFormRequest(ctx context.Context, target, secret string, d Delivery) *http.Request {
	return NewRawRequest(ctx, target, secret, d, "application/x-www-form-urlencoded", d.Form())
}

// NewRawRequest sends body, whatever it is, signed and with d's headers.
func NewRawRequest(ctx context.Context, target, secret string, d Delivery, contentType string, body []byte) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		panic(fmt.Sprintf("githubtest: %v", err))
	}
	req.Header.Set("Accept", "*/*")
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("User-Agent", "GitHub-Hookshot/044aadd")
	req.Header.Set("X-GitHub-Delivery", d.GUID)
	req.Header.Set("X-GitHub-Event", d.Event)
	req.Header.Set("X-GitHub-Hook-ID", "12312312")
	req.Header.Set("X-GitHub-Hook-Installation-Target-ID", "123123")
	req.Header.Set("X-GitHub-Hook-Installation-Target-Type", "repository")
	req.Header.Set("X-Hub-Signature-256", Sign(secret, body))
	return req
}

func guid() string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err)
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Option changes a delivery that is being built.
type Option func(*Delivery)

// Set replaces the value at a path like "issue.user". A missing parent is made.
func Set(path string, value any) Option {
	return func(d *Delivery) {
		m, last := walk(d.Payload, path)
		m[last] = value
	}
}

// Null sets the value at a path to null.
func Null(path string) Option { return Set(path, nil) }

// Delete removes the member at a path.
func Delete(path string) Option {
	return func(d *Delivery) {
		m, last := walk(d.Payload, path)
		delete(m, last)
	}
}

func walk(m map[string]any, path string) (parent map[string]any, last string) {
	steps := strings.Split(path, ".")
	for _, s := range steps[:len(steps)-1] {
		next, ok := m[s].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[s] = next
		}
		m = next
	}
	return m, steps[len(steps)-1]
}

// entity is the member that the event is about: the one whose text, author and
// time count.
func (d Delivery) entity() string {
	switch d.Event {
	case "issues":
		return "issue"
	case "issue_comment", "pull_request_review_comment":
		return "comment"
	case "pull_request_review":
		return "review"
	case "status", "ping":
		return ""
	default:
		return d.Event
	}
}

// item is the member that holds the issue or pull request, if there is one.
func (d Delivery) item() string {
	for _, name := range []string{"issue", "pull_request"} {
		if _, ok := d.Payload[name]; ok {
			return name
		}
	}
	return ""
}

// Sender says who acted, and who wrote the comment or review.
func Sender(login string) Option {
	return func(d *Delivery) {
		d.Payload["sender"] = Account(login)
		switch e := d.entity(); e {
		case "comment", "review":
			Set(e+".user", Account(login))(d)
		}
	}
}

// Author says who opened the issue or pull request.
func Author(login string) Option {
	return func(d *Delivery) { Set(d.item()+".user", Account(login))(d) }
}

// Text sets the body of what the event is about: the issue, pull request,
// comment or review.
func Text(body string) Option {
	return func(d *Delivery) { Set(d.entity()+".body", body)(d) }
}

// ItemText sets the body of the issue or pull request.
func ItemText(body string) Option {
	return func(d *Delivery) { Set(d.item()+".body", body)(d) }
}

// Title sets the title of the issue or pull request.
func Title(title string) Option {
	return func(d *Delivery) { Set(d.item()+".title", title)(d) }
}

// ID sets the id of the comment, review or check.
func ID(id int64) Option {
	return func(d *Delivery) { Set(d.entity()+".id", id)(d) }
}

// Labels sets the labels that the issue or pull request carries.
func Labels(names ...string) Option {
	return func(d *Delivery) {
		labels := make([]any, 0, len(names))
		for _, n := range names {
			labels = append(labels, labelObject(n))
		}
		Set(d.item()+".labels", labels)(d)
	}
}

// Label sets the label that a labeled or unlabeled event is about.
func Label(name string) Option { return Set("label", labelObject(name)) }

// At sets the time of what the event is about.
func At(t time.Time) Option {
	return func(d *Delivery) {
		e := d.entity()
		s := t.UTC().Format(time.RFC3339)
		switch e {
		case "review":
			Set(e+".submitted_at", s)(d)
		case "comment":
			Set(e+".created_at", s)(d)
		case "":
		default:
			if action, _ := d.Payload["action"].(string); action == "opened" {
				Set(e+".created_at", s)(d)
			}
			if m, ok := d.Payload[e].(map[string]any); ok && m["closed_at"] != nil {
				m["closed_at"] = s
			}
		}
		Set(strings.TrimPrefix(e+".updated_at", "."), s)(d)
	}
}

// Repo moves the delivery to another repository.
func Repo(fullName string, id int64) Option {
	return func(d *Delivery) { d.Payload["repository"] = Repository(fullName, id) }
}

// GUID sets the delivery's id.
func GUID(id string) Option { return func(d *Delivery) { d.GUID = id } }
