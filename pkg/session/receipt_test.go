package session_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loopfleet/pkg/config"
	"loopfleet/pkg/record"
	"loopfleet/pkg/session"
	"loopfleet/pkg/testutil/waitfor"
)

// quiet is an agent that takes lines and leaves the receipts to the test.
func quiet(c *session.Config, h map[string]config.Harness) {
	c.ReceiptTimeout = 100 * time.Millisecond
	h["quiet"] = sh(`echo "$1" >> got; while read -r l; do echo "$l" >> got; done`, "file")
}

func receipt(t *testing.T, s record.Session, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(s.Dir, "receipts"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func (e *env) hasReceipt(s record.Session, id string, want bool) {
	e.t.Helper()
	if got, err := e.HasReceipt(s, id); got != want || err != nil {
		e.t.Errorf("HasReceipt(%s) = %v, %v; want %v", id, got, err, want)
	}
}

func TestReceipt_LateIsSeenAndNothingIsDoubled(t *testing.T) {
	t.Parallel()
	e := setup(t, quiet)
	s, p := e.spawn(e.request("quiet")), prompt("comment-1", "x\n")
	if got, err := e.Deliver(t.Context(), s, p); err != nil || got != (session.Delivery{Submitted: true}) {
		t.Fatalf("%+v, %v; want submitted only", got, err)
	}
	e.hasReceipt(s, p.EventID, false)
	receipt(t, s, p.EventID) // it is being written
	e.hasReceipt(s, p.EventID, false)
	receipt(t, s, "\n")
	e.hasReceipt(s, p.EventID, true)
	e.deliver(s, p)
	p.Generation = 1 // a replay of what was given up for want of a receipt
	e.deliver(s, p)
	want := session.Pointer("label-1") + "\n" + session.Pointer("comment-1")
	if got := lines(t, filepath.Join(s.Cwd, "got"), 2); strings.Join(got, "\n") != want {
		t.Errorf("the agent was typed %q", got)
	}
}

func TestReceipt_InAnotherOrder(t *testing.T) {
	t.Parallel()
	e := setup(t, quiet)
	s := e.spawn(e.request("quiet"))
	for _, id := range []string{"comment-1", "comment-2"} {
		if got, err := e.Deliver(t.Context(), s, prompt(id, "x\n")); err != nil || got.Receipt {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	receipt(t, s, "comment-2\nlabel-1\n")
	e.hasReceipt(s, "comment-2", true)
	e.hasReceipt(s, "comment-1", false)
	receipt(t, s, "comment-1\n")
	for _, id := range []string{"comment-1", "comment-2", "label-1"} {
		if got, err := e.AwaitReceipt(t.Context(), s, id); !got || err != nil {
			t.Errorf("AwaitReceipt(%s) = %v, %v", id, got, err)
		}
	}
}

func TestReceipt_MissingNeverBecomesASuccess(t *testing.T) {
	t.Parallel()
	e := setup(t, quiet)
	s, p := e.spawn(e.request("quiet")), prompt("comment-1", "x\n")
	receipt(t, s, "comment-10\nxcomment-1\ncomment-1 2\n")
	for range 2 {
		if got, err := e.Deliver(t.Context(), s, p); err != nil || got.Receipt {
			t.Fatalf("%+v, %v; want no receipt", got, err)
		}
	}
}

func TestReceipt_InAHugeFile(t *testing.T) {
	t.Parallel()
	e := setup(t, quiet)
	s := e.spawn(e.request("quiet"))
	receipt(t, s, strings.Repeat("junk-of-an-agent-that-writes-and-writes\n", 1<<19)) // 20 MiB
	receipt(t, s, "comment-1\n")
	start := time.Now()
	e.deliver(s, prompt("comment-1", "x\n"))
	e.hasReceipt(s, "comment-2", false)
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("two looks took %s", d)
	}
}

// waitTranscript waits until the agent has recorded n entries.
func waitTranscript(t *testing.T, s record.Session, n int) {
	t.Helper()
	waitfor.Value(t, "the transcript", func() (int, bool) { return len(transcript(t, s)), len(transcript(t, s)) >= n })
}
