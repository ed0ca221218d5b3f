package streams

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// fixedStream are the members that a server keeps as they were made, or that
// decide what is kept and where; true means that only turning it off is refused.
var fixedStream = map[string]bool{
	"persist_mode": false, "retention": false, "storage": false,
	"allow_msg_ttl": true, "deny_delete": true, "deny_purge": true,
}

// refuseStream says why the fields that differ must not be changed by us.
// State is the stream's as of now, on the server's clock.
func refuseStream(name string, fields []Field, have, want map[string]any, state jetstream.StreamState, now time.Time) []string {
	var fixed, reasons []string
	for _, f := range fields {
		onlyOff, ok := fixedStream[f.Name]
		switch {
		case ok && (!onlyOff || normal(want[f.Name]) == nil):
			fixed = append(fixed, f.Name)
		case f.Name == "subjects":
			if gone := missing(have[f.Name], want[f.Name]); len(gone) > 0 {
				reasons = append(reasons, fmt.Sprintf(
					"messages of %s would no longer be stored: if that is meant, take them away by hand with `nats stream edit %s --subjects=%s`",
					strings.Join(gone, ", "), name, f.Want))
			}
		case f.Name == "max_age":
			age, limited := limit(want[f.Name])
			if limited && state.Msgs > 0 && now.Sub(state.FirstTime) > time.Duration(min(age, math.MaxInt64)) {
				reasons = append(reasons, shrink(name, "--max-age="+f.Want, "the oldest is of "+state.FirstTime.UTC().Format(time.RFC3339)))
			}
		case f.Name == "max_bytes":
			if n, limited := limit(want[f.Name]); limited && state.Bytes > n {
				reasons = append(reasons, shrink(name, "--max-bytes="+f.Want, fmt.Sprintf("%d bytes are stored", state.Bytes)))
			}
		case f.Name == "max_msgs":
			if n, limited := limit(want[f.Name]); limited && state.Msgs > n {
				reasons = append(reasons, shrink(name, "--max-msgs="+f.Want, fmt.Sprintf("%d messages are stored", state.Msgs)))
			}
		case f.Name == "max_msgs_per_subject":
			// Whether one subject has more than the limit is not known when
			// there are more messages than subjects.
			if n, limited := limit(want[f.Name]); limited && state.Msgs > state.NumSubjects && !atMost(have[f.Name], n) {
				reasons = append(reasons, shrink(name, "--max-msgs-per-subject="+f.Want,
					fmt.Sprintf("%d messages are stored for %d subjects", state.Msgs, state.NumSubjects)))
			}
		}
	}
	if len(fixed) > 0 {
		reasons = append(reasons, fmt.Sprintf(
			"%s can only be set when the stream is made: save what you need with `nats stream backup %s DIR`, remove it with `nats stream rm %s`, then run `loopfleet streams apply`",
			strings.Join(fixed, ", "), name, name))
	}
	return reasons
}

func shrink(name, flag, why string) string {
	return fmt.Sprintf("messages stored now would go (%s): if that is meant, run `nats stream edit %s %s`", why, name, flag)
}

// limit reads a limit; 0 and -1 are none.
func limit(v any) (n uint64, limited bool) {
	num, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(num.String(), 10, 63)
	return n, err == nil && n > 0
}

func atMost(v any, n uint64) bool {
	have, limited := limit(v)
	return limited && have <= n
}

// missing returns what have lists and want does not.
func missing(have, want any) []string {
	// What is no list has no members.
	h, _ := have.([]any)
	w, _ := want.([]any)
	var gone []string
	for _, s := range h {
		if !slices.Contains(w, s) {
			gone = append(gone, show("", s))
		}
	}
	return gone
}

// fixedConsumer are the members that a server keeps as they were made.
var fixedConsumer = []string{
	"ack_policy", "deliver_policy", "max_waiting", "mem_storage", "opt_start_seq", "replay_policy",
}

func refuseConsumer(stream, name string, fields []Field) []string {
	var fixed []string
	for _, f := range fields {
		if slices.Contains(fixedConsumer, f.Name) {
			fixed = append(fixed, f.Name)
		}
	}
	if len(fixed) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s can only be set when the consumer is made: %s", strings.Join(fixed, ", "), remakeConsumer(stream, name))}
}

// remakeConsumer is the manual step. It is safe for the shared consumers: bells
// only ring, and ringing again decides nothing; a notice that was posted already
// is found on its ticket.
func remakeConsumer(stream, name string) string {
	return fmt.Sprintf("remove it with `nats consumer rm %s %s`, then run `loopfleet streams apply`", stream, name)
}
