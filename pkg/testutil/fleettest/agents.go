package fleettest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"loopfleet/pkg/harness"
	"loopfleet/pkg/harness/demoagent"
	"loopfleet/pkg/testutil/tmuxtest"
	"loopfleet/pkg/tmux"
	"loopfleet/pkg/workitem"
)

// Agent is a running agent process.
type Agent struct {
	tmux.Process
	Item workitem.Ref
	// Host is the worker whose directory it runs under.
	Host string
}

// Agents lists the agents of this fleet that run now, from /proc alone.
func (f *Fleet) Agents() []Agent {
	var out []Agent
	for _, p := range processes() {
		if !strings.HasSuffix(p.cmdline[0], "/loopfleet") || !slices.Contains(p.cmdline, "demo-agent") {
			continue
		}
		dir, item := p.env(harness.EnvSessionDir), p.env(harness.EnvWorkItem)
		rest, ours := strings.CutPrefix(dir, f.Dir+"/")
		if !ours {
			continue
		}
		ref, err := workitem.Parse(item)
		id, ierr := tmux.Identify(p.pid)
		if err != nil || ierr != nil {
			continue // it ended while we looked
		}
		host, _, _ := strings.Cut(rest, "/")
		out = append(out, Agent{Process: id, Item: ref, Host: host})
	}
	return out
}

// AgentsOf lists the running agents of one item.
func (f *Fleet) AgentsOf(item workitem.Ref) []Agent {
	return slices.DeleteFunc(f.Agents(), func(a Agent) bool { return a.Item != item })
}

// Received is what the agents of an item have taken, on all workers, in the
// order of its time.
func (f *Fleet) Received(item workitem.Ref) ([]demoagent.Entry, error) {
	return f.ReceivedOn("*", item)
}

// ReceivedOn is Received for one worker.
func (f *Fleet) ReceivedOn(worker string, item workitem.Ref) ([]demoagent.Entry, error) {
	paths, err := filepath.Glob(filepath.Join(f.Dir, worker, "workers", "*", "sessions", item.DirName(), demoagent.TranscriptFile))
	if err != nil {
		return nil, err
	}
	var out []demoagent.Entry
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		s := bufio.NewScanner(bytes.NewReader(b))
		s.Buffer(nil, 4<<20)
		for s.Scan() {
			var e demoagent.Entry
			if err := json.Unmarshal(s.Bytes(), &e); err != nil {
				return nil, fmt.Errorf("transcript %s: %w", path, err)
			}
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b demoagent.Entry) int { return a.At.Compare(b.At) })
	return out, nil
}

// ReceivedIDs is Received as event ids; what is no prompt shows as its text.
func (f *Fleet) ReceivedIDs(item workitem.Ref) []string {
	entries, err := f.Received(item)
	if err != nil {
		f.tb.Fatal(err)
	}
	ids := []string{}
	for _, e := range entries {
		switch {
		case e.Error != "":
			ids = append(ids, e.EventID+": "+e.Error)
		case e.EventID == "":
			ids = append(ids, "no prompt: "+e.Text)
		default:
			ids = append(ids, e.EventID)
		}
	}
	return ids
}

// proc is one process as /proc shows it.
type proc struct {
	pid     int
	cmdline []string
	environ []string
}

func (p proc) env(name string) string {
	for _, e := range p.environ {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// processes lists those that can be read.
func processes() []proc {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []proc
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cmdline, err := words(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || len(cmdline) == 0 {
			continue // it ended, or is the kernel's
		}
		environ, err := words(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil {
			continue
		}
		out = append(out, proc{pid, cmdline, environ})
	}
	return out
}

// words reads a list of texts that each end in a zero byte.
func words(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	if err != nil || len(b) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00"), nil
}

// endAll ends every process that names dir, until none is left.
func endAll(ctx context.Context, tb testing.TB, dir string) {
	tb.Helper()
	names := func(p proc) bool {
		in := func(s string) bool { return strings.Contains(s, dir+"/") }
		return p.pid != os.Getpid() && (slices.ContainsFunc(p.cmdline, in) || slices.ContainsFunc(p.environ, in))
	}
	for ctx.Err() == nil {
		left := slices.DeleteFunc(processes(), func(p proc) bool { return !names(p) })
		if len(left) == 0 {
			return
		}
		for _, p := range left {
			if id, err := tmux.Identify(p.pid); err == nil {
				tmuxtest.KillProcess(ctx, tb, id)
			}
		}
	}
	tb.Errorf("processes of %s are left", dir)
}
