package harness

import (
	"strings"
	"unicode"
)

// Screen is what stands on a terminal.
type Screen struct {
	// Rows is the visible rows, from the top.
	Rows []string
	// CursorX and CursorY are the cursor's column and row, from 0.
	CursorX, CursorY int
}

// NewScreen reads the rows out of a captured screen.
func NewScreen(text string, cursorX, cursorY int) Screen {
	return Screen{Rows: strings.Split(strings.TrimSuffix(text, "\n"), "\n"), CursorX: cursorX, CursorY: cursorY}
}

// Contains reports whether line stands anywhere on the screen, however it is
// wrapped or framed.
func (s Screen) Contains(line string) bool {
	return strings.Contains(Squash(strings.Join(s.Rows, "\n")), Squash(line))
}

// typedRows bounds how many rows a wrapped line of ours can take.
const typedRows = 4

// Typed is the squashed text that ends at the cursor, with a few rows above it,
// as a line may be wrapped. It is empty when nothing stands in front of the
// cursor in its own row: what a program has printed above is not being typed.
func (s Screen) Typed() string {
	if s.CursorY < 0 || s.CursorY >= len(s.Rows) {
		return ""
	}
	text := Squash(cut(s.Rows[s.CursorY], s.CursorX))
	if text == "" {
		return ""
	}
	from := max(0, s.CursorY-typedRows+1)
	return Squash(strings.Join(s.Rows[from:s.CursorY], "")) + text
}

// cut returns the first n columns of row. Loopfleet's own lines are ASCII, so a
// rune counts as one column; wide ones before it only make the result longer.
func cut(row string, n int) string {
	r := []rune(row)
	return string(r[:min(max(n, 0), len(r))])
}

// Squash drops white space and the characters that frames are drawn with, so
// that texts compare equal however they are wrapped.
func Squash(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsSpace(c) || frame(c) || unicode.IsControl(c) {
			return -1
		}
		return c
	}, s)
}

// frame reports box drawing and block characters, and the ASCII bar.
func frame(c rune) bool { return c >= 0x2500 && c <= 0x259F || c == '|' }
