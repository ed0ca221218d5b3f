package harness

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"

	"loopfleet/pkg/config"
)

// ErrUnknown means that the configuration has no harness of that name.
var ErrUnknown = errors.New("harness is not configured")

// selfName is the program word that means Loopfleet's own binary.
const selfName = "loopfleet"

// demoName is the command of that binary which is the demo agent.
const demoName = "demo-agent"

// Set is the configured harnesses by name.
type Set struct {
	adapters map[string]Adapter
}

// NewSet builds the adapters of cfg. SelfExe is the path of the running
// loopfleet binary, which is used where a command names "loopfleet" and PATH has
// none; it may be empty. All mistakes in cfg are reported at once. Whether the
// programs exist is not looked at.
func NewSet(cfg map[string]config.Harness, selfExe string) (*Set, error) {
	s := &Set{adapters: map[string]Adapter{}}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(cfg)) {
		h := cfg[name]
		find := finder{harness: name, self: selfExe}
		switch {
		case len(h.Command) > 0 && h.Command[0] == "":
			errs = append(errs, fmt.Errorf("harnesses.%s.command: the program is empty", name))
		case len(h.Command) > 0:
			receipt := ReceiptMode(h.Receipt)
			if receipt == "" {
				receipt = ReceiptNone
			}
			if receipt != ReceiptFile && receipt != ReceiptNone {
				errs = append(errs, fmt.Errorf("harnesses.%s.receipt: %q is neither file nor none", name, h.Receipt))
				continue
			}
			argv := append(slices.Clone(h.Command), h.Args...)
			s.adapters[name] = &Command{name: name, argv: argv, receipt: receipt, demo: isDemo(argv), find: find}
		case name == claudeName:
			s.adapters[name] = &Claude{args: slices.Clone(h.Args), find: find}
		default:
			errs = append(errs, fmt.Errorf("harnesses.%s: Loopfleet has no adapter of that name; give it a command", name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// isDemo reports whether a command is our own demo agent, whoever's binary it is
// in.
func isDemo(argv []string) bool { return len(argv) > 1 && argv[1] == demoName }

// Adapter returns the harness of that name; ErrUnknown when there is none.
func (s *Set) Adapter(name string) (Adapter, error) {
	a, ok := s.adapters[name]
	if !ok {
		return nil, fmt.Errorf("harness %q: %w; configured are %q", name, ErrUnknown, s.Names())
	}
	return a, nil
}

// Names lists the configured harnesses, sorted.
func (s *Set) Names() []string { return slices.Sorted(maps.Keys(s.adapters)) }

// Available lists the harnesses whose program is there now, sorted.
func (s *Set) Available() []string {
	var out []string
	for _, name := range s.Names() {
		if _, err := s.adapters[name].Find(); err == nil {
			out = append(out, name)
		}
	}
	return out
}

// finder finds a harness's program.
type finder struct {
	harness string
	self    string
}

func (f finder) find(program, hint string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil && program == selfName && f.self != "" {
		path, err = exec.LookPath(f.self)
	}
	if err == nil {
		// The program is started in the session's directory, not in ours.
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", &NotFoundError{Harness: f.harness, Program: program, Hint: hint, Err: err}
	}
	return path, nil
}
