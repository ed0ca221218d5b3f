// Package fleettest runs the product as it is deployed, for tests of whole
// processes: the worker and ingress binaries, a real nats-server process with
// files, the demo agent in real tmux, and signed webhooks over HTTP.
//
// Every process can be killed, stopped and continued by its own id. What the
// agents received is read from their own transcripts and processes from /proc,
// so that a check need not believe what the product says of itself.
//
// When the test ends, every process whose environment or command line names the
// fleet's own directory is ended, whatever the test did.
package fleettest
