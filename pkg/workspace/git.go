package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// termGrace is what git gets to remove its temporary files.
	termGrace = 2 * time.Second

	tokenVar = "LOOPFLEET_GIT_TOKEN"      //nolint:gosec // G101: a variable's name
	fileVar  = "LOOPFLEET_GIT_TOKEN_FILE" //nolint:gosec // G101: as above
	// helper answers git's question for credentials. Only builtins of the shell
	// see the token.
	helper = `!f() { test "$1" = get || return 0; t=$` + tokenVar + `; ` +
		`test -z "$` + fileVar + `" || IFS= read -r t <"$` + fileVar + `"; ` +
		`test -z "$t" || printf 'username=x-access-token\npassword=%s\n' "$t"; }; f`
)

// always is the configuration of every call. What it turns off is what the
// operator's own configuration may turn on: nothing but git is to run.
var always = []string{
	"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.askPass=false", "core.pager=cat", "core.editor=false",
	"core.quotePath=true", "advice.detachedHead=false", "clone.defaultRemoteName=origin",
	"fetch.recurseSubmodules=false", "submodule.recurse=false", "gc.auto=0", "maintenance.auto=false", "init.templateDir=",
	"safe.directory=*", "color.ui=false",
	// A server that stops answering is let go of.
	"http.lowSpeedLimit=1000", "http.lowSpeedTime=60",
}

// noLFS checks out pointers where the operator's configuration asks for a
// git-lfs that is not there.
var noLFS = []string{"filter.lfs.smudge=", "filter.lfs.clean=", "filter.lfs.process=", "filter.lfs.required=false"}

// withLFS is what `git lfs install` would configure.
var withLFS = []string{
	"filter.lfs.smudge=git-lfs smudge -- %f", "filter.lfs.clean=git-lfs clean -- %f",
	"filter.lfs.process=git-lfs filter-process", "filter.lfs.required=true",
}

// gitEnviron is environ without what steers git or is ours.
func gitEnviron(environ []string) []string {
	out := slices.DeleteFunc(slices.Clone(environ), func(e string) bool {
		name, _, ok := strings.Cut(e, "=")
		return !ok || strings.HasPrefix(name, "GIT_") || strings.HasPrefix(name, "LOOPFLEET_") ||
			strings.HasPrefix(name, "SSH_ASKPASS") || strings.HasPrefix(name, "LC_") || name == "LANGUAGE" || name == "PAGER"
	})
	return append(out,
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=false", "SSH_ASKPASS=false", "SSH_ASKPASS_REQUIRE=never",
		"GIT_OPTIONAL_LOCKS=0", "GIT_PAGER=cat", "GIT_EDITOR=false", "LC_ALL=C",
		// A large file that is nowhere must not keep an agent from the others.
		"GIT_LFS_SKIP_DOWNLOAD_ERRORS=1",
	)
}

// call is one run of git.
type call struct {
	args []string
	repo *repository
	// create is set for the call that makes a repository.
	create bool
	// at is set for calls that reach the network.
	at *remote
	// stdin is given to git.
	stdin string
	// held are the locks that must last as long as git does.
	held []*lock
	// doing and progress tell people what takes so long; progress may be nil.
	doing    string
	progress func(string)
}

// run runs git to its end and returns what it printed. Any failure is a
// *GitError.
func (m *Manager) run(ctx context.Context, c call) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cred, err := m.credentials(ctx, c.at)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, m.git, m.argv(c, cred)...) //nolint:gosec // the program is git, found by New
	cmd.Env = slices.Concat(m.environ, []string{"GIT_ALLOW_PROTOCOL=" + m.protocols()}, cred.env, c.env())
	cmd.Dir = c.repo.cwd()
	for _, l := range c.held {
		cmd.ExtraFiles = append(cmd.ExtraFiles, l.f)
	}
	// A session of its own: ssh finds no terminal to ask on, Ctrl-C in ours does
	// not reach it, and all that git starts can be ended together.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = termGrace
	cmd.Stdin = strings.NewReader(c.stdin)
	var stdout bytes.Buffer
	said := &listener{}
	said.heard = time.Now()
	cmd.Stdout, cmd.Stderr = &stdout, said

	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { m.watch(c, said, cancel, done) })
	err = cmd.Run()
	close(done)
	watching.Wait()
	if err == nil {
		return stdout.String(), nil
	}
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what git has left running
	}
	e := &GitError{Args: c.args, Status: -1, Stderr: cred.scrub(said.end())}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		e.Err = context.Cause(ctx)
	case errors.As(err, &exit) && exit.Exited():
		e.Status = exit.ExitCode()
	default:
		e.Err = err
	}
	return stdout.String(), e
}

// env says which repository git is to use; it must never look for one itself.
func (c call) env() []string {
	switch {
	case c.create:
		return nil
	case c.repo == nil:
		return []string{"GIT_DIR=" + os.DevNull}
	default:
		return c.repo.env()
	}
}

func (m *Manager) argv(c call, cred credentials) []string {
	var argv []string
	conf := slices.Concat(always, cred.config)
	if m.lfs {
		conf = append(conf, withLFS...)
	} else {
		conf = append(conf, noLFS...)
	}
	for _, kv := range conf {
		argv = append(argv, "-c", kv)
	}
	return append(argv, c.args...)
}

func (m *Manager) protocols() string {
	if m.cfg.Local {
		return "https:ssh:http:file"
	}
	return "https:ssh"
}

// watch reports until done is closed, and ends a git that says nothing.
func (m *Manager) watch(c call, said *listener, cancel context.CancelCauseFunc, done <-chan struct{}) {
	start := time.Now()
	tick := time.NewTicker(min(m.cfg.ProgressEvery, m.cfg.StallAfter))
	defer tick.Stop()
	if c.progress != nil {
		c.progress(c.doing)
	}
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		line, at := said.latest()
		if time.Since(at) >= m.cfg.StallAfter {
			cancel(fmt.Errorf("%w (%s)", ErrStalled, m.cfg.StallAfter))
		}
		if c.progress == nil {
			continue
		}
		text := fmt.Sprintf("%s (%s)", c.doing, time.Since(start).Round(time.Second))
		if line != "" {
			text += ": " + line
		}
		c.progress(text)
	}
}

// credentials is what one call needs to authenticate with.
type credentials struct {
	config []string
	env    []string
	token  string
}

func (m *Manager) credentials(ctx context.Context, at *remote) (credentials, error) {
	if at == nil || at.site == "" || !strings.EqualFold(at.host, m.cfg.TokenHost) {
		return credentials{}, nil
	}
	var c credentials
	switch {
	case m.cfg.TokenFunc != nil:
		token, err := m.cfg.TokenFunc(ctx)
		if err != nil {
			return credentials{}, fmt.Errorf("get a token for %s: %w", at.site, err)
		}
		if token == "" {
			return credentials{}, nil
		}
		c = credentials{env: []string{tokenVar + "=" + token}, token: token}
	case m.cfg.TokenFile != "":
		b, err := os.ReadFile(m.cfg.TokenFile)
		if err != nil {
			return credentials{}, fmt.Errorf("read the token for %s: %w", at.site, err)
		}
		c = credentials{env: []string{fileVar + "=" + m.cfg.TokenFile}, token: strings.TrimSpace(string(b))}
	default:
		return credentials{}, nil
	}
	// An operator's helper that stores what worked must not get our token.
	key := "credential." + at.site + ".helper="
	c.config = []string{key, key + helper}
	return c, nil
}

var userinfo = regexp.MustCompile(`://[^/@\s]+@`)

// scrub removes what must not be read, should git ever say it.
func (c credentials) scrub(s string) string {
	if c.token != "" {
		s = strings.ReplaceAll(s, c.token, "***")
	}
	return userinfo.ReplaceAllString(s, "://")
}
