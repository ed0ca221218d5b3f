// Package tmuxtest gives a test a tmux server of its own: a private socket in a
// short directory, ended with everything in it when the test is over.
//
// There is no fake: a test that needs tmux fails where tmux is missing.
package tmuxtest
