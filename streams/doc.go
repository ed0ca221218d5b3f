// Package streams defines what Loopfleet needs on a NATS server (streams, KV
// buckets, shared consumers, the template of lanes) and brings a server to it.
//
// The definitions are the JSON files beside this one, in the form that
// `nats stream add --config FILE` and `nats consumer add STREAM --config FILE`
// (LOOP_DEAD for notices, else LOOP_EVENTS) accept, so an operator can read and apply them without Loopfleet. A
// bucket is the stream KV_<bucket>, laid out as every NATS client expects it.
//
// [Plan] compares a server with the definitions and changes nothing. [Apply]
// creates what is missing and updates what differs. It may run twice, and in
// several processes at once. Neither ever deletes anything, changes how
// messages are retained or stored, takes a subject away, or shortens a limit so
// that messages stored now would go: such a difference is refused with the
// manual step that resolves it, and then nothing at all is changed. Settings
// that the definitions do not name, and objects they do not know, are left
// alone.
//
// # Why these values
//
//   - LOOP_EVENTS refuses new events when it is full (discard new) rather than
//     drop old ones; a publisher sees it. max_consumers is 10000 because the
//     server's own default caps a stream at 1,000 lanes. allow_direct is off:
//     looking ahead and folding control must read the leader.
//   - max_bytes is reserved on the server when a stream is made, and a server
//     gives at most three quarters of its free disk: 2 GiB + 1 GiB + 512 MiB
//     fit on a laptop with 5 GiB left. At 20 KiB an event, 2 GiB are 100,000
//     events nobody has finished yet. Options.MaxBytes sets others.
//   - LOOP_LOG discards its oldest lines and is written asynchronously, so a
//     line costs no fsync where the server runs with sync_interval always.
//     Async is for one replica on disk only; otherwise it is left out.
//   - loop_dedup forgets 7 days after the last copy of the event could come.
//   - loop_registry and loop_leases allow a TTL per key and leave a marker for a
//     minute when one ends; both are read from the leader only.
//   - Lanes set no backoff: it would replace ack_wait.
package streams
