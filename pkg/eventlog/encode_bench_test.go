package eventlog

import (
	"testing"
	"time"

	"loopfleet/pkg/event"
	"loopfleet/pkg/workitem"
)

func BenchmarkEncode(b *testing.B) {
	item, err := workitem.Parse("octo/hello#42")
	if err != nil {
		b.Fatal(err)
	}
	e := Entry{
		Type: event.RoutingRouted, WorkItem: item, EventID: "comment-kdi5jmmxthdfr35qxh7er5um", Delivery: "0d0a6c5a-a667-4c09-8d1a-76620220c174",
		Fields: map[string]any{"event": "issue_comment", "action": "created", "actor": "alice", "seq": uint64(12), "bytes": 2954, "duplicate": false},
	}
	now := time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.encode(now, "w1", "ingress"); err != nil {
			b.Fatal(err)
		}
	}
}
