package worker_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"

	"loopfleet/pkg/event"
	"loopfleet/pkg/record"
	"loopfleet/pkg/testutil/gittest"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/workspace"
)

// nearby is a Manager whose repositories are all one directory on this machine.
type nearby struct {
	*workspace.Manager
	origin string
}

func (n nearby) Prepare(ctx context.Context, req workspace.Request) (workspace.Checkout, error) {
	req.CloneURL = n.origin
	return n.Manager.Prepare(ctx, req)
}

// The agent works in a checkout of its item's repository. A close removes it,
// unless it holds work that is nowhere else: that stays and is reported.
//
// rule: CL-12, scenarios 17 (half) and 18
func TestCheckouts(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	environ := gittest.Environ(t)
	origin := gittest.New(t, environ, filepath.Join(t.TempDir(), "hello.git"), "trunk")
	origin.Commit("refs/heads/trunk", "", "first", gittest.Files{"README": "hello"})
	m, err := workspace.New(workspace.Config{Root: t.TempDir(), Environ: environ, Local: true, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	f.checkouts = nearby{m, origin.Dir}
	f.start("w1")
	clean, dirty := item(t, 81), item(t, 82)
	f.publish(label(clean, 0), label(dirty, 0))
	for _, ref := range []event.Event{label(clean, 0), label(dirty, 0)} {
		f.want(ref, record.Done, "")
		cwd := f.record(ref.WorkItem).Session.Cwd
		if cwd != m.Dir(ref.WorkItem) {
			t.Errorf("the agent of %s works in %s, its checkout is %s", ref.WorkItem, cwd, m.Dir(ref.WorkItem))
		}
		if b, err := os.ReadFile(filepath.Join(cwd, "README")); err != nil || string(b) != "hello" {
			t.Errorf("checkout of %s: %q, %v", ref.WorkItem, b, err)
		}
		if branch := gittest.Run(t, environ, cwd, "branch", "--show-current"); branch != "loopfleet/issue-"+ref.WorkItem.Number {
			t.Errorf("branch %q", branch)
		}
		f.wantLogged(event.WorkspacePrepared, ref.WorkItem, 1)
	}
	work := filepath.Join(m.Dir(dirty), "work.txt")
	if err := os.WriteFile(work, []byte("not pushed"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.publish(closing(clean, 50), closing(dirty, 50))
	r := f.state(clean, record.StateClosed)
	if r.End == nil || !r.End.DirRemoved {
		t.Errorf("end of the clean one: %+v", r.End)
	}
	if _, err := os.Stat(m.Dir(clean)); !os.IsNotExist(err) {
		t.Errorf("the clean checkout is still there: %v", err)
	}
	f.wantLogged(event.WorkspaceRemoved, clean, 1)
	r = f.state(dirty, record.StateClosed)
	if r.End == nil || r.End.DirRemoved || r.End.DirKept == "" {
		t.Errorf("end of the dirty one: %+v", r.End)
	}
	if _, err := os.Stat(work); err != nil {
		t.Errorf("work that was nowhere else is gone: %v", err)
	}
	f.wantLogged(event.WorkspaceKept, dirty, 1)

	// A reopened item goes on where it was, or gets a fresh checkout.
	for _, ref := range []event.Event{label(clean, 100), label(dirty, 100)} {
		f.publish(ref)
		f.want(ref, record.Done, "")
		waitfor.Until(t, "the checkout to be there", func() bool {
			_, err := os.Stat(filepath.Join(m.Dir(ref.WorkItem), "README"))
			return err == nil
		})
	}
	if _, err := os.Stat(work); err != nil {
		t.Errorf("the reopened item lost its work: %v", err)
	}
}
