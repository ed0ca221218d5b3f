package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"loopfleet/pkg/harness/demoagent"
	"loopfleet/pkg/tmux"
)

// ReceiptsFile is the file in the session directory to which a program with
// ReceiptFile appends the event ids it has taken.
const ReceiptsFile = "receipts"

// Names of the variables that a program is started with.
const (
	EnvSessionDir  = "LOOPFLEET_SESSION_DIR"
	EnvWorkItem    = "LOOPFLEET_WORK_ITEM"
	EnvIncarnation = "LOOPFLEET_INCARNATION"
)

// maxReceipts bounds how much of the end of a receipts file is read, in bytes:
// the file is the agent's to write. It is the newest 25,000 receipts or more.
const maxReceipts = 1 << 20

// Command is any program as a harness.
type Command struct {
	name    string
	argv    []string
	receipt ReceiptMode
	// demo says that it is our own demo agent, whose screen is known.
	demo bool
	find finder
}

// Name is the name in the configuration.
func (c *Command) Name() string { return c.name }

// Find returns the program's absolute path.
func (c *Command) Find() (string, error) {
	return c.find.find(c.argv[0], fmt.Sprintf("install it, or correct harnesses.%s.command", c.name))
}

// Start puts the boot prompt behind the configured arguments.
func (c *Command) Start(in StartInput) (Launch, error) {
	path, err := c.Find()
	if err != nil {
		return Launch{}, err
	}
	argv := append([]string{path}, c.argv[1:]...)
	return Launch{Argv: append(argv, in.Prompt), Env: environment(in)}, nil
}

// environment is what every harness is told.
func environment(in StartInput) []string {
	return []string{
		EnvSessionDir + "=" + in.SessionDir,
		EnvWorkItem + "=" + in.Item,
		EnvIncarnation + "=" + strconv.Itoa(in.Incarnation),
	}
}

// CanResume is false: a program's conversation is its own affair.
func (c *Command) CanResume() bool { return false }

// Receipt is what the configuration says.
func (c *Command) Receipt() ReceiptMode { return c.receipt }

// Received looks into the receipts file.
func (c *Command) Received(_ context.Context, v View, eventID string) (bool, error) {
	if c.receipt != ReceiptFile {
		return false, nil
	}
	return fileReceipt(v.SessionDir, eventID)
}

// State cannot be told, but of the demo agent.
func (c *Command) State(_ context.Context, v View) (State, error) {
	if c.demo && strings.HasSuffix(v.Screen.Typed(), Squash(demoagent.Question)) {
		return Dialog, nil
	}
	return Unknown, nil
}

// Composer is what ends at the cursor.
func (c *Command) Composer(s Screen) (string, bool) { return s.Typed(), true }

// Draft can be told of the demo agent alone: what stands behind its mark, up to
// the cursor.
func (c *Command) Draft(s Screen) (string, bool) {
	if !c.demo || s.CursorY < 0 || s.CursorY >= len(s.Rows) {
		return "", false
	}
	const mark = ">"
	// A long draft is wrapped: rows that are full, were they of wide characters.
	i := s.CursorY
	for i > 0 && !strings.HasPrefix(s.Rows[i], mark) && len([]rune(s.Rows[i-1])) >= tmux.Columns/2 {
		i--
	}
	text, ok := strings.CutPrefix(s.Rows[i], mark)
	if !ok {
		return "", false
	}
	draft := Squash(text + strings.Join(s.Rows[i+1:s.CursorY+1], ""))
	if draft == "" && (i < s.CursorY || s.CursorX > len(mark)+1) {
		return " ", true
	}
	return draft, true
}

// SubmitDelay is short: a program that reads lines needs none, and one that
// guesses pastes by their speed needs some.
func (c *Command) SubmitDelay() time.Duration { return 20 * time.Millisecond }

// fileReceipt looks for a whole line with the event id. The file belongs to the
// agent: a link, a pipe or a device in its place is an error, never followed.
func fileReceipt(dir, eventID string) (bool, error) {
	path := filepath.Join(dir, ReceiptsFile)
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) //nolint:gosec // the directory is Loopfleet's own
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read receipts %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	if err != nil {
		return false, fmt.Errorf("read receipts %s: %w", path, err)
	}
	if !fi.Mode().IsRegular() {
		return false, fmt.Errorf("read receipts %s: it is no regular file (%s); remove it", path, fi.Mode().Type())
	}
	from := max(0, fi.Size()-maxReceipts)
	b, err := io.ReadAll(io.NewSectionReader(f, from, maxReceipts))
	if err != nil {
		return false, fmt.Errorf("read receipts %s: %w", path, err)
	}
	if from > 0 {
		// It begins in the middle of a line, whose end is no receipt.
		_, b, _ = bytes.Cut(b, []byte("\n"))
	}
	for line := range bytes.Lines(b) {
		// A line without its end may still be being written.
		if id, ok := bytes.CutSuffix(line, []byte("\n")); ok && string(bytes.TrimSpace(id)) == eventID {
			return true, nil
		}
	}
	return false, nil
}
