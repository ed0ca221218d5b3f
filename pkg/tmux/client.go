package tmux

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Client is one terminal that is attached to a session.
type Client struct {
	// Active is when its last key came, or when it attached; to the second.
	Active time.Time
	// ReadOnly says that its keys do not reach the program.
	ReadOnly bool
}

// Clients lists the terminals that are attached to the session.
func (s *Server) Clients(ctx context.Context, name string) ([]Client, error) {
	if !ValidName(name) {
		return nil, fmt.Errorf("list clients of %q: %w", name, ErrForeign)
	}
	out, err := s.run(ctx, call{args: []string{
		"list-clients", "-t", "=" + name + ":", "-F", "#{client_activity}|#{client_readonly}",
	}})
	if err != nil {
		return nil, s.explain(ctx, "list clients of", name, err)
	}
	var clients []Client
	for line := range strings.Lines(out) {
		at, readOnly, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "|")
		sec, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("list clients of %s: tmux printed %q: %w", name, Printable(line), err)
		}
		clients = append(clients, Client{Active: time.Unix(sec, 0), ReadOnly: readOnly == "1"})
	}
	return clients, nil
}
