// Package process is what every Loopfleet process does before its own part:
// read the configuration and its flags, make the logger, find and connect to
// NATS, see to the streams. It is one package so that `loopfleet up` and the
// fleet's binaries cannot differ in it.
//
// Nothing here reads the environment or exits by itself: main passes both in.
package process
