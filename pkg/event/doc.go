// Package event holds the one shape in which everything that happens to a work
// item travels: normalised from webhook, poll or operator, with a semantic id
// that is the same from all of them, and the catalogue of log types.
//
// An [Event] is data: bounded (its texts are cut well below the broker's
// payload limit, and say so), free of forge-specific structure, and complete
// enough that nobody looks at the original payload again. Texts in it come from
// strangers; they are safe to store and to print escaped, never to interpret.
package event
