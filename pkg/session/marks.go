package session

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"loopfleet/pkg/logkey"
	"loopfleet/pkg/record"
)

// What was typed into which process is remembered on this machine, in the
// session's directory. A mark is a line: the session's token, event id and
// generation.
const (
	// submittedFile has every prompt that was submitted: a crash after the
	// submit and before the record must not type it a second time.
	submittedFile = "submitted"
	// pastedFile has the last line that was pasted, from just before the paste:
	// one that was not seen to be submitted may still be on its way.
	pastedFile = "pasted"

	maxMarks = 4 << 20
)

// mark is one line that was typed.
type mark struct {
	eventID    string
	generation int
}

// remember notes that the prompt was submitted. That it cannot be noted does not
// undo the submit.
func (d *Driver) remember(s record.Session, p Prompt) {
	if err := writeMark(s, p, submittedFile, os.O_APPEND); err != nil {
		d.cfg.Log.Warn().Err(err).Str(logkey.Session, s.TmuxTarget).Str(logkey.EventID, p.EventID).
			Msg("a crash before the outcome is recorded may send this prompt again")
	}
}

// rememberPaste notes that the prompt's line is about to be pasted.
func (d *Driver) rememberPaste(s record.Session, p Prompt) {
	if err := writeMark(s, p, pastedFile, os.O_TRUNC); err != nil {
		d.cfg.Log.Warn().Err(err).Str(logkey.Session, s.TmuxTarget).Str(logkey.EventID, p.EventID).
			Msg("when the line is not seen now, a later try may paste it again")
	}
}

// forget removes the marks, which are of no use to another process.
func forget(dir string) error {
	for _, name := range []string{submittedFile, pastedFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("forget what the last process was sent: %w", err)
		}
	}
	return nil
}

func writeMark(s record.Session, p Prompt, name string, how int) error {
	path := filepath.Join(s.Dir, name)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW|how, 0o600) //nolint:gosec // in the worker's own directory
	if err == nil {
		_, err = f.WriteString(s.Token + " " + p.EventID + " " + strconv.Itoa(p.Generation) + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("remember that %s was %s: %w", p.EventID, name, err)
	}
	return nil
}

// submitted reports whether this or a later generation of the event was
// submitted to this very process.
func submitted(s record.Session, p Prompt) (bool, error) {
	all, err := marks(s, submittedFile)
	for _, m := range all {
		if m.eventID == p.EventID && m.generation >= p.Generation {
			return true, err
		}
	}
	return false, err
}

// submittedEver reports whether any generation of the event was.
func submittedEver(s record.Session, eventID string) (bool, error) {
	return submitted(s, Prompt{EventID: eventID})
}

// unsettled returns the line that was pasted last into this very process and not
// seen to be submitted.
func unsettled(s record.Session) (mark, bool, error) {
	all, err := marks(s, pastedFile)
	if err != nil || len(all) == 0 {
		return mark{}, false, err
	}
	m := all[len(all)-1]
	done, err := submitted(s, Prompt{EventID: m.eventID, Generation: m.generation})
	return m, !done, err
}

// marks returns the marks of this very process.
func marks(s record.Session, name string) ([]mark, error) {
	fail := func(err error) ([]mark, error) { return nil, fmt.Errorf("read what was %s: %w", name, err) }
	f, err := os.OpenFile(filepath.Join(s.Dir, name), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) //nolint:gosec // in the worker's own directory
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return fail(err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxMarks))
	if err != nil {
		return fail(err)
	}
	var out []mark
	for line := range strings.Lines(string(b)) {
		w := strings.Fields(line)
		if len(w) != 3 || w[0] != s.Token || !strings.HasSuffix(line, "\n") {
			continue
		}
		if n, err := strconv.Atoi(w[2]); err == nil {
			out = append(out, mark{eventID: w[1], generation: n})
		}
	}
	return out, nil
}
