package eventlog

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape makes s safe for a terminal: control characters (escape sequences
// among them), invisible and direction-changing characters, unusual spaces and
// invalid UTF-8 become visible escapes as in \n, \u202e or \xff. The result is
// one line.
func Escape(s string) string {
	if !strings.ContainsFunc(s, hidden) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case !hidden(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		i += n
	}
	return b.String()
}

// hidden reports runes that a terminal obeys or does not show. Printable leaves
// out control characters, the bidirectional and zero-width ones (Cf), all spaces
// but the ordinary one, private use and what has no meaning yet.
func hidden(r rune) bool { return !unicode.IsPrint(r) }

// wide holds the scripts whose characters take two columns.
var wide = []*unicode.RangeTable{unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana}

// Columns is how many columns of a terminal a character takes.
func Columns(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case r >= 0x1f300 && r <= 0x1faff, r >= 0xff01 && r <= 0xff60, r >= 0x3000 && r <= 0x303f, unicode.In(r, wide...):
		return 2
	default:
		return 1
	}
}

// fit cuts s to width columns, marking the cut; a width of 0 or less cuts
// nothing.
func fit(s string, width int) string {
	if width <= 0 {
		return s
	}
	used, last := 0, 0 // last is where s is cut to leave room for the mark
	for i, r := range s {
		c := Columns(r)
		if used+c > width {
			return s[:last] + "…"
		}
		used += c
		if used <= width-1 {
			last = i + utf8.RuneLen(r)
		}
	}
	return s
}
