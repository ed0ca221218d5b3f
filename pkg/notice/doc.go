// Package notice tells tickets what became of them: one notice for each event
// that was given up, and one when an item is paused because it got too many
// prompts.
//
// It is an outbox. What is to be told is a message in LOOP_DEAD before anything
// else happens, a dead letter or a [Note]; [Run] takes the messages from the
// durable consumer "notices", in as many workers as there are, and acknowledges
// one only after the ticket has been told. So a crash loses no notice, and the
// marker that each carries, looked for before posting, keeps one from being
// posted twice. Nothing waits for it: a forge that is away delays notices, never
// events.
//
// A forge that is away, or wants to be left alone, is tried again, from seconds
// to hours apart. What cannot be posted at all (no permission, no ticket, still
// not after three days) is a notice.failed in the event log, with what to do.
//
// A notice holds nothing that the commenter, or the agent, wrote.
package notice
