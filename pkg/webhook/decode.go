package webhook

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"loopfleet/pkg/event"
	"loopfleet/pkg/workitem"
)

// Ping is the event GitHub sends when a hook is made: well-formed, about
// nothing. Decode recognises it.
const Ping = "ping"

// ErrUnknownEvent says that nothing is known about this event name. It is not the
// sender's fault: acknowledge and count it.
var ErrUnknownEvent = errors.New("unknown event")

// defaultHost is where a delivery is from that names no web page.
const defaultHost = "github.com"

// decoders chooses the shape by the event's name: the same member has
// different types in different events.
var decoders = map[string]func([]byte) (event.Facts, error){
	"issues":                      decode[issuesEvent],
	"issue_comment":               decode[issueCommentEvent],
	"pull_request":                decode[pullRequestEvent],
	"pull_request_review":         decode[reviewEvent],
	"pull_request_review_comment": decode[reviewCommentEvent],
	"workflow_run":                decode[workflowRunEvent],
	"check_run":                   decode[checkRunEvent],
	"check_suite":                 decode[checkSuiteEvent],
	"status":                      decode[statusEvent],
}

// Decode reads the JSON of a delivery whose X-GitHub-Event is name. The error
// wraps ErrMalformed or ErrUnknownEvent; the body of an unknown event is not
// looked at. Facts of a ping have nothing but their name.
func Decode(name string, body []byte) (event.Facts, error) {
	if name == Ping {
		var p struct {
			Zen string `json:"zen"`
		}
		if err := unmarshal(body, &p); err != nil {
			return event.Facts{}, fmt.Errorf("%w: ping: %w", ErrMalformed, err)
		}
		return event.Facts{Name: Ping, Source: event.Webhook}, nil
	}
	dec, ok := decoders[name]
	if !ok {
		return event.Facts{}, fmt.Errorf("%w: %.40q", ErrUnknownEvent, name)
	}
	f, err := dec(body)
	if err != nil {
		return event.Facts{}, fmt.Errorf("%w: %s: %w", ErrMalformed, name, err)
	}
	f.Name, f.Source = name, event.Webhook
	return f, nil
}

// payload is one event's shape.
type payload interface {
	// facts fills in what is the event's own.
	facts(f *event.Facts)
	// common is what all shapes share.
	common() *envelope
	// page is the web page of what the event is about.
	page() string
}

func decode[T any, P interface {
	*T
	payload
}](body []byte) (event.Facts, error) {
	p := P(new(T))
	if err := unmarshal(body, p); err != nil {
		return event.Facts{}, err
	}
	env := p.common()
	owner, name, ok := env.Repository.split()
	if !ok || env.Repository.ID <= 0 {
		return event.Facts{}, fmt.Errorf("no repository with an id and an owner/name (id %d, full_name %.150q)", env.Repository.ID, env.Repository.FullName)
	}
	f := event.Facts{
		Action:   env.Action,
		Provider: workitem.GitHub,
		Host:     host(env.Repository.HTMLURL, p.page()),
		Repo:     event.Repository{ID: env.Repository.ID, Owner: owner, Name: name},
		Sender:   env.Sender.actor(),
	}
	p.facts(&f)
	switch {
	case f.Item != nil && f.Item.Number <= 0:
		return event.Facts{}, errors.New("no number of an issue or pull request")
	case f.Post != nil && f.Post.ID <= 0:
		return event.Facts{}, errors.New("no id of the comment or review")
	case f.Check != nil && f.Check.SHA == "":
		return event.Facts{}, errors.New("no commit")
	}
	return f, nil
}

// unmarshal keeps the decoder's own strictness: names are case-exact, must be
// unique and valid UTF-8, nesting is bounded, nothing may follow the value.
func unmarshal(body []byte, into any) error {
	err := json.Unmarshal(body, into)
	if err == nil {
		return nil
	}
	// The decoder's message may quote the payload at length.
	const most = 300
	if msg := err.Error(); len(msg) > most {
		return fmt.Errorf("%.*q", most, msg)
	}
	return err
}

func host(pages ...string) string {
	for _, page := range pages {
		if h, ok := workitem.HostOf(page); ok {
			return h
		}
	}
	return defaultHost
}
