package workspace

import (
	"bytes"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	maxLine = 200
	// keptLines is how much of the end of what git said goes into an error.
	keptLines = 4
)

// listener hears what git says on stderr: progress, which overwrites itself, and
// lines, the last of which are kept. Both may repeat what strangers wrote.
type listener struct {
	mu       sync.Mutex
	part     []byte
	progress bool // part has overwritten something
	last     string
	lines    []string
	heard    time.Time
}

func (l *listener) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = time.Now()
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexAny(p, "\r\n")
		if i < 0 {
			l.add(p)
			break
		}
		l.add(p[:i])
		l.close(p[i] == '\r')
		p = p[i+1:]
	}
	return n, nil
}

// add keeps a line within bounds; the rest of a longer one is nobody's interest.
func (l *listener) add(p []byte) {
	if room := 4*maxLine - len(l.part); room > 0 {
		l.part = append(l.part, p[:min(room, len(p))]...)
	}
}

func (l *listener) close(overwrites bool) {
	if s := printable(string(l.part)); s != "" {
		l.last = s
		if !overwrites && !l.progress {
			l.lines = append(l.lines, s)
			if len(l.lines) > keptLines {
				l.lines = l.lines[1:]
			}
		}
	}
	l.part = l.part[:0]
	l.progress = overwrites
}

// latest is the last thing said, and when.
func (l *listener) latest() (string, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last, l.heard
}

// end is the end of what was said, without progress.
func (l *listener) end() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.close(false)
	return strings.Join(l.lines, "; ")
}

// printable is one line of a stranger's text, safe for a terminal and a log.
func printable(s string) string {
	q := strconv.QuoteToGraphic(strings.TrimSpace(s))
	q = strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
	if len(q) > maxLine {
		q = strings.ToValidUTF8(q[:maxLine], "") + "…"
	}
	return q
}
