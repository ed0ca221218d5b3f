// Package natstest runs a real nats-server inside the test's own process, one
// private server with JetStream per test.
//
// [Start] opens no socket, is up in a few milliseconds and also works under
// the fake clock of [Bubble]. [StartTCP] listens on a free loopback port for
// tests that start other programs. Both stop the server when the test ends.
// A server can go down and come back on its files ([Server.Down], [Server.Up],
// [Server.Restart]); connections made here reconnect for ever, as those of the
// product do.
//
// A method that takes the test may end it, so call those from the test's
// goroutine; the connections may be used from any.
package natstest
