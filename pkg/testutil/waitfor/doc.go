// Package waitfor makes a test wait for what it asserts, and for nothing else.
//
// A test that sleeps is slow where the machine is fast and red where it is
// slow. These functions look every few milliseconds until the condition holds,
// and fail the test with the name of the condition (and the last value seen)
// at the test binary's own deadline or after [Limit], whichever is earlier.
//
// In a testing/synctest bubble the same calls move the fake clock along, and
// give up after [BubbleLimit] of it.
//
// They end a test by Fatalf, so call them from the goroutine that runs it.
package waitfor
