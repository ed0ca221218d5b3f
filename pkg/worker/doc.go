// Package worker takes the events of the items it owns, one at a time an item,
// and turns each into an outcome: a prompt in the item's agent session, a drop
// with its reason, or a dead letter.
//
// [Worker.Handle] shows the life of one event. Its guarantees:
//
//   - An attempt is recorded before the side effect and its outcome after it;
//     the message is acknowledged last. What a crash leaves in between is found
//     by the next owner, who reads the session's receipts before it sends
//     anything again.
//   - Only a try that was made and failed is charged. A hold, a drain, a lost
//     lease or a wait for room is not.
//   - Every outcome is in the record, in the dedup bucket and in LOOP_LOG before
//     the message is acknowledged.
//
// A Worker is used through package queue, which calls it for different items at
// the same time and never twice at once for one item.
package worker
