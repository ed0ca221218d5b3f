// Package tmux runs one tmux server, named by the path of its socket, and knows
// nothing of what runs inside it.
//
// A [Server] never touches another server: every call names the socket, reads no
// configuration file, and drops an inherited TMUX. Sessions are addressed by
// their exact name, which must begin with "loop-" ([ValidName]), so neither a
// prefix nor a hand-edited record reaches somebody else's session.
//
// What it guarantees beyond calling tmux:
//
//   - [Server.NewSession] runs the program without a shell, and keeps the session
//     of one that exits at once, with its status (and with its screen, unless it
//     printed in its very last moment: tmux may miss that);
//   - [Server.Paste] and [Server.Enter] check the pane and type in one command
//     of the server, because pasting into a dead pane crashes tmux 3.3a;
//   - an error says what is the case: [ErrNoServer], [ErrNoSession], [ErrDead],
//     or a [CommandError], after which the session may well be alive.
//
// A server whose socket file was removed is not dead. Its process is the truth:
// keep its [Process], which survives the reuse of pids, and make it listen again
// with [Server.RecreateSocket].
//
// All methods may be called concurrently. Calls that type into one session must
// be put in order by the caller.
package tmux
