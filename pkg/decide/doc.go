// Package decide says what an event does, given the record of its item: start a
// session, deliver to it, drop the event with a reason, or hold it.
//
// It is a pure function with a table (DESIGN, section 8). Events are hints: the
// record is the truth, so an event of a closed item or of an older life of it is
// dropped whatever it asks for.
package decide
