package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"

	"loopfleet/pkg/eventlog"
)

// defaultWidth is what text fits into where there is no terminal to ask.
const defaultWidth = 80

// terminal reports whether w is one, and its file descriptor.
func terminal(w io.Writer) (fd int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile {
		return 0, false
	}
	fd = int(f.Fd())
	return fd, term.IsTerminal(fd)
}

// width is how many columns text may take on standard output.
func (a *app) width() int {
	if fd, ok := terminal(a.stdout); ok {
		if w, _, err := term.GetSize(fd); err == nil && w >= 40 {
			return w
		}
	}
	return defaultWidth
}

// colour reports whether w may be sent colours: only a terminal, and never when
// NO_COLOR is set.
func (a *app) colour(w io.Writer) bool {
	_, ok := terminal(w)
	return ok && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"
}

// printJSON writes v, indented, so that nothing in it can drive a terminal.
func (a *app) printJSON(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	return a.print(plainJSON(b.Bytes()))
}

func (a *app) print(text string) error {
	if _, err := io.WriteString(a.stdout, text); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

func (a *app) printf(format string, args ...any) error { return a.print(fmt.Sprintf(format, args...)) }

// plainJSON escapes what JSON may carry as it is and a terminal would obey or
// hide. The value stays the same: outside of strings JSON has none of it.
func plainJSON(raw []byte) string {
	var b strings.Builder
	for _, c := range string(raw) {
		switch {
		case c == '\n' || unicode.IsPrint(c):
			b.WriteRune(c)
		case c > 0xffff:
			hi, lo := utf16.EncodeRune(c)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04x`, c)
		}
	}
	return b.String()
}

// columns is about how many columns s takes.
func columns(s string) int {
	n := 0
	for _, c := range s {
		n += eventlog.Columns(c)
	}
	return n
}

// fit cuts the end of s so that it takes at most width columns.
func fit(s string, width int) string {
	if columns(s) <= width {
		return s
	}
	used := 0
	for i, c := range s {
		if used += eventlog.Columns(c); used > width-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// fitEnd cuts the beginning of s instead: an item keeps its number.
func fitEnd(s string, width int) string {
	if columns(s) <= width {
		return s
	}
	used, i := 0, len(s)
	for i > 0 {
		c, n := utf8.DecodeLastRuneInString(s[:i])
		if used += eventlog.Columns(c); used > width-1 {
			break
		}
		i -= n
	}
	return "…" + s[i:]
}

// column is one column of a table.
type column struct {
	head string
	// least is how narrow it may become when the table does not fit; 0 never
	// gives way. Those that give way do so in the order of rank.
	least, rank int
	// keepEnd cuts the beginning instead of the end.
	keepEnd bool
	// right aligns numbers.
	right bool
	// paint colours a cell; nil for none.
	paint func(cell string) string
}

// table prints rows under heads, at most width columns wide; a width of 0 cuts
// nothing. Cells are escaped here, so they may hold anything.
func (a *app) table(cols []column, rows [][]string, width int) error {
	cells := make([][]string, len(rows))
	need := make([]int, len(cols))
	for i, c := range cols {
		need[i] = columns(c.head)
	}
	for r, row := range rows {
		cells[r] = make([]string, len(cols))
		for i := range cols {
			cell := eventlog.Escape(row[i])
			if cell == "" {
				cell = "-"
			}
			cells[r][i] = cell
			need[i] = max(need[i], columns(cell))
		}
	}
	if width > 0 {
		narrow(cols, need, width)
	}
	colour := a.colour(a.stdout)
	var b strings.Builder
	line := func(row []string, head bool) {
		var l strings.Builder
		for i, c := range cols {
			cell := row[i]
			if c.keepEnd {
				cell = fitEnd(cell, need[i])
			} else {
				cell = fit(cell, need[i])
			}
			pad := strings.Repeat(" ", need[i]-columns(cell))
			if colour && !head && c.paint != nil {
				cell = c.paint(cell)
			}
			if i > 0 {
				l.WriteString("  ")
			}
			if c.right {
				l.WriteString(pad + cell)
			} else {
				l.WriteString(cell + pad)
			}
		}
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	heads := make([]string, len(cols))
	for i, c := range cols {
		heads[i] = c.head
	}
	line(heads, true)
	for _, row := range cells {
		line(row, false)
	}
	return a.print(b.String())
}

// narrow takes columns away from those that may give way until the table fits.
func narrow(cols []column, need []int, width int) {
	total := 2 * (len(cols) - 1)
	for _, n := range need {
		total += n
	}
	for rank := 1; total > width && rank <= len(cols); rank++ {
		for i, c := range cols {
			if c.rank != rank || total <= width {
				continue
			}
			least := max(c.least, columns(c.head))
			if give := min(total-width, need[i]-least); give > 0 {
				need[i] -= give
				total -= give
			}
		}
	}
}

const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	dim    = "\x1b[2m"
	reset  = "\x1b[0m"
)

// ago is how long before now t was, in its largest unit.
func ago(now, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := now.Sub(t)
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", d/time.Hour)
	default:
		return fmt.Sprintf("%dd ago", d/(24*time.Hour))
	}
}

// moment is t for people: local time, and how long ago.
func moment(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Local().Format("2006-01-02 15:04:05") + " (" + ago(now, t) + ")"
}
