package tmux

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Unread returns how many bytes were typed into the pane that its program has not
// read. While a program edits lines by the terminal's own means, only complete
// lines count. ErrGone when the terminal is no more.
func (p Pane) Unread() (int, error) {
	f, err := os.OpenFile(p.TTY, os.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EIO) || errors.Is(err, unix.ENXIO) {
		return 0, fmt.Errorf("look at terminal %s: %w", p.TTY, ErrGone)
	}
	if err != nil {
		return 0, fmt.Errorf("look at terminal %s: %w", p.TTY, err)
	}
	defer func() { _ = f.Close() }()
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("look at terminal %s: %w", p.TTY, err)
	}
	var n int
	cerr := conn.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	if err := errors.Join(cerr, err); err != nil {
		return 0, fmt.Errorf("ask terminal %s what is unread: %w", p.TTY, err)
	}
	return n, nil
}
