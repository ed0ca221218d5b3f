package demoagent

import (
	"strings"
	"unicode/utf8"
)

// action is what a piece of input asks for.
type action int

const (
	none action = iota
	// changed: the draft is another one.
	changed
	// submit: the draft was entered; it is in editor.submitted.
	submit
	// quit: Ctrl-D or Ctrl-C on an empty draft.
	quit
)

// maxDraft bounds the draft in bytes; further input is dropped.
const maxDraft = 1 << 20

// editor is the line editor: bytes of a terminal in, drafts out. Sequences may
// be split anywhere between two reads.
type editor struct {
	draft     []byte
	submitted string
	// escape collects an escape sequence, from ESC on.
	escape []byte
	// pasting is between the marks of a bracketed paste, where a line feed
	// is text.
	pasting bool
	// afterCR swallows the LF of a CRLF.
	afterCR bool
}

const (
	pasteBegin = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
)

// feed takes one byte.
func (e *editor) feed(c byte) action {
	if len(e.escape) > 0 {
		e.feedEscape(c)
		return none
	}
	crlf := e.afterCR && c == '\n'
	e.afterCR = c == '\r'
	switch {
	case c == 0x1b:
		e.escape = append(e.escape[:0], c)
		return none
	case crlf:
		return none
	case c == '\r' || c == '\n':
		if e.pasting {
			return e.add('\n')
		}
		e.submitted = string(e.draft)
		e.draft = e.draft[:0]
		return submit
	case e.pasting && c < 0x20 && c != '\t':
		return none
	case c == 0x03: // Ctrl-C
		if len(e.draft) == 0 {
			return quit
		}
		e.draft = e.draft[:0]
		return changed
	case c == 0x04 && len(e.draft) == 0: // Ctrl-D
		return quit
	case c == 0x15: // Ctrl-U
		e.draft = e.draft[:0]
		return changed
	case c == 0x7f || c == 0x08:
		_, n := utf8.DecodeLastRune(e.draft)
		e.draft = e.draft[:len(e.draft)-n]
		return changed
	case c < 0x20 && c != '\t':
		return none
	default:
		return e.add(c)
	}
}

// key takes one byte past the draft, and reports whether it is a key on its own:
// not part of a sequence or a paste.
func (e *editor) key(c byte) bool {
	switch {
	case len(e.escape) > 0:
		e.feedEscape(c)
		return false
	case c == 0x1b:
		e.escape = append(e.escape[:0], c)
		return false
	default:
		return !e.pasting
	}
}

func (e *editor) add(c byte) action {
	if len(e.draft) < maxDraft {
		e.draft = append(e.draft, c)
	}
	return changed
}

// feedEscape goes through an escape sequence; only the paste marks mean
// anything.
func (e *editor) feedEscape(c byte) {
	e.escape = append(e.escape, c)
	seq := string(e.escape)
	switch {
	case seq == pasteBegin:
		e.pasting = true
	case seq == pasteEnd:
		e.pasting = false
	case len(seq) == 2 && c == '[', len(seq) == 2 && c == 'O':
		return
	case len(seq) > 2 && (c < 0x40 || c > 0x7e) && len(seq) < 32:
		return
	}
	e.escape = e.escape[:0]
}

// shown is the draft as one row.
func (e *editor) shown() string {
	return strings.ReplaceAll(string(e.draft), "\n", "⏎")
}
