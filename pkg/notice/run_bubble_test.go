package notice_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"loopfleet/pkg/deadletter"
	"loopfleet/pkg/event"
	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/forge"
	"loopfleet/pkg/notice"
	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/workitem"
)

// away is a forge that is not there until a time, on the bubble's clock, where
// real connections would stop it.
type away struct {
	until time.Time
	err   error

	mu    sync.Mutex
	tries []time.Time
	posts int
}

func (a *away) Posted(context.Context, workitem.Ref, string, time.Time) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tries = append(a.tries, time.Now())
	if time.Now().Before(a.until) {
		return false, a.err
	}
	return a.posts > 0, nil
}

func (a *away) Post(context.Context, workitem.Ref, string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.posts++
	return "https://example.com/1", nil
}

type lines struct {
	mu   sync.Mutex
	seen []eventlog.Entry
}

func (l *lines) Emit(_ context.Context, e eventlog.Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, e)
	return nil
}

// outage runs one outbox against a forge for as long as a test says, and returns
// what was logged.
func outage(t *testing.T, a *away, kept time.Time, run time.Duration) []eventlog.Entry {
	t.Helper()
	s := natstest.Start(t, "")
	natstest.Provision(t, s.JS)
	ref, err := workitem.Parse("octo/hello#42")
	if err != nil {
		t.Fatal(err)
	}
	l := letter(ref, "comment-a", 0)
	l.At = kept
	if err := deadletter.Keep(t.Context(), s.JS, l); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), run)
	defer cancel()
	var log lines
	notice.Run(ctx, notice.Deps{JS: s.JS, Poster: a, Events: &log, Log: zerolog.Nop()})
	return log.seen
}

// An outage of hours: ever longer waits, then the notice.
func TestOutage_BacksOffToHours(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		a := &away{until: time.Now().Add(5 * time.Hour), err: errors.New("connection refused")}
		log := outage(t, a, time.Now(), 9*time.Hour)
		if a.posts != 1 || len(log) != 1 || log[0].Type != event.NoticePosted {
			t.Errorf("%d posts, log %+v; want one notice", a.posts, log)
		}
		var last time.Duration
		for i := 1; i < len(a.tries); i++ {
			wait := a.tries[i].Sub(a.tries[i-1])
			if wait < last {
				t.Errorf("wait %d is %s, shorter than the one before, %s", i, wait, last)
			}
			last = wait
		}
		if n := len(a.tries); n < 8 || n > 12 || last < 3*time.Hour {
			t.Errorf("%d tries, the last wait %s; want about ten, up to hours apart", n, last)
		}
	})
}

// A forge that says when to come back is left alone until then.
func TestOutage_RateLimit(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		a := &away{until: time.Now().Add(time.Minute), err: &forge.RateLimitError{RetryAfter: 40 * time.Minute, Err: errors.New("slow down")}}
		outage(t, a, time.Now(), 2*time.Hour)
		if len(a.tries) != 2 || a.posts != 1 {
			t.Fatalf("%d tries and %d posts, want 2 and 1", len(a.tries), a.posts)
		}
		if wait := a.tries[1].Sub(a.tries[0]); wait < 40*time.Minute || wait > 45*time.Minute {
			t.Errorf("came back after %s, want 40m", wait)
		}
	})
}

// What is days old is no news any more.
func TestOutage_GivesUpAfterDays(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		a := &away{until: time.Now().Add(1000 * time.Hour), err: errors.New("connection refused")}
		log := outage(t, a, time.Now().Add(-66*time.Hour), 12*time.Hour)
		if a.posts != 0 || len(a.tries) < 5 || len(log) != 1 || log[0].Type != event.NoticeFailed || log[0].Fields["reason"] != "expired" {
			t.Errorf("%d tries, %d posts, log %+v; want tries and one notice.failed(expired)", len(a.tries), a.posts, log)
		}
	})
}

// A token that is configured late does not flood old tickets.
func TestOldLetters_AreNotTold(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		a := &away{}
		log := outage(t, a, time.Now().Add(-100*time.Hour), time.Minute)
		if a.posts != 0 || len(a.tries) != 0 || len(log) != 1 || log[0].Type != event.NoticeFailed {
			t.Errorf("%d posts, log %+v; want none and one notice.failed", a.posts, log)
		}
	})
}
