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

// Composer is what follows the last prompt mark: the terminal's own cursor is
// not where the text is.
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

// SubmitDelay is what it was measured with.
func (c *Claude) SubmitDelay() time.Duration { return 150 * time.Millisecond }
