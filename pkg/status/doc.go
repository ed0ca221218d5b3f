// Package status answers what became of an event: done, dropped, dead,
// in-flight or unhandled, for each work item that it concerns.
//
// The answer is put together from what is durable, so it survives a restart of
// every process: the outcomes in the dedup bucket and in the records, the
// messages that the stream still holds, and, for a delivery that was never
// published, the log. Of several generations of an event the newest decides.
// An outcome that a worker has recorded counts at once, also before it has
// reached the dedup bucket.
//
// Reading changes nothing. Everything here is safe for concurrent use.
package status
