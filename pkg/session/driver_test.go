package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"

	"loopfleet/pkg/config"
	"loopfleet/pkg/harness"
	"loopfleet/pkg/harness/demoagent"
	"loopfleet/pkg/record"
	"loopfleet/pkg/session"
	"loopfleet/pkg/testutil/faulttest"
	"loopfleet/pkg/testutil/tmuxtest"
	"loopfleet/pkg/testutil/waitfor"
	"loopfleet/pkg/tmux"
	"loopfleet/pkg/workitem"
)

// TestMain lets the test binary be the agents, too: they run as programs of
// their own in real terminals. Their argument is no flag, so no test runs.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "demo-agent", "ask-agent":
			agent(os.Stdin)
			return
		case "blind-agent":
			agent(&blind{file: os.Stdin, silence: 3 * time.Second})
			return
		case "stuck-agent":
			agent(&stuck{file: os.Stdin})
			return
		case "swallow-agent":
			agent(&swallow{file: os.Stdin, enters: 1})
			return
		case "deaf-agent":
			agent(&swallow{file: os.Stdin, enters: 1 << 30})
			return
		case "dialog-agent":
			dialog()
			return
		}
	}
	faulttest.Lag() // everything holds when what follows a side effect is late
	m.Run()
}

func agent(stdin io.Reader) {
	if _, ok := stdin.(*os.File); !ok {
		if _, err := term.MakeRaw(int(os.Stdin.Fd())); err != nil {
			panic(err)
		}
	}
	cfg := demoagent.Config{Args: os.Args[2:], Environ: os.Environ(), Stdin: stdin, Stdout: os.Stdout}
	if err := demoagent.Run(context.Background(), cfg); err != nil {
		panic(err)
	}
}

// swallow is a terminal whose program misses the first Enters that come alone,
// as real ones do right after a paste.
type swallow struct {
	file   *os.File
	enters int
}

func (s *swallow) Read(b []byte) (int, error) {
	for {
		n, err := s.file.Read(b)
		if err == nil && n == 1 && b[0] == '\r' && s.enters > 0 {
			s.enters--
			continue
		}
		return n, err
	}
}

// blind is a terminal whose program reads what is typed at once and, the first
// time, shows nothing of it for a while.
type blind struct {
	file    *os.File
	silence time.Duration
}

func (b *blind) Read(p []byte) (int, error) {
	n, err := b.file.Read(p)
	t := time.NewTimer(b.silence)
	defer t.Stop()
	<-t.C
	b.silence = 0
	return n, err
}

// stuck is a terminal whose program does not read it until the file "wake" is in
// its directory.
type stuck struct {
	file  *os.File
	awake bool
}

func (s *stuck) Read(p []byte) (int, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !s.awake {
		_, err := os.Stat("wake")
		s.awake = err == nil
		<-tick.C
	}
	return s.file.Read(p)
}

// dialog is an agent that asks before it goes on: text is swallowed, and Enter
// approves.
func dialog() {
	if _, err := term.MakeRaw(int(os.Stdin.Fd())); err != nil {
		panic(err)
	}
	_, _ = io.WriteString(os.Stdout, "Run rm -rf? \r\n> 1. Yes\r\n  2. No\r\n")
	b := make([]byte, 4096)
	for {
		n, err := os.Stdin.Read(b)
		if err != nil {
			return
		}
		if strings.Contains(string(b[:n]), "\r") {
			_ = os.WriteFile("approved", nil, 0o600)
		}
	}
}

// env is a worker's world for one test.
type env struct {
	t    *testing.T
	dir  string
	cfg  session.Config
	item workitem.Ref
	*session.Driver
}

// sh is a harness that runs a shell script; the boot prompt is its $1.
func sh(script, receipt string) config.Harness {
	return config.Harness{Command: []string{"/bin/sh", "-c", script, "sh"}, Receipt: receipt}
}

func setup(t *testing.T, edit func(*session.Config, map[string]config.Harness)) *env {
	t.Helper()
	dir := tmuxtest.Dir(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := session.Config{
		Worker: "w1", Dir: filepath.Join(dir, "w", "w1"), WorkDir: filepath.Join(dir, "work"),
		ReceiptTimeout: 20 * time.Second, ProbeWindow: 500 * time.Millisecond,
		Tmux: config.Tmux{KeepSessionOnClose: true, KillHarnessOnClose: true, HarnessKillGraceSeconds: 2},
		Log:  zerolog.New(zerolog.NewTestWriter(t)),
		// An agent built with the race detector would take a second to end.
		Environ: append(os.Environ(), "GORACE=atexit_sleep_ms=0"),
	}
	harnesses := map[string]config.Harness{
		"demo": {Command: []string{self, "demo-agent"}, Receipt: "file"},
		// Reads lines as a shell script does, and never gives receipts.
		"lines": sh(`echo "$1" >> got; while read -r l; do echo "$l" >> got; done`, "none"),
	}
	harnesses["asks"] = config.Harness{Command: []string{self, "demo-agent", "--ask"}, Receipt: "file"}
	// The same, of which Loopfleet knows nothing.
	harnesses["asks-unknown"] = config.Harness{Command: []string{self, "ask-agent", "--ask"}, Receipt: "file"}
	for _, name := range []string{"swallow", "deaf", "dialog", "blind", "stuck"} {
		harnesses[name] = config.Harness{Command: []string{self, name + "-agent"}, Receipt: "file"}
	}
	harnesses["dialog"] = config.Harness{Command: []string{self, "dialog-agent"}, Receipt: "none"}
	if edit != nil {
		edit(&cfg, harnesses)
	}
	e := &env{t: t, dir: dir, cfg: cfg, item: ref(t, "octo/hello#42")}
	e.Driver = e.driver(harnesses)
	return e
}

// driver is a worker that starts, with the same disk.
func (e *env) driver(harnesses map[string]config.Harness) *session.Driver {
	e.t.Helper()
	set, err := harness.NewSet(harnesses, "")
	if err != nil {
		e.t.Fatal(err)
	}
	d, err := session.New(e.cfg, set)
	if err != nil {
		e.t.Fatal(err)
	}
	return d
}

func ref(t *testing.T, s string) workitem.Ref {
	t.Helper()
	r, err := workitem.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func prompt(id, text string) session.Prompt { return session.Prompt{EventID: id, Text: text} }

func (e *env) request(name string) session.SpawnRequest {
	return session.SpawnRequest{Item: e.item, Incarnation: 1, Harness: name, Boot: prompt("label-1", "boot text\n")}
}

// spawn starts the item's session and sees to it that nothing of it outlives the
// test.
func (e *env) spawn(req session.SpawnRequest) record.Session {
	e.t.Helper()
	e.t.Cleanup(func() { e.clean(req.Item) })
	res, err := e.Spawn(e.t.Context(), req)
	if err != nil {
		e.t.Fatal(err)
	}
	switch req.Harness {
	case "demo", "swallow", "deaf", "blind", "stuck", "asks", "asks-unknown":
		// On a busy machine the probe window may be over before the program
		// has begun.
		if got, err := e.AwaitReceipt(e.t.Context(), res.Session, req.Boot.EventID); !got || err != nil {
			e.t.Fatalf("boot receipt: %v, %v", got, err)
		}
	}
	return res.Session
}

// clean ends every process that carries the item's session directory.
func (e *env) clean(item workitem.Ref) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.t.Context()), 20*time.Second)
	defer cancel()
	left, err := tmux.Tree(tmux.Process{}, "LOOPFLEET_SESSION_DIR="+e.sessionDir(item))
	if err != nil {
		e.t.Error(err)
	}
	for _, p := range left {
		tmuxtest.KillProcess(ctx, e.t, p)
	}
}

func (e *env) sessionDir(item workitem.Ref) string {
	return filepath.Join(e.cfg.Dir, "sessions", item.DirName())
}

// deliver delivers and wants the receipt.
func (e *env) deliver(s record.Session, p session.Prompt) {
	e.t.Helper()
	got, err := e.Deliver(e.t.Context(), s, p)
	if err != nil || !got.Submitted || !got.Receipt {
		screen, _ := e.Screen(context.WithoutCancel(e.t.Context()), s, 50)
		e.t.Fatalf("deliver %s: %+v, %v\n%s", p.EventID, got, err, screen)
	}
}

// transcript is what a demo agent received.
func transcript(t *testing.T, s record.Session) []demoagent.Entry {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.Dir, demoagent.TranscriptFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var out []demoagent.Entry
	for line := range strings.Lines(string(b)) {
		var e demoagent.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// wantTranscript compares what the agent received, in order and once each.
func wantTranscript(t *testing.T, s record.Session, want ...session.Prompt) {
	t.Helper()
	var got, exp []string
	for _, e := range transcript(t, s) {
		got = append(got, fmt.Sprintf("%s:%q%s", e.EventID, e.Text, e.Answer))
	}
	for _, p := range want {
		exp = append(exp, fmt.Sprintf("%s:%q", p.EventID, p.Text))
	}
	if strings.Join(got, "\n") != strings.Join(exp, "\n") {
		t.Errorf("the agent received\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(exp, "\n"))
	}
}

// lines waits until a file has n lines.
func lines(t *testing.T, path string, n int) []string {
	t.Helper()
	return waitfor.Value(t, fmt.Sprintf("%d lines in %s", n, path), func() ([]string, bool) {
		b, _ := os.ReadFile(path) // may not be there yet
		l := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
		return l, strings.HasSuffix(string(b), "\n") && len(l) >= n
	})
}

func (e *env) inspect(s record.Session) session.Status {
	e.t.Helper()
	st, err := e.Inspect(e.t.Context(), s)
	if err != nil {
		e.t.Fatal(err)
	}
	return st
}

// kill ends the agent from outside and waits until tmux knows.
func (e *env) kill(s record.Session) {
	e.t.Helper()
	tmuxtest.KillProcess(e.t.Context(), e.t, tmux.Process{PID: s.PanePID, Start: s.PaneStart})
	waitfor.Until(e.t, "the agent to be dead", func() bool { return e.inspect(s).Ended() })
}
