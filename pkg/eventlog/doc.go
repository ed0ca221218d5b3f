// Package eventlog writes and reads LOOP_LOG, the record of every decision.
//
// One line is one flat JSON object, published as loop.log.<type>, so that
// `nats sub 'loop.log.>'` and `loopfleet events` show the same. Types come from
// the catalogue in package event; names of fields from package logkey.
//
// Guarantees of a [Log]:
//
//   - Emit returns nil only after the stream has the line. Post does not wait for
//     the network, and retries until the stream has the line or Close gives up.
//   - Lines reach the stream in the order in which they were handed over, except
//     around a failure, where a line may come late; ts keeps the true order.
//   - A retry is not a second line (within the stream's duplicate window).
//   - A line is lost only when the queue stays full or Close runs out of time;
//     it is then counted (Lost) and warned of, never silently dropped.
//   - Every text is valid UTF-8 and at most 2 KiB, a line at most 32 KiB.
//
// What lines say may come from strangers. JSON keeps it apart; for a terminal,
// print only what went through [Escape], as [Line.TextWidth] does.
//
// All methods are safe for concurrent use.
package eventlog
