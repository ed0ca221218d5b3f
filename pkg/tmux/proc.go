package tmux

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Process is one process, told apart from a later one with the same pid.
type Process struct {
	PID int
	// Start is when it started, in clock ticks since boot (field 22 of
	// /proc/<pid>/stat).
	Start uint64
}

// stat is the part of /proc/<pid>/stat that is used here.
type stat struct {
	pid, ppid, session int
	state              byte
	start              uint64
}

// readStat returns ErrGone when there is no such process.
func readStat(pid int) (stat, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return stat{}, fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	if err != nil {
		return stat{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	// The second field is the program's name in parentheses and may contain
	// anything, also spaces and parentheses.
	i := bytes.LastIndexByte(b, ')')
	f := strings.Fields(string(b[i+1:]))
	const minFields = 20
	if i < 0 || len(f) < minFields {
		return stat{}, fmt.Errorf("look at process %d: its stat file has %d fields, want %d", pid, len(f), minFields)
	}
	st := stat{pid: pid, state: f[0][0]}
	var errs [3]error
	st.ppid, errs[0] = strconv.Atoi(f[1])
	st.session, errs[1] = strconv.Atoi(f[3])
	st.start, errs[2] = strconv.ParseUint(f[19], 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return stat{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	return st, nil
}

// ended reports a zombie: dead, and only waiting for its parent.
func (st stat) ended() bool { return st.state == 'Z' || st.state == 'X' || st.state == 'x' }

// Identify returns the process that has the pid now; ErrGone when none has.
func Identify(pid int) (Process, error) {
	st, err := readStat(pid)
	if err != nil {
		return Process{}, err
	}
	if st.ended() {
		return Process{}, fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	return Process{PID: pid, Start: st.start}, nil
}

// Alive reports whether it still runs. A zombie does not. When /proc cannot be
// read, it counts as alive.
func (p Process) Alive() bool {
	if p.PID <= 1 {
		return false
	}
	st, err := readStat(p.PID)
	if err != nil {
		return !errors.Is(err, ErrGone)
	}
	return st.start == p.Start && !st.ended()
}

// Signal sends sig to this very process: ErrGone when it has ended, also when
// its pid has been given to another process meanwhile.
func (p Process) Signal(sig syscall.Signal) error {
	if p.PID <= 1 {
		return fmt.Errorf("signal process %d: %w: 0 and below are groups, 1 is the system's", p.PID, ErrInvalid)
	}
	// The handle is bound to a process (pidfd), so looking after opening it
	// leaves no gap for the pid to change hands.
	h, err := os.FindProcess(p.PID)
	if err != nil {
		return fmt.Errorf("signal process %d: %w", p.PID, errors.Join(ErrGone, err))
	}
	defer func() { _ = h.Release() }()
	if !p.Alive() {
		return fmt.Errorf("signal process %d: %w", p.PID, ErrGone)
	}
	if err := h.Signal(sig); err != nil {
		if errors.Is(err, os.ErrProcessDone) {
			err = ErrGone
		}
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

// Tree returns the living processes that belong to root: itself, its
// descendants, those that share its terminal session (also after root has
// ended), and everything that was started with mark, a NAME=value, in its
// environment, however far it went. Our own process is never part of it. An
// empty mark marks nothing; a root with a pid below 2, or whose pid belongs to
// another process now, has no relatives.
func Tree(root Process, mark string) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all := map[int]stat{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid <= 1 {
			continue
		}
		if st, err := readStat(pid); err == nil && !st.ended() {
			all[pid] = st
		}
	}
	at, found := all[root.PID]
	known := root.PID > 1 && (!found || at.start == root.Start)
	in := map[int]bool{}
	for pid, st := range all {
		if known && (pid == root.PID || st.session == root.PID) || mark != "" && marked(pid, mark) {
			in[pid] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for pid, st := range all {
			if !in[pid] && in[st.ppid] {
				in[pid], grown = true, true
			}
		}
	}
	delete(in, os.Getpid())
	out := make([]Process, 0, len(in))
	for pid := range in {
		out = append(out, Process{PID: pid, Start: all[pid].start})
	}
	slices.SortFunc(out, func(a, b Process) int { return a.PID - b.PID })
	return out, nil
}

// marked reports whether the process was started with mark in its environment.
// Processes of other users cannot be read and are not ours.
func marked(pid int, mark string) bool {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return false
	}
	for v := range bytes.SplitSeq(b, []byte{0}) {
		if string(v) == mark {
			return true
		}
	}
	return false
}
