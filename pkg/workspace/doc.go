// Package workspace prepares, finds again and removes the checkout that an agent
// works in.
//
// A [Manager] owns one directory. With the strategy "worktree" it keeps one
// shared clone per repository and gives each work item a worktree of it; with
// "clone" each item has a clone of its own. Either way:
//
//   - [Manager.Prepare] returns a checkout on the item's branch. One that is
//     there is returned as it is: nothing of the agent's is touched. One whose
//     making was interrupted, at whatever point, is made anew. Any number of
//     calls may run at once, in any number of processes: they wait for each
//     other, item by item and repository by repository.
//   - [Manager.Remove] removes a checkout only when nothing would be lost with
//     it, or when it is told to. What cannot be told counts as work.
//   - The branch that work starts from is asked of the remote, never assumed.
//
// The agent may write to everything it works in, the configuration and the hooks
// of the repository included, and worktrees share them. So our own calls of git
// never read that configuration: they name a directory of ours as the common
// one, which has a configuration of ours and links to the repository's objects
// and references. What the operator has configured for git (helpers for
// credentials, proxies, certificates) does apply. Hooks are off, every prompt is
// refused, and only https and ssh are spoken, for submodules too.
//
// A token reaches git through a helper that is given to that one call and to one
// host only: it is in no argument, no address, no log and no file of the
// repository.
//
// Names of directories come from [workitem.Ref] alone. Names of branches and
// addresses never reach a shell, and git is given full references.
//
// The files of a Manager, below its root:
//
//	items/<item>            the checkouts
//	repos/<repository>.git  the shared clones; they are kept
//	.loopfleet/             locks, what is known of each checkout, configurations
package workspace
