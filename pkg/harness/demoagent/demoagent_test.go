package demoagent_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loopfleet/pkg/harness/demoagent"
	"loopfleet/pkg/testutil/waitfor"
)

const line = "Loopfleet event comment-x: read .loopfleet/inbox/comment-x.md and act on it."

// run feeds typed to an agent, one read per byte, and returns what it printed.
func run(t *testing.T, session, dir, typed string, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	err := demoagent.Run(t.Context(), demoagent.Config{
		Args: args, Environ: []string{"LOOPFLEET_SESSION_DIR=" + session}, Dir: dir, Stdout: &out,
		// Prompts wait in a queue while input is read; Ctrl-D ends it only
		// when they are taken, as the two race otherwise.
		Stdin: &slow{data: []byte(typed), done: func() bool {
			return strings.Count(transcriptText(t, session), "\n") >= strings.Count(typed, "\r")+len(args)
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// slow is a terminal at which a person types, and leaves when done.
type slow struct {
	data []byte
	done func() bool
}

func (s *slow) Read(b []byte) (int, error) {
	if len(s.data) == 0 {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for !s.done() {
			<-tick.C
		}
		return 0, io.EOF
	}
	b[0] = s.data[0]
	s.data = s.data[1:]
	return 1, nil
}

func transcriptText(t *testing.T, session string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(session, demoagent.TranscriptFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	return string(b)
}

func transcript(t *testing.T, session string) []demoagent.Entry {
	t.Helper()
	var out []demoagent.Entry
	for l := range strings.Lines(transcriptText(t, session)) {
		var e demoagent.Entry
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

func inbox(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, ".loopfleet/inbox"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".loopfleet/inbox/comment-x.md"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func receipts(t *testing.T, session string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(session, demoagent.ReceiptsFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

func TestRun_BootPromptAndTypedPrompt(t *testing.T) {
	t.Parallel()
	session := t.TempDir()
	dir := inbox(t, "hello\x1b[31m\u202e world\n")
	out := run(t, session, dir, line+"\r", line)
	if got := receipts(t, session); got != "comment-x\ncomment-x\n" {
		t.Errorf("receipts %q", got)
	}
	es := transcript(t, session)
	if len(es) != 2 || !es[0].Boot || es[1].Boot || es[0].Text != "hello\x1b[31m\u202e world\n" {
		t.Errorf("transcript %+v", es)
	}
	if !strings.Contains(out, `hello\x1b[31m\u202e world`) || !strings.Contains(out, "done comment-x") {
		t.Errorf("printed %q", out)
	}
	if strings.Contains(out, "\x1b[31m") {
		t.Error("the text reached the terminal unescaped")
	}
}

func TestRun_Input(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, typed, want string }{
		{"plain", "hi\r", "hi"},
		{"paste", "\x1b[200~hi\x1b[201~\r", "hi"},
		{"line feed", "hi\n\r", "hi"},
		{"crlf", "hi\r\n", "hi"},
		{"paste of two lines", "\x1b[200~one\ntwo\x1b[201~\r", "one\ntwo"}, // bug report 17
		{"backspace", "hé\x7fi\r", "hi"},
		{"erase", "junk\x15hi\r", "hi"},
		{"ctrl-c clears", "junk\x03hi\r", "hi"},
		{"arrows", "h\x1b[D\x1b[1;5Ci\x1bOP\r", "hi"},
		{"pasted control bytes", "\x1b[200~h\x03\x15i\x1b[201~\r", "hi"},
		{"nearly a pointer", "Loopfleet event a: read .loopfleet/inbox/b.md and act on it.\r", "Loopfleet event a: read .loopfleet/inbox/b.md and act on it."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			session := t.TempDir()
			out := run(t, session, t.TempDir(), tc.typed)
			es := transcript(t, session)
			if len(es) != 1 || es[0].Text != tc.want || es[0].EventID != "" {
				t.Errorf("transcript %+v, want one %q", es, tc.want)
			}
			if !strings.Contains(out, "not a Loopfleet prompt") || receipts(t, session) != "" {
				t.Errorf("printed %q, receipts %q", out, receipts(t, session))
			}
		})
	}
}

func TestRun_MissingFileGivesNoReceipt(t *testing.T) {
	t.Parallel()
	session := t.TempDir()
	out := run(t, session, t.TempDir(), line+"\r")
	if es := transcript(t, session); len(es) != 1 || es[0].Error == "" {
		t.Errorf("transcript %+v", es)
	}
	if receipts(t, session) != "" || !strings.Contains(out, "cannot read it") {
		t.Errorf("receipts %q, printed %q", receipts(t, session), out)
	}
}

// With --ask only a key on its own answers; what is pasted is lost.
func TestRun_Ask(t *testing.T) {
	t.Parallel()
	const pasted = "\x1b[200~" + line + "\x1b[201~"
	for _, tc := range []struct{ name, typed, want string }{
		{"enter", "\r", demoagent.Approved},
		{"yes", "y", demoagent.Approved},
		{"no", "n", demoagent.Denied},
		{"ctrl-c", "\x03", demoagent.Denied},
		{"a paste is lost", pasted + "n", demoagent.Denied},
		{"a paste with a line feed is lost", "\x1b[200~y\r\n\x1b[201~n", demoagent.Denied},
		{"other keys are lost", "\x1b[Aabc \x15n", demoagent.Denied},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			session := t.TempDir()
			keys := make(chan []byte)
			var out bytes.Buffer
			done := make(chan error)
			go func() {
				done <- demoagent.Run(t.Context(), demoagent.Config{
					Args: []string{"--ask", line}, Environ: []string{"LOOPFLEET_SESSION_DIR=" + session},
					Dir: inbox(t, "hello\n"), Stdout: &out, Stdin: &typist{keys: keys},
				})
			}()
			// The prompt is taken, and then it asks.
			waitfor.Until(t, "the receipt", func() bool { return receipts(t, session) != "" })
			keys <- []byte(tc.typed)
			waitfor.Until(t, "the answer", func() bool { return len(transcript(t, session)) == 2 })
			keys <- []byte("next\r")
			waitfor.Until(t, "the next line", func() bool { return len(transcript(t, session)) == 3 })
			close(keys)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			es := transcript(t, session)
			if es[1].Answer != tc.want || es[1].EventID != "" || es[2].Text != "next" {
				t.Errorf("transcript %+v, want the answer %s", es, tc.want)
			}
			if !strings.Contains(out.String(), demoagent.Question) || !strings.Contains(out.String(), "done comment-x") {
				t.Errorf("printed %q", out.String())
			}
		})
	}
}

// typist is a terminal that the test types at.
type typist struct{ keys chan []byte }

func (s *typist) Read(b []byte) (int, error) {
	k, ok := <-s.keys
	if !ok {
		return 0, io.EOF
	}
	return copy(b, k), nil
}

func TestRun_Usage(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]demoagent.Config{
		"flag":       {Args: []string{"--nope"}, Environ: []string{"LOOPFLEET_SESSION_DIR=/x"}},
		"two":        {Args: []string{"a", "b"}, Environ: []string{"LOOPFLEET_SESSION_DIR=/x"}},
		"no session": {},
	} {
		cfg.Stdin, cfg.Stdout = strings.NewReader(""), io.Discard
		if err := demoagent.Run(t.Context(), cfg); !errors.Is(err, demoagent.ErrUsage) {
			t.Errorf("%s: error %v, want ErrUsage", name, err)
		}
	}
}
