package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"loopfleet/pkg/workitem"
)

// phase is how far a checkout is. Before it is ready no agent was ever in it.
type phase string

const (
	phaseCreating phase = "creating"
	phaseReady    phase = "ready"
	phaseRemoving phase = "removing"
)

// state is what is known of a checkout, kept outside of the agent's reach as far
// as directories can do that: nothing in the checkout is asked instead.
type state struct {
	Item     workitem.Ref `json:"item"`
	Phase    phase        `json:"phase"`
	Strategy string       `json:"strategy"`
	URL      string       `json:"url"`
	Branch   string       `json:"branch"`
	// Base is the commit that the agent was given.
	Base    string    `json:"base"`
	Created time.Time `json:"created"`
}

// load returns nil when nothing is known of the directory name.
func (m *Manager) load(name string) (*state, error) {
	path := m.own("state", name+".json")
	b, err := os.ReadFile(path) //nolint:gosec // a name of ours
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // nothing known is no error
	}
	if err != nil {
		return nil, fmt.Errorf("read what is known of a checkout: %w", err)
	}
	var s state
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("read %s: %w (remove the file if it is damaged; the checkout is looked at then)", path, err)
	}
	if s.Item.DirName() != name {
		return nil, fmt.Errorf("read %s: it is about %s", path, s.Item)
	}
	return &s, nil
}

func (m *Manager) save(s state) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := writeFile(m.own("state", s.Item.DirName()+".json"), append(b, '\n')); err != nil {
		return fmt.Errorf("record the checkout of %s: %w", s.Item, err)
	}
	return nil
}

func (m *Manager) forget(item workitem.Ref) error {
	err := os.Remove(m.own("state", item.DirName()+".json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// writeFile replaces a file in one step that outlives a power cut.
func writeFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// ensureFile writes the file unless it holds just that.
func ensureFile(path, content string) error {
	if b, err := os.ReadFile(path); err == nil && string(b) == content { //nolint:gosec // a name of ours
		return nil
	}
	return writeFile(path, []byte(content))
}
