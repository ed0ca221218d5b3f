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
	"syscall"
	"time"
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

// maxReceipts bounds how much of the end of a receipts file is read: the file is
// the agent's to write.
const maxReceipts = 4 << 20

// Command is any program as a harness.
type Command struct {
	name    string
	argv    []string
	receipt ReceiptMode
	find    finder
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

// State cannot be told.
func (c *Command) State(context.Context, View) (State, error) { return Unknown, nil }

// Composer is what ends at the cursor.
func (c *Command) Composer(s Screen) (string, bool) { return s.Typed(), true }

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
	b, err := io.ReadAll(io.NewSectionReader(f, max(0, fi.Size()-maxReceipts), maxReceipts))
	if err != nil {
		return false, fmt.Errorf("read receipts %s: %w", path, err)
	}
	for line := range bytes.Lines(b) {
		// A line without its end may still be being written.
		if id, ok := bytes.CutSuffix(line, []byte("\n")); ok && string(bytes.TrimSpace(id)) == eventID {
			return true, nil
		}
	}
	return false, nil
}
