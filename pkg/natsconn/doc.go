// Package natsconn connects to NATS the way every Loopfleet process needs it.
//
// The connection reconnects for ever (the client's own default gives up after
// about two minutes), and it buffers nothing while the server is away: a
// publish then fails at once, so that whoever published knows, and a lease
// renewed before an outage is never sent after it. A server that answers nothing
// is noticed within about 15 seconds.
//
// Credentials reach neither logs nor errors: addresses are printed without
// their user part. [Close] sends what is under way before it closes.
package natsconn
