package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	// File is empty for a configuration that was not read from one.
	File string `json:"file,omitempty"`
	// Line and Column count from 1; 0 means unknown, as for a key that is
	// missing.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Key is dotted: routing.maxRetries, polling.sources[0].repos.
	Key     string `json:"key,omitempty"`
	Message string `json:"message"`
}

// String is file:line:column: key: message, without what is unknown.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(plain(p.File))
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
			if p.Column > 0 {
				fmt.Fprintf(&b, ":%d", p.Column)
			}
		}
		b.WriteString(": ")
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	return b.String() + p.Message
}

// Errors is everything that is wrong, in the order of the file.
type Errors []Problem

// Error has one line per problem.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, p := range e {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// errOrNil sorts the problems; none is no error.
func (e Errors) errOrNil() error {
	if len(e) == 0 {
		return nil
	}
	slices.SortStableFunc(e, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Key, b.Key))
	})
	return e
}

// maxShown bounds how much of a value a message shows, in runes.
const maxShown = 60

// quote shows a text of the file: escaped, and cut when it is long.
func quote(s string) string {
	if utf8.RuneCountInString(s) > maxShown {
		return strconv.QuoteToASCII(string([]rune(s)[:maxShown])) + "..."
	}
	return strconv.QuoteToASCII(s)
}

// plain leaves a text of printable ASCII alone, and quotes any other.
func plain(s string) string {
	if q := strconv.QuoteToASCII(s); q != `"`+s+`"` || s == "" {
		return quote(s)
	}
	return s
}
