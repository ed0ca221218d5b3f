// Package githubtest makes what GitHub would send and answer, for tests: signed deliveries
// in GitHub's real shape, and the payload examples and schemas that GitHub
// publishes.
//
// A [Delivery] is built by [Issue], [IssueComment], [PullRequest], [Review],
// [ReviewComment], [WorkflowRun], [CheckRun], [CheckSuite], [Status] or [Ping],
// changed by options ([Sender], [Text], [Set] with a path, [Delete], ...) and
// sent with [NewRequest], signed. Every part of a payload can be replaced, so
// that the rare shapes (null users, deleted forks) are one option away.
//
// A [Forge] plays GitHub's REST API, as far as tickets are told things through it.
//
// Ids are stable: the same arguments give the same object ids, so two
// deliveries of one comment are built by calling twice.
package githubtest
