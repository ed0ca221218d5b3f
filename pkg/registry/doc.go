// Package registry keeps what must survive every process, in KV buckets: the
// record of each work item, the outcome of each event, the links from pull
// requests and commits to work items, the names of repositories, and the leases
// and descriptions of workers.
//
// # Guarantees
//
// Every write of a record is compare-and-set on the revision that was read, so
// a stale owner's write fails with [ErrConflict]. Outcomes are written once and
// never change: the first one wins. Reads of records and leases go to the
// stream's leader, because what they decide (who owns an item, whether an owner
// is dead) must not come from a lagging replica.
//
// A write whose answer is lost may have landed: an error other than ErrConflict
// means "unknown", and callers read again before they conclude anything.
//
// All types are safe for concurrent use.
package registry
