package harness

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

const claudeName = "claude"

// Claude is Claude Code in its terminal interface. Its argv is proven by
// measurement (version 2.1); receipts by its hooks, its dialogs and its state
// are not read yet, so a submitted prompt is done.
type Claude struct {
	args []string
	find finder
}

// Name is "claude".
func (c *Claude) Name() string { return claudeName }

// Find returns the path of claude.
func (c *Claude) Find() (string, error) {
	return c.find.find(claudeName, "install Claude Code and log in once: npm install -g @anthropic-ai/claude-code")
}

// Start begins a conversation under a new id, or goes on with the recorded one.
// A recorded id that is no UUID is not handed to the program: a new conversation
// starts.
func (c *Claude) Start(in StartInput) (Launch, error) {
	path, err := c.Find()
	if err != nil {
		return Launch{}, err
	}
	flag, id, resumed := "--session-id", uuid.NewString(), false
	if old, err := uuid.Parse(in.Resume); err == nil {
		flag, id, resumed = "--resume", old.String(), true
	}
	argv := slices.Concat([]string{path, flag, id}, c.args, []string{in.Prompt})
	return Launch{Argv: argv, Env: environment(in), SessionID: id, Resumed: resumed}, nil
}

// CanResume is true.
func (c *Claude) CanResume() bool { return true }

// Receipt is none, until its hooks are read.
func (c *Claude) Receipt() ReceiptMode { return ReceiptNone }

// Received is always false.
func (c *Claude) Received(context.Context, View, string) (bool, error) { return false, nil }

// State cannot be told yet.
func (c *Claude) State(context.Context, View) (State, error) { return Unknown, nil }

// Composer is what follows the last prompt mark.
func (c *Claude) Composer(s Screen) (string, bool) {
	for i, row := range slices.Backward(s.Rows) {
		text := Squash(row)
		if !strings.HasPrefix(text, "❯") && !strings.HasPrefix(text, ">") {
			continue
		}
		// A long line is wrapped; the frame below it ends it.
		for _, next := range s.Rows[i+1:] {
			t := Squash(next)
			if t == "" {
				break
			}
			text += t
		}
		return text, true
	}
	return "", false
}

const (
	// claudeMark begins the composer; with an ordinary space, it is a prompt
	// that was submitted. In the shell mode, which a person may have left open,
	// it is an exclamation mark: Enter would run a prompt as a command.
	claudeMark  = "❯\u00a0"
	claudeShell = "!\u00a0"
	claudeRule  = "─"
)

// Draft is what stands between the two rules of the composer (version 2.1). A
// suggestion is shown there as well, but behind the cursor; so what begins at the
// cursor is none of a person's typing, or is soon seen not to give way to ours.
func (c *Claude) Draft(s Screen) (string, bool) {
	rule := func(i int) bool { return i >= 0 && i < len(s.Rows) && strings.HasPrefix(s.Rows[i], claudeRule) }
	for i, row := range slices.Backward(s.Rows) {
		text, prompt := strings.CutPrefix(row, claudeMark)
		shell := false
		if !prompt {
			text, shell = strings.CutPrefix(row, claudeShell)
		}
		if !prompt && !shell || !rule(i-1) {
			continue
		}
		end := i + 1
		for end < len(s.Rows) && !rule(end) {
			text += s.Rows[end]
			end++
		}
		switch draft := Squash(text); {
		case !rule(end) || s.CursorY < i || s.CursorY >= end:
			return "", false // something else has the keys
		case shell:
			return "!" + draft, true
		case s.CursorY == i && s.CursorX <= len([]rune(claudeMark)):
			return "", true
		case draft == "":
			return " ", true
		default:
			return draft, true
		}
	}
	return "", false
}

// SubmitDelay is what it was measured with.
func (c *Claude) SubmitDelay() time.Duration { return 150 * time.Millisecond }
