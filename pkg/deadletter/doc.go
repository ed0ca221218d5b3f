// Package deadletter keeps what was given up, and gives it another chance.
//
// A [Letter] holds the whole event with why and after how many attempts it was
// given up. [Keep] stores it in LOOP_DEAD before the outcome is recorded, so a
// worker that dies in the last attempt loses nothing; keeping the same
// generation again does nothing, however much later.
//
// Whether a letter still matters is not written into it. It is computed from
// what became of the event since: the newest generation that anything is known
// of decides. So [Box.Replay] marks nothing: it publishes the event with the
// next generation, a fresh budget, and from then on the letter is in flight,
// settled by a good end, or superseded by the letter of the new generation.
// Replaying what was replayed already sends nothing.
//
// [Box.Drop] takes letters away for good. Everything may be called
// concurrently, from several processes.
package deadletter
