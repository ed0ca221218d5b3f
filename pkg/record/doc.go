// Package record is the registry record of a work item: its shape and the legal
// changes to it, as pure functions.
//
// The record is the truth about an item's session: who owns it, what it wants,
// which of its events have an outcome. Every write is compare-and-set on the
// revision held (package registry), so the functions here never look at a clock
// or at anything but their arguments, and a test can drive every transition.
package record
