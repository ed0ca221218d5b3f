package chaos_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"loopfleet/pkg/record"
	"loopfleet/pkg/testutil/fleettest"
	"loopfleet/pkg/testutil/githubtest"
	"loopfleet/pkg/workitem"
)

// sent is one event that an ingress has accepted.
type sent struct {
	kind stepKind
	id   string
	at   time.Time
}

// story is what was sent about one item, in the order of acceptance.
type story struct {
	ref    workitem.Ref
	number int64
	script []step
	events []sent
	// outcomes are those that are known, by event id.
	outcomes map[string]record.Outcome
}

// open reports whether the item is open after all that was sent.
func (s *story) open() bool {
	open := true
	for _, e := range s.events {
		open = e.kind != stepClose && (open || e.kind != stepComment)
	}
	return open
}

// load sends the stories of all items at once, each in its own order.
type load struct {
	url func() string

	deliveries, duplicates, tries atomic.Int64
}

func (l *load) run(ctx context.Context, stories []*story) error {
	var wg sync.WaitGroup
	errs := make([]error, len(stories))
	for i, s := range stories {
		wg.Go(func() { errs[i] = l.tell(ctx, s) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("load of %s: %w", stories[i].ref, err)
		}
	}
	return nil
}

// tell sends one item's events, the next only once the one before is accepted.
func (l *load) tell(ctx context.Context, s *story) error {
	for i, st := range s.script {
		if !wait(ctx, st.pause) {
			return context.Cause(ctx)
		}
		d := delivery(s.number, i, st.kind)
		id, err := l.send(ctx, d)
		if err != nil {
			return fmt.Errorf("%s: %w", st.kind, err)
		}
		s.events = append(s.events, sent{kind: st.kind, id: id, at: time.Now()})
		for range st.redeliver {
			if err := l.repeat(ctx, d.Redeliver(), id); err != nil {
				return err
			}
		}
		for range st.again {
			if err := l.repeat(ctx, d.Again(), id); err != nil {
				return err
			}
		}
	}
	return nil
}

// repeat delivers an event once more; it must be known under the same id.
func (l *load) repeat(ctx context.Context, d githubtest.Delivery, want string) error {
	l.duplicates.Add(1)
	id, err := l.send(ctx, d)
	if err == nil && id != want {
		err = fmt.Errorf("a repeated delivery is event %s, it was %s", id, want)
	}
	return err
}

func (l *load) send(ctx context.Context, d githubtest.Delivery) (string, error) {
	l.deliveries.Add(1)
	r, tries, err := fleettest.Send(ctx, l.url, d)
	l.tries.Add(int64(tries))
	switch {
	case err != nil:
		return "", err
	case len(r.Events) != 1:
		return "", fmt.Errorf("%d events of %s: %s (%s)", len(r.Events), d.GUID, r.Outcome, r.Reason)
	}
	return r.Events[0].EventID, nil
}

// delivery is the nth webhook about an issue.
func delivery(issue int64, n int, kind stepKind) githubtest.Delivery {
	at := githubtest.DefaultTime.Add(time.Duration(n) * time.Second) // the forge's times have no fractions
	labels := githubtest.Labels("loopfleet")
	switch kind {
	case stepLabel:
		return githubtest.LabeledIssue(issue, "loopfleet", githubtest.At(at))
	case stepClose:
		return githubtest.Issue("closed", issue, labels, githubtest.At(at), githubtest.Sender("mallory"))
	case stepReopen:
		return githubtest.Issue("reopened", issue, labels, githubtest.At(at))
	default:
		return githubtest.IssueComment("created", issue, labels, githubtest.At(at),
			githubtest.ID(issue*100_000+int64(n)), githubtest.Text(fmt.Sprintf("event %d of this issue", n)))
	}
}

// wait waits d and reports whether ctx still lives.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
