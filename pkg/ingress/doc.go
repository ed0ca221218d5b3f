// Package ingress receives GitHub's webhooks over HTTP and publishes what
// matters of them.
//
// # What it guarantees
//
//   - 202 means that everything the delivery brought is durable: each event was
//     acknowledged by the stream, or the reason why there is none by the log.
//     When that cannot be had, the answer is 503, and sending the delivery
//     again does no harm.
//   - Nothing is dropped by doubt: when the registry cannot be read, that is a
//     503 too.
//   - An event that was handled before is not published again. What counts is
//     its recorded outcome, not that its delivery was seen: the redelivery of a
//     delivery whose event was given up is tried again, as a new generation.
//   - The bytes of all bodies under way are bounded before any is read, and
//     large bodies cannot take the room of ordinary ones.
//   - One bad request never hurts the next, a panic included.
//
// The life of a delivery is [Server.take], read from top to bottom. Which
// events matter is decided by package router; nothing here calls the forge,
// which gives up after ten seconds.
//
// # What callers must do
//
// Give [New] a secret; without one it accepts nothing but an explicit
// webhooks.ghWebhook.insecure on a loopback address. End [Server.Run] by its
// context: what is under way is finished first.
//
// All methods are safe for concurrent use.
package ingress
