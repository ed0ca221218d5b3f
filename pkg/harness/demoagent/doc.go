// Package demoagent is a small agent without a model: the program behind
// `loopfleet demo-agent`, a real harness for demonstrations and tests.
//
// It takes its boot prompt as the last argument and further prompts on its
// terminal, as an agent CLI does: a composer at the bottom echoes what is typed
// or pasted, Enter submits it, and what is submitted while it works waits its
// turn. Of each Loopfleet prompt it reads the file it points to, prints the
// text, records it in the transcript and gives the receipt, in that order. With
// --ask it then puts a question to a person, as agents do before they run a
// command (and whenever it gets USR1): what is pasted meanwhile is lost, and
// Enter approves.
package demoagent
