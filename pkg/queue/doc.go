// Package queue moves events from the stream to the one worker that owns their
// item, in order, one at a time.
//
// # What it guarantees
//
//   - An item's events reach the [Handler] in the order of the stream, the next
//     only after the one before has an outcome. Items run in parallel.
//   - At any time at most one live worker handles an item: ownership is a
//     compare-and-set in the registry, taken from another only when a read from
//     the leader shows that worker's lease gone and this worker has held its own
//     for a full TTL.
//   - An event without an outcome is handed out again, whatever crashed: the
//     doorbell tells workers of new work, the sweep finds what no bell is left
//     for, and floor (in the record, written with every outcome) says where an
//     item's work begins.
//   - Control (close, pause, ...) is folded into the record as soon as it
//     arrives, never behind a long, failing or held event, and whenever
//     ownership begins, and before every event.
//   - What an event does to a session is fenced by the worker's lease: a worker
//     that lost it lets go of everything first and asks afterwards.
//
// # What callers must do
//
// Implement Handler; record an outcome through [Item.Update] before returning
// [Ack]; touch a session only inside [Item.Act].
//
// Consumers are cursors only. A lane is deleted and made anew from the floor
// whenever ownership begins, so a former owner's open pull or late ack does no
// harm.
package queue
