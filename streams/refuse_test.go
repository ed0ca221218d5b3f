package streams

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestRefuseStream_ShorterLimits(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	num := func(n any) json.Number {
		b, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		return json.Number(b)
	}
	tests := []struct {
		name       string
		key        string
		have, want any
		state      jetstream.StreamState
		reason     string
	}{
		{"oldest would go", "max_age", num(0), num(14 * day), jetstream.StreamState{Msgs: 1, FirstTime: now.Add(-15 * day)}, "(the oldest is of 2026-02-14T00:00:00Z): if that is meant, run `nats stream edit S --max-age=14d`"},
		{"oldest stays", "max_age", num(0), num(14 * day), jetstream.StreamState{Msgs: 1, FirstTime: now.Add(-13 * day)}, ""},
		{"empty", "max_age", num(0), num(14 * day), jetstream.StreamState{}, ""},
		{"longer age", "max_age", num(day), num(14 * day), jetstream.StreamState{Msgs: 1, FirstTime: now.Add(-day)}, ""},
		{"no age limit any more", "max_age", num(day), num(0), jetstream.StreamState{Msgs: 1, FirstTime: now.Add(-day)}, ""},
		{"too many bytes", "max_bytes", num(-1), num(10), jetstream.StreamState{Msgs: 1, Bytes: 11}, "(11 bytes are stored)"},
		{"bytes fit", "max_bytes", num(-1), num(10), jetstream.StreamState{Msgs: 1, Bytes: 10}, ""},
		{"too many messages", "max_msgs", num(-1), num(2), jetstream.StreamState{Msgs: 3}, "(3 messages are stored)"},
		{"messages unlimited", "max_msgs", num(5), num(-1), jetstream.StreamState{Msgs: 3}, ""},
		{"history may go", "max_msgs_per_subject", num(5), num(1), jetstream.StreamState{Msgs: 3, NumSubjects: 2}, "(3 messages are stored for 2 subjects)"},
		{"no history there", "max_msgs_per_subject", num(5), num(1), jetstream.StreamState{Msgs: 2, NumSubjects: 2}, ""},
		{"more history", "max_msgs_per_subject", num(1), num(5), jetstream.StreamState{Msgs: 3, NumSubjects: 2}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			have, want := map[string]any{tt.key: tt.have}, map[string]any{tt.key: tt.want}
			got := strings.Join(refuseStream("S", diff(have, want), have, want, tt.state, now), "; ")
			if (tt.reason == "") != (got == "") || !strings.Contains(got, tt.reason) {
				t.Errorf("reason %q, want %q", got, tt.reason)
			}
		})
	}
}
