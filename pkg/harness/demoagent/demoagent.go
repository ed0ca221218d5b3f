package demoagent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"loopfleet/pkg/tmux"
)

// Files in the session directory.
const (
	// ReceiptsFile gets the id of every prompt that was taken, one per line.
	ReceiptsFile = "receipts"
	// TranscriptFile gets everything that was received, in order, as one
	// JSON object per line: an Entry.
	TranscriptFile = "transcript"
)

const envSessionDir = "LOOPFLEET_SESSION_DIR"

// Entry is one line of the transcript.
type Entry struct {
	// EventID is the prompt's event; empty for other input.
	EventID string `json:"event_id,omitempty"`
	// Text is what the prompt's file held, or the line that is no prompt.
	Text string `json:"text"`
	// Boot says that it came as the boot prompt.
	Boot bool `json:"boot,omitempty"`
	// Answer is what a person, or a stray key, has answered to the Question:
	// Approved or Denied.
	Answer string `json:"answer,omitempty"`
	// Error is why the file could not be read; no receipt was given.
	Error string `json:"error,omitempty"`
	PID   int    `json:"pid"`
	// At is when it was taken.
	At time.Time `json:"at"`
}

// Question is what it asks with --ask: before it works on a prompt, and when it
// gets USR1. What is pasted while it stands is lost, and
// Enter approves: so do the dialogs of real agents.
const Question = "Run a command for this prompt? [Y/n]"

// Answers to the Question.
const (
	Approved = "approved"
	Denied   = "denied"
)

// Config is the world of one run.
type Config struct {
	// Args is the command line behind the command's own name: flags, and the
	// boot prompt as the last argument, if any.
	Args []string
	// Environ is the environment, as os.Environ gives it.
	Environ []string
	// Stdin is read as a terminal is: when it is one, it is put into raw
	// mode until the end.
	Stdin  io.Reader
	Stdout io.Writer
	// Dir is where the agent works; empty means the current directory.
	Dir string
}

// ErrUsage is wrapped by errors about the command line.
var ErrUsage = errors.New("usage: loopfleet demo-agent [--ask] [--work DURATION] [BOOT PROMPT]")

// Run is the agent. It ends without an error on TERM, HUP, the end of ctx or of
// Stdin, and Ctrl-C or Ctrl-D on an empty line. A goroutine that reads Stdin may
// be left behind, so call it once per process.
func Run(ctx context.Context, cfg Config) error {
	a := &agent{cfg: cfg, dir: cfg.Dir, prompts: make(chan prompt, maxQueue)}
	if a.dir == "" {
		a.dir = "."
	}
	for _, e := range cfg.Environ {
		if v, ok := strings.CutPrefix(e, envSessionDir+"="); ok {
			a.sessionDir = v
		}
	}
	flags := flag.NewFlagSet("demo-agent", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&a.ask, "ask", false, "ask before it works on a prompt")
	flags.DurationVar(&a.work, "work", 0, "how long it works on each prompt")
	if err := flags.Parse(cfg.Args); err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if flags.NArg() > 1 {
		return fmt.Errorf("%w: %d arguments, want one prompt", ErrUsage, flags.NArg())
	}
	if a.sessionDir == "" {
		return fmt.Errorf("%w: %s is not set; Loopfleet sets it for the programs it starts", ErrUsage, envSessionDir)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if f, ok := cfg.Stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		old, err := term.MakeRaw(int(f.Fd()))
		if err != nil {
			return fmt.Errorf("put the terminal into raw mode: %w", err)
		}
		defer func() { _ = term.Restore(int(f.Fd()), old) }()
	}
	return a.run(ctx, flags.Arg(0))
}

const (
	// maxQueue bounds the prompts that wait while the agent works.
	maxQueue   = 1000
	showPaste  = "\x1b[?2004h"
	hidePaste  = "\x1b[?2004l"
	eraseLine  = "\r\x1b[2K"
	promptMark = "> "
)

var pointer = regexp.MustCompile(`^Loopfleet event ([a-z0-9-]{1,40}): read \.loopfleet/inbox/([a-z0-9-]{1,40})\.md and act on it\.$`)

type prompt struct {
	line string
	boot bool
}

type agent struct {
	cfg        Config
	dir        string
	sessionDir string
	work       time.Duration
	ask        bool
	// asking says that the Question stands instead of the composer.
	asking  bool
	prompts chan prompt
	editor  editor
}

// run is the only goroutine that prints. Work is a wait, so the composer stays
// alive meanwhile, as that of a real agent does.
func (a *agent) run(ctx context.Context, boot string) error {
	_, _ = io.WriteString(a.cfg.Stdout, showPaste)
	a.print("Loopfleet demo agent: it reads what it is sent and does nothing else.\n")
	defer func() { _, _ = io.WriteString(a.cfg.Stdout, "\r\n"+hidePaste) }()
	if boot != "" {
		a.prompts <- prompt{line: boot, boot: true}
	}
	input := make(chan []byte)
	go read(ctx, a.cfg.Stdin, input)
	var working <-chan time.Time
	var current string
	finish := func() {
		a.print("done " + current + "\n")
		working, current = nil, ""
	}
	ask := make(chan os.Signal, 1)
	if a.ask {
		signal.Notify(ask, syscall.SIGUSR1)
		defer signal.Stop(ask)
	}
	begin := func() {
		if a.work <= 0 {
			finish()
			return
		}
		working = time.After(a.work)
	}
	for {
		prompts := a.prompts
		if working != nil || a.asking {
			prompts = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case b, ok := <-input:
			if !ok {
				return nil
			}
			if a.asking {
				if answered, err := a.answered(b); err != nil {
					return err
				} else if answered && current != "" && working == nil {
					begin()
				}
				continue
			}
			if a.typed(b) {
				return nil
			}
		case p := <-prompts:
			id, err := a.take(p)
			if err != nil {
				return err
			}
			if current = id; id == "" {
				continue
			}
			if a.ask {
				a.asking = true
				a.redraw()
				continue
			}
			begin()
		case <-ask:
			a.asking = true
			a.redraw()
		case <-working:
			finish()
		}
	}
}

func read(ctx context.Context, r io.Reader, out chan<- []byte) {
	defer close(out)
	for {
		b := make([]byte, 4096)
		n, err := r.Read(b)
		if n > 0 {
			select {
			case out <- b[:n]:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// typed takes input and reports whether it asks to quit.
func (a *agent) typed(b []byte) bool {
	for _, c := range b {
		switch a.editor.feed(c) {
		case quit:
			return true
		case submit:
			line := a.editor.submitted
			if strings.TrimSpace(line) == "" {
				continue
			}
			select {
			case a.prompts <- prompt{line: line}:
			default:
				a.print("too many prompts wait; this one is dropped\n")
			}
		case none, changed:
		}
	}
	a.redraw()
	return false
}

// answered takes input while the Question stands, and reports whether it was
// answered. Whatever else was typed or pasted is lost.
func (a *agent) answered(b []byte) (bool, error) {
	for _, c := range b {
		if !a.editor.key(c) {
			continue
		}
		var answer string
		switch c {
		case '\r', '\n', 'y', 'Y':
			answer = Approved
		case 'n', 'N', 0x03: // Ctrl-C
			answer = Denied
		default:
			continue
		}
		a.asking = false
		a.print(answer + "\n")
		return true, a.record(Entry{Text: Question, Answer: answer, PID: os.Getpid(), At: time.Now().UTC()})
	}
	return false, nil
}

// take acts on one prompt and returns its event id, or "" when there is nothing
// to work on.
func (a *agent) take(p prompt) (string, error) {
	a.print("you: " + p.line + "\n")
	e := Entry{Text: p.line, Boot: p.boot, PID: os.Getpid(), At: time.Now().UTC()}
	m := pointer.FindStringSubmatch(p.line)
	if m == nil || m[1] != m[2] {
		a.print("not a Loopfleet prompt\n")
		return "", a.record(e)
	}
	e.EventID = m[1]
	text, err := os.ReadFile(filepath.Join(a.dir, ".loopfleet", "inbox", m[1]+".md"))
	if err != nil {
		e.Text, e.Error = "", err.Error()
		a.print("cannot read it: " + err.Error() + "\n")
		return "", a.record(e)
	}
	e.Text = string(text)
	a.print(strings.TrimRight(e.Text, "\n") + "\n")
	if err := a.record(e); err != nil {
		return "", err
	}
	return m[1], a.append(ReceiptsFile, []byte(m[1]+"\n"))
}

func (a *agent) record(e Entry) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return fmt.Errorf("record %s: %w", e.EventID, err)
	}
	return a.append(TranscriptFile, b.Bytes())
}

// append adds b in one write, so that a reader sees all of it or nothing.
func (a *agent) append(name string, b []byte) error {
	path := filepath.Join(a.sessionDir, name)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600) //nolint:gosec // the directory is Loopfleet's to choose
	if err != nil {
		return fmt.Errorf("append to %s: %w", path, err)
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("append to %s: %w", path, err)
	}
	return nil
}

// print writes text above the composer. The text is a stranger's.
func (a *agent) print(text string) {
	out := strings.ReplaceAll(tmux.Printable(text), "\n", "\r\n")
	_, _ = io.WriteString(a.cfg.Stdout, eraseLine+out)
	a.redraw()
}

func (a *agent) redraw() {
	if a.asking {
		_, _ = io.WriteString(a.cfg.Stdout, eraseLine+Question+" ")
		return
	}
	_, _ = io.WriteString(a.cfg.Stdout, eraseLine+promptMark+tmux.Printable(a.editor.shown()))
}
