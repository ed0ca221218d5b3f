// Package logkey names the fields that log lines and log events share, once, so
// that one word always means one thing in zerolog output and in LOOP_LOG.
package logkey

// Field names.
const (
	Action    = "action"
	Actor     = "actor"
	Attempt   = "attempt"
	Delivered = "delivered"
	Delivery  = "delivery_id"
	Error     = "error"
	EventID   = "event_id"
	EventName = "event"
	Harness   = "harness"
	Hint      = "hint"
	Reason    = "reason"
	Seq       = "seq"
	Session   = "session"
	Source    = "source"
	Worker    = "worker"
	WorkItem  = "work_item"
)
