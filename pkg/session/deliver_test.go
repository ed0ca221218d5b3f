package session_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"loopfleet/pkg/config"
	"loopfleet/pkg/record"
	"loopfleet/pkg/session"
	"loopfleet/pkg/testutil/tmuxtest"
	"loopfleet/pkg/testutil/waitfor"
)

func TestDeliver_InOrderAndOnce(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	req := e.request("demo")
	s := e.spawn(req)
	want := []session.Prompt{req.Boot}
	for i := range 5 {
		p := prompt(fmt.Sprintf("comment-%d", i), fmt.Sprintf("text %d\n", i))
		e.deliver(s, p)
		want = append(want, p)
	}
	wantTranscript(t, s, want...)
	if st := e.inspect(s); st.State != session.Live {
		t.Errorf("status %s", st)
	}
	// A redelivery whose receipt is there types nothing.
	e.deliver(s, want[3])
	wantTranscript(t, s, want...)
}

func TestDeliver_ToABusyAgentWaits(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e := setup(t, func(_ *session.Config, h map[string]config.Harness) {
		h["demo"] = config.Harness{Command: []string{self, "demo-agent", "--work", "700ms"}, Receipt: "file"}
	})
	req := e.request("demo")
	s := e.spawn(req)
	a, b := prompt("comment-a", "a\n"), prompt("comment-b", "b\n")
	e.deliver(s, a)
	e.deliver(s, b)
	wantTranscript(t, s, req.Boot, a, b)
}

func TestDeliver_WithoutReceiptInTime(t *testing.T) {
	t.Parallel()
	e := setup(t, func(c *session.Config, h map[string]config.Harness) {
		c.ReceiptTimeout = 100 * time.Millisecond
		h["silent"] = sh(`echo "$1" >> got; while read -r l; do echo "$l" >> got; done`, "file")
	})
	s := e.spawn(e.request("silent"))
	p := prompt("comment-1", "x\n")
	for range 2 { // the second time it is not typed again
		got, err := e.Deliver(t.Context(), s, p)
		if err != nil || got != (session.Delivery{Submitted: true}) {
			t.Fatalf("%+v, %v; want submitted only", got, err)
		}
	}
	// An operator's replay has a higher generation and is typed.
	p.Generation, p.Resent = 1, true
	if _, err := e.Deliver(t.Context(), s, p); err != nil {
		t.Fatal(err)
	}
	want := []string{session.Pointer("label-1"), session.Pointer("comment-1"), session.Pointer("comment-1")}
	if got := lines(t, filepath.Join(s.Cwd, "got"), 3); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the agent was typed %q", got)
	}
	b, err := os.ReadFile(filepath.Join(s.Cwd, ".loopfleet/inbox/comment-1.md"))
	if err != nil || !strings.HasPrefix(string(b), "Note: ") || !strings.HasSuffix(string(b), "x\n") {
		t.Errorf("the file of a resent event: %q, %v", b, err)
	}
}

func TestDeliver_ReceiptNone(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	s := e.spawn(e.request("lines"))
	e.deliver(s, prompt("comment-1", "x\n"))
	e.deliver(s, prompt("comment-1", "x\n"))
	e.deliver(s, prompt("comment-2", "y\n"))
	want := []string{session.Pointer("label-1"), session.Pointer("comment-1"), session.Pointer("comment-2")}
	if got := lines(t, filepath.Join(s.Cwd, "got"), 3); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the agent was typed %q", got)
	}
	for id, want := range map[string]bool{"label-1": true, "comment-2": true, "comment-3": false} {
		if got, err := e.HasReceipt(s, id); got != want || err != nil {
			t.Errorf("HasReceipt(%s) = %v, %v", id, got, err)
		}
	}
}

// rule: RR-25
func TestDeliver_HostileTextNeverReachesTheTerminal(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	req := e.request("lines")
	s := e.spawn(req)
	big := strings.Repeat("0123456789abcdef\n", 64<<10/17)
	texts := []string{
		"!touch pwn", "/exit", "text\\", "see @men", "a\x1b[201~\r!touch pwn\r", "\x03\x03\x04\x15", // bug report 19
		"one\r\ntwo", big, "🙂 \u202egnp.exe\u202c \u200b", "--help me", "#{pid} #(touch pwn) $(touch pwn)", "; kill-server", "",
	}
	want := []string{session.Pointer("label-1")}
	for i, text := range texts {
		p := prompt(fmt.Sprintf("comment-%d", i), text)
		e.deliver(s, p)
		want = append(want, session.Pointer(p.EventID))
		if b, err := os.ReadFile(filepath.Join(s.Cwd, ".loopfleet/inbox", p.EventID+".md")); err != nil || string(b) != text {
			t.Errorf("file of %q: %d bytes, %v", text[:min(len(text), 20)], len(b), err)
		}
	}
	if got := lines(t, filepath.Join(s.Cwd, "got"), len(want)); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the terminal got %q", got)
	}
	if _, err := os.Stat(filepath.Join(s.Cwd, "pwn")); err == nil {
		t.Error("a text was executed")
	}
}

// bug report 15: the first Enter is swallowed.
func TestDeliver_PressesEnterAgainWhileTheLineStands(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	req := e.request("swallow")
	s := e.spawn(req)
	p := prompt("comment-1", "x\n")
	e.deliver(s, p)
	wantTranscript(t, s, req.Boot, p)
}

// bug report 15: what is not seen to be submitted is no success.
func TestDeliver_ReportsALineThatStays(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	s := e.spawn(e.request("deaf"))
	for range 2 {
		_, err := e.Deliver(t.Context(), s, prompt("comment-1", "x\n"))
		if _, ok := errors.AsType[*session.NotSubmittedError](err); !ok {
			t.Fatalf("error %v, want NotSubmittedError", err)
		}
	}
	// The second try did not paste it a second time.
	screen, err := e.Screen(t.Context(), s, 50)
	if err != nil || strings.Count(screen, session.Pointer("comment-1")) != 1 {
		t.Errorf("screen %v\n%s", err, screen)
	}
}

func TestDeliver_SendsOnlyEnterForALineThatStandsThere(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	req := e.request("demo")
	s := e.spawn(req)
	// What a crash between paste and Enter leaves behind.
	srv := tmuxtest.On(t, s.TmuxSocket)
	if err := srv.Paste(t.Context(), s.TmuxTarget, session.Pointer("comment-1")); err != nil {
		t.Fatal(err)
	}
	waitScreen(t, e, s, "> "+session.Pointer("comment-1"))
	p := prompt("comment-1", "x\n")
	e.deliver(s, p)
	wantTranscript(t, s, req.Boot, p)
}

func TestDeliver_ClearsALineThatWasGivenUp(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	req := e.request("demo")
	s := e.spawn(req)
	srv := tmuxtest.On(t, s.TmuxSocket)
	if err := srv.Paste(t.Context(), s.TmuxTarget, session.Pointer("comment-0")); err != nil {
		t.Fatal(err)
	}
	waitScreen(t, e, s, "> "+session.Pointer("comment-0"))
	p := prompt("comment-1", "x\n")
	e.deliver(s, p)
	wantTranscript(t, s, req.Boot, p)
}

func waitScreen(t *testing.T, e *env, s record.Session, want string) {
	t.Helper()
	waitfor.Value(t, fmt.Sprintf("%q on the screen", want), func() (string, bool) {
		out, err := e.Screen(t.Context(), s, 50)
		if err != nil {
			t.Fatal(err)
		}
		return out, strings.Contains(out, want)
	})
}

func TestDeliver_NeverAnswersADialog(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	s := e.spawn(e.request("dialog"))
	waitScreen(t, e, s, "1. Yes")
	got, err := e.Deliver(t.Context(), s, prompt("comment-1", "x\n"))
	if _, ok := errors.AsType[*session.NotLandedError](err); !ok || got.Submitted {
		t.Errorf("%+v, %v; want NotLandedError", got, err)
	}
	if _, err := os.Stat(filepath.Join(s.Cwd, "approved")); err == nil {
		t.Error("the dialog was answered")
	}
}

// bug report 18
func TestDeliver_LeavesCopyMode(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	req := e.request("demo")
	s := e.spawn(req)
	if err := tmuxtest.On(t, s.TmuxSocket).CopyMode(t.Context(), s.TmuxTarget); err != nil {
		t.Fatal(err)
	}
	p := prompt("comment-1", "x\n")
	e.deliver(s, p)
	wantTranscript(t, s, req.Boot, p)
}

// rule: RR-03
func TestDeliver_MissingMeansVanishedOrDead(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*env, record.Session){
		"dead":    func(e *env, s record.Session) { e.kill(s) },
		"session": func(e *env, s record.Session) { tmuxtest.Command(e.t, tmuxtest.On(e.t, s.TmuxSocket), "kill-session") },
		"server": func(e *env, s record.Session) {
			tmuxtest.Command(e.t, tmuxtest.On(e.t, s.TmuxSocket), "kill-server")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := setup(t, nil)
			s := e.spawn(e.request("demo"))
			end(e, s)
			waitfor.Until(t, "the end", func() bool { return e.inspect(s).Ended() })
			got, err := e.Deliver(t.Context(), s, prompt("comment-1", "x\n"))
			missing, ok := errors.AsType[*session.MissingError](err)
			if !ok || got.Submitted {
				t.Fatalf("%+v, %v; want MissingError", got, err)
			}
			if name == "dead" && missing.Status.String() != "signal 9 (killed)" {
				t.Errorf("status %s", missing.Status)
			}
		})
	}
}

// rule: RR-03
// rule: CL-15
func TestDeliver_ATmuxErrorIsNotAMissingSession(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	s := e.spawn(e.request("demo"))
	// The socket cannot be reached, and cannot be made anew; the agent lives.
	if err := os.Remove(s.TmuxSocket); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(s.TmuxSocket, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	st, err := e.Inspect(ctx, s)
	if err != nil || st.State != session.Unknown || st.Ended() {
		t.Errorf("status %s, %v; want unknown", st, err)
	}
	_, err = e.Deliver(ctx, s, prompt("comment-1", "x\n"))
	if _, ok := errors.AsType[*session.MissingError](err); ok || err == nil {
		t.Errorf("error %v, want one that is no MissingError", err)
	}
	server := serverProcess(s)
	t.Cleanup(func() { tmuxtest.KillProcess(context.WithoutCancel(t.Context()), t, server) })
}

func TestDeliver_AgentThatEndsWithoutReceipt(t *testing.T) {
	t.Parallel()
	e := setup(t, func(_ *session.Config, h map[string]config.Harness) {
		h["quits"] = sh(`read -r l; exit 5`, "file")
	})
	s := e.spawn(e.request("quits"))
	got, err := e.Deliver(t.Context(), s, prompt("comment-1", "x\n"))
	missing, ok := errors.AsType[*session.MissingError](err)
	if !ok || !strings.Contains(missing.Error(), "exit status 5") {
		t.Fatalf("%+v, %v; want MissingError with exit status 5", got, err)
	}
}

func TestDeliver_Fence(t *testing.T) {
	t.Parallel()
	left := session.MinLease - time.Millisecond
	e := setup(t, func(c *session.Config, _ map[string]config.Harness) { c.Fence = func() time.Duration { return left } })
	req := e.request("demo")
	s := e.spawn(req)
	_, err := e.Deliver(t.Context(), s, prompt("comment-1", "x\n"))
	if fe, ok := errors.AsType[*session.FenceError](err); !ok || fe.Left != left {
		t.Fatalf("error %v, want FenceError", err)
	}
	left = session.MinLease
	p := prompt("comment-1", "x\n")
	e.deliver(s, p)
	wantTranscript(t, s, req.Boot, p)
}

func TestDeliver_CancelledBeforeTypesNothing(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	req := e.request("demo")
	s := e.spawn(req)
	cause := errors.New("the item was closed")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if got, err := e.Deliver(ctx, s, prompt("comment-1", "x\n")); !errors.Is(err, cause) || got.Submitted {
		t.Errorf("%+v, %v; want the cause", got, err)
	}
	wantTranscript(t, s, req.Boot)
}

// bug report 23: parallel sends through four sessions never cross.
func TestDeliver_Parallel(t *testing.T) {
	t.Parallel()
	e := setup(t, nil)
	const sessions, sends = 4, 5
	var all []record.Session
	for i := range sessions {
		req := e.request("demo")
		req.Item = ref(t, fmt.Sprintf("octo/hello#%d", i+1))
		all = append(all, e.spawn(req))
	}
	var wg sync.WaitGroup
	for i, s := range all {
		for j := range sends {
			wg.Go(func() {
				p := prompt(fmt.Sprintf("comment-%d-%d", i, j), fmt.Sprintf("session %d send %d\n", i, j))
				if got, err := e.Deliver(t.Context(), s, p); err != nil || !got.Receipt {
					t.Errorf("%s: %+v, %v", p.EventID, got, err)
				}
			})
		}
	}
	wg.Wait()
	for i, s := range all {
		got := map[string]string{}
		for _, en := range transcript(t, s) {
			got[en.EventID] += en.Text
		}
		if len(got) != sends+1 {
			t.Errorf("session %d received %d events: %v", i, len(got), got)
		}
		for j := range sends {
			if text := got[fmt.Sprintf("comment-%d-%d", i, j)]; text != fmt.Sprintf("session %d send %d\n", i, j) {
				t.Errorf("session %d event %d: %q", i, j, text)
			}
		}
	}
}
