package fault

import (
	"context"
	"sync/atomic"
	"time"
)

// Point is one named place between a side effect and the write that records it.
type Point string

// The points, each named after the write that follows it.
const (
	// ControlRecord: the fold of control messages is about to be recorded.
	ControlRecord Point = "control-record"
	// DedupPut: the outcome is in the record and about to go to the dedup bucket.
	DedupPut Point = "dedup-put"
	// LaneAck: everything is recorded and the message is about to be acked.
	LaneAck Point = "lane-ack"
	// LogOutcome: the outcome is about to be logged.
	LogOutcome Point = "log-outcome"
	// NoticeAck: the ticket has been told and the message that asked for it is
	// about to be acked.
	NoticeAck Point = "notice-ack"
	// PublishAnswer: the event is in the stream and the HTTP answer comes next.
	PublishAnswer Point = "publish-answer"
	// SessionEnded: the process tree has ended and the record is about to say so.
	SessionEnded Point = "session-ended"
	// OutcomeRecord: the agent has the prompt and the record is about to say so.
	OutcomeRecord Point = "outcome-record"
	// AttemptFailed: a try has failed and the record is about to count it.
	AttemptFailed Point = "attempt-failed"
	// SpawnRecord: the program runs and the record is about to name it.
	SpawnRecord Point = "spawn-record"
	// SubmitEnter: the line is on the screen and Enter comes next.
	SubmitEnter Point = "submit-enter"
)

// Points lists every point, sorted.
var Points = []Point{
	AttemptFailed, ControlRecord, DedupPut, LaneAck, LogOutcome, NoticeAck, OutcomeRecord,
	PublishAnswer, SessionEnded, SpawnRecord, SubmitEnter,
}

// Hook is called at every point with its name. It may wait (ending early with
// ctx) or end the process.
type Hook func(ctx context.Context, p Point)

var hook atomic.Pointer[Hook]

// Set installs h for the whole process and returns a function that restores
// what was there before. A nil h removes the hook. Safe for concurrent use.
func Set(h Hook) (restore func()) {
	var next *Hook
	if h != nil {
		next = &h
	}
	old := hook.Swap(next)
	return func() { hook.Store(old) }
}

// Pass runs the hook, if there is one, at p.
func Pass(ctx context.Context, p Point) {
	if h := hook.Load(); h != nil {
		(*h)(ctx, p)
	}
}

// Lag returns a hook that waits d at every point, or until ctx ends.
func Lag(d time.Duration) Hook {
	return func(ctx context.Context, _ Point) {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
}
