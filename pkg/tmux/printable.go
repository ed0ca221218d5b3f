package tmux

import (
	"strconv"
	"strings"
	"unicode"
)

// Printable makes text of strangers safe for a terminal and a log: line feeds
// stay, every other character that is not printable (controls, escapes,
// direction marks, invisible ones, invalid bytes) is written as its escape.
func Printable(s string) string {
	var b strings.Builder
	for i, c := range s {
		switch {
		case c == '\n', unicode.IsPrint(c) && c != unicode.ReplacementChar:
			b.WriteRune(c)
		case c == unicode.ReplacementChar && s[i] != 0xEF: // an invalid byte
			b.WriteString(`\x` + strconv.FormatUint(uint64(s[i]), 16))
		case c == unicode.ReplacementChar:
			b.WriteRune(c)
		default:
			q := strconv.QuoteRune(c)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}
