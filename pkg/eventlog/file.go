package eventlog

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// file appends lines to a JSON lines file. Several processes may share it: each
// line is one write to the end.
type file struct {
	mu sync.Mutex
	f  *os.File
	// torn says that the last write ended within a line.
	torn bool
}

// openFile opens path for appending and makes it, with its directory, for the
// owner only. An empty path gives nil, whose methods do nothing.
func openFile(path string) (*file, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // nil is the file that is not wanted
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open event log file (eventLog.file): %w", err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("open event log file (eventLog.file): %w", err)
	}
	return &file{f: f}, nil
}

func (f *file) append(line []byte) error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	buf := make([]byte, 0, len(line)+2)
	if f.torn { // a full disk cut the last line: do not spoil this one too
		buf = append(buf, '\n')
	}
	buf = append(append(buf, line...), '\n')
	n, err := f.f.Write(buf)
	if n > 0 {
		f.torn = n < len(buf)
	}
	if err != nil {
		return fmt.Errorf("append to event log file: %w", err)
	}
	return nil
}

func (f *file) close() error {
	if f == nil {
		return nil
	}
	if err := f.f.Close(); err != nil {
		return fmt.Errorf("close event log file: %w", err)
	}
	return nil
}
