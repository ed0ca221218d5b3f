package tmux

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
)

// deadStatus is what the guard of Paste and Enter makes the client exit with.
const deadStatus = 3

// Paste puts text into the session's program as a person's paste does, framed
// by the bracketed-paste marks when the program has asked for them, line feeds
// kept. Copy mode is left first. ErrDead when the program has ended; nothing is
// typed then. The text must not contain an escape character: it could end the
// frame.
func (s *Server) Paste(ctx context.Context, name, text string) error {
	for _, c := range []byte(text) {
		if c == 0x1b || c == 0 {
			return fmt.Errorf("paste into %s: %w: the text contains the control character %#x", name, ErrInvalid, c)
		}
	}
	return s.put(ctx, name, text, "-p -r")
}

// Enter types a carriage return. It goes through a buffer, as send-keys is lost
// in copy mode. ErrDead when the program has ended.
func (s *Server) Enter(ctx context.Context, name string) error { return s.put(ctx, name, "\r", "-r") }

// EraseLine types Ctrl-U, which clears the line that is being edited.
func (s *Server) EraseLine(ctx context.Context, name string) error {
	return s.put(ctx, name, "\x15", "-r")
}

// put does check and paste in one client call, inside the server: a check before
// it would race with the program's end, and pasting into a dead pane crashes
// tmux 3.3a with every session on it.
func (s *Server) put(ctx context.Context, name, text, flags string) error {
	if !ValidName(name) {
		return fmt.Errorf("type into %q: %w", name, ErrForeign)
	}
	if text == "" {
		return fmt.Errorf("type into %s: %w: no text", name, ErrInvalid)
	}
	// The name is unique, so two deliveries never share a buffer.
	buf := "p-" + rand.Text()
	// ValidName lets nothing through that these command strings would quote.
	target := "=" + name + ":"
	_, err := s.run(ctx, call{
		stdin: text,
		args: []string{
			"load-buffer", "-b", buf, "-",
			";", "if-shell", "-F", "-t", target, "#{pane_dead}",
			fmt.Sprintf(`delete-buffer -b %s ; run-shell "exit %d"`, buf, deadStatus),
			fmt.Sprintf(`copy-mode -q -t %s ; paste-buffer -d %s -b %s -t %s`, target, flags, buf, target),
		},
	})
	var ce *CommandError
	if errors.As(err, &ce) && ce.Status == deadStatus {
		return fmt.Errorf("type into %s: %w", name, ErrDead)
	}
	if err != nil {
		return s.explain(ctx, "type into", name, err)
	}
	return nil
}
