package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"loopfleet/pkg/workitem"
)

// The strategies.
const (
	// Worktree is one shared clone per repository and a worktree per item.
	Worktree = "worktree"
	// Clone is a clone per item.
	Clone = "clone"
)

// The protocols that repositories are reached by.
const (
	HTTPS = "https"
	SSH   = "ssh"
)

const (
	private       = 0o700
	privateFile   = 0o600
	progressEvery = 2 * time.Second
	stallAfter    = 10 * time.Minute
	tokenHost     = "github.com"
)

// Config says where checkouts are and how repositories are reached.
type Config struct {
	// Root is the absolute directory that the Manager owns. It is made when it
	// is missing. Several processes may share it, hosts may not.
	Root string
	// Strategy is Worktree or Clone; empty means Worktree. Checkouts that are
	// there keep theirs.
	Strategy string
	// Keep leaves the checkouts of closed items where they are.
	Keep bool
	// Protocol is HTTPS or SSH; empty means HTTPS.
	Protocol string
	// TokenFile is a file that holds a token for https, read anew by each call.
	TokenFile string
	// TokenFunc gives the token instead; an empty one means none. With neither,
	// git's own helpers are asked.
	TokenFunc func(context.Context) (string, error)
	// TokenHost is the only host (with its port, if it has one) that gets the
	// token; empty means github.com.
	TokenHost string
	// Environ is the environment of git, without its GIT_ variables and ours.
	Environ []string
	// Log gets what happens to checkouts.
	Log zerolog.Logger
	// ProgressEvery is how often a long call reports; zero means 2 s.
	ProgressEvery time.Duration
	// StallAfter ends a call of git that has said nothing for so long; zero
	// means 10 minutes.
	StallAfter time.Duration
	// Local also takes paths and plain http to this host, for tests and trials.
	Local bool
}

// Manager prepares and removes checkouts. Its methods may be called concurrently.
type Manager struct {
	cfg     Config
	git     string // the program
	lfs     bool   // git-lfs is there
	environ []string
}

// Request says what an item's checkout is to be.
type Request struct {
	Item workitem.Ref
	// PullRequest checks out the item's head instead of a branch for new work.
	PullRequest bool
	// HeadRef is the pull request's head branch; empty when it is not known.
	HeadRef string
	// Fork says that the head branch is in another repository, or in one that
	// was deleted.
	Fork bool
	// CloneURL is the repository's address as the forge gave it, of either
	// protocol; empty means one made of the item.
	CloneURL string
	// Progress is told what goes on, in lines fit for a terminal, at once and
	// every few seconds; never after Prepare has returned. May be nil.
	Progress func(line string)
}

// Checkout is a directory to work in.
type Checkout struct {
	// Dir is its absolute path.
	Dir string
	// Branch is what is checked out, without refs/heads/; empty when HEAD is
	// detached, by the agent.
	Branch string
	// Commit is the object id that is checked out; empty when there is none.
	Commit string
	// Adopted says that the checkout was there already.
	Adopted bool
	// Warnings are for people: what is not as it should be, and what to do.
	Warnings []string
}

// New checks cfg, makes the root and finds git. It starts nothing.
func New(cfg Config) (*Manager, error) {
	if cfg.Strategy == "" {
		cfg.Strategy = Worktree
	}
	if cfg.Protocol == "" {
		cfg.Protocol = HTTPS
	}
	if cfg.TokenHost == "" {
		cfg.TokenHost = tokenHost
	}
	if cfg.ProgressEvery <= 0 {
		cfg.ProgressEvery = progressEvery
	}
	if cfg.StallAfter <= 0 {
		cfg.StallAfter = stallAfter
	}
	switch {
	case !filepath.IsAbs(cfg.Root):
		return nil, fmt.Errorf("workspace: the root %q is not absolute", cfg.Root)
	case cfg.Strategy != Worktree && cfg.Strategy != Clone:
		return nil, fmt.Errorf("workspace: unknown strategy %q: use worktree or clone", cfg.Strategy)
	case cfg.Protocol != HTTPS && cfg.Protocol != SSH:
		return nil, fmt.Errorf("workspace: unknown protocol %q: use https or ssh", cfg.Protocol)
	case cfg.TokenFile != "" && cfg.TokenFunc != nil:
		return nil, errors.New("workspace: both a token file and another source of tokens")
	case cfg.TokenFile != "" && !filepath.IsAbs(cfg.TokenFile):
		return nil, fmt.Errorf("workspace: the token file %q is not absolute", cfg.TokenFile)
	}
	program, ok := lookPath(cfg.Environ, "git")
	if !ok {
		return nil, fmt.Errorf("workspace: find git: %w on PATH (install it, on Debian: apt-get install git)", os.ErrNotExist)
	}
	if err := os.MkdirAll(cfg.Root, private); err != nil {
		return nil, fmt.Errorf("workspace: make the root: %w", err)
	}
	root, err := filepath.EvalSymlinks(cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	cfg.Root = root
	m := &Manager{cfg: cfg, git: program, environ: gitEnviron(cfg.Environ)}
	_, m.lfs = lookPath(cfg.Environ, "git-lfs")
	for _, dir := range []string{m.items(), m.repos(), m.own("locks"), m.own("state"), m.own("common"), m.own("trash")} {
		if err := os.MkdirAll(dir, private); err != nil {
			return nil, fmt.Errorf("workspace: %w", err)
		}
	}
	return m, nil
}

// lookPath finds a program on the PATH that git will have, which need not be
// this process's.
func lookPath(environ []string, name string) (string, bool) {
	path := ""
	for _, e := range environ {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue // it would depend on where we are
		}
		file := filepath.Join(dir, name)
		if fi, err := os.Stat(file); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return file, true
		}
	}
	return "", false
}

// Dir is where the item's checkout is, or would be.
func (m *Manager) Dir(item workitem.Ref) string { return filepath.Join(m.items(), item.DirName()) }

func (m *Manager) items() string { return filepath.Join(m.cfg.Root, "items") }
func (m *Manager) repos() string { return filepath.Join(m.cfg.Root, "repos") }

// own is a path among the Manager's own files.
func (m *Manager) own(elem ...string) string {
	return filepath.Join(append([]string{m.cfg.Root, ".loopfleet"}, elem...)...)
}

// repoName is the item's repository as a file name.
func repoName(item workitem.Ref) (string, error) {
	// Every item of a repository must give the same name, also one that is cut.
	first, err := item.WithNumber("1")
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(first.DirName(), ".1"), nil
}
