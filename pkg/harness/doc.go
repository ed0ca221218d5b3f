// Package harness knows the agent CLIs: how each is found, started, resumed, how
// it says that it has taken a prompt, and where on its screen a person types.
//
// An [Adapter] is that knowledge for one CLI. It decides and reads; it starts
// nothing and types nothing, which is the session driver's part (package
// session). Adapters here:
//
//   - any program, by `harnesses.<name>.command`: it gets the boot prompt as its
//     last argument and later prompts on its terminal, and says that it has
//     taken one by appending the event id to its receipts file, or never does;
//   - demo: the same with `loopfleet demo-agent` (package demoagent), whose draft
//     and dialog it can tell;
//   - claude: Claude Code, with a conversation id of our choosing, so that a
//     respawn resumes the same conversation, and whose draft it can tell. It
//     gives no receipt yet: submitted is done.
//
// A [Set] is the configured harnesses by name. Everything is safe for concurrent
// use.
package harness
