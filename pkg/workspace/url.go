package workspace

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"loopfleet/pkg/workitem"
)

var (
	scpForm  = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9._-]*)@([A-Za-z0-9][A-Za-z0-9.-]*):([^/:].*)$`)
	sshUser  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)
	hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
)

// remote is where a repository is.
type remote struct {
	// url has no secret in it.
	url string
	// site is scheme://host[:port] of an http or https address, else empty.
	site string
	// host is that host, with its port.
	host string
}

// remoteOf turns the address that the forge gave into the one to use. Only
// addresses on the item's own host are taken.
func (m *Manager) remoteOf(item workitem.Ref, given string) (remote, error) {
	r, err := pickRemote(item, given, m.cfg.Protocol, m.cfg.Local)
	if err != nil {
		return remote{}, fmt.Errorf("address of the repository of %s: %w", item, err)
	}
	return r, nil
}

func pickRemote(item workitem.Ref, given, protocol string, local bool) (remote, error) {
	if local && filepath.IsAbs(given) {
		return remote{url: filepath.Clean(given)}, nil
	}
	if given == "" {
		given = (&url.URL{Scheme: HTTPS, Host: item.Host, Path: "/" + item.Owner + "/" + item.Repo + ".git"}).String()
	}
	if m := scpForm.FindStringSubmatch(given); m != nil {
		given = "ssh://" + m[1] + "@" + m[2] + "/" + m[3]
	}
	u, err := url.Parse(given)
	if err != nil {
		return remote{}, fmt.Errorf("%w: not an address", ErrInvalid) // url.Error would show a password
	}
	if _, ok := u.User.Password(); ok {
		return remote{}, fmt.Errorf("%w: it carries a password; use a token file or a helper of git", ErrInvalid)
	}
	if err := checkPath(u); err != nil {
		return remote{}, err
	}
	name, _, _ := strings.Cut(item.Host, ":")
	host := strings.ToLower(u.Hostname())
	switch u.Scheme {
	case HTTPS, SSH:
		if host != name && (u.Scheme != SSH || !strings.HasSuffix(host, "."+name)) {
			return remote{}, fmt.Errorf("%w: it is on %q, the item is on %q", ErrInvalid, host, item.Host)
		}
	case "http":
		if ip := net.ParseIP(host); !local || ip == nil || !ip.IsLoopback() {
			return remote{}, fmt.Errorf("%w: plain http would show the token to everybody: use https or ssh", ErrInvalid)
		}
		return remote{url: (&url.URL{Scheme: "http", Host: u.Host, Path: u.Path}).String(), site: "http://" + u.Host, host: u.Host}, nil
	default:
		return remote{}, fmt.Errorf("%w: the protocol %q is not taken: use https or ssh", ErrInvalid, u.Scheme)
	}
	if protocol == SSH {
		return sshRemote(u, name)
	}
	h, ok := workitem.HostOf("https://" + item.Host)
	if !ok {
		return remote{}, fmt.Errorf("%w: host %q", ErrInvalid, item.Host)
	}
	return remote{url: (&url.URL{Scheme: HTTPS, Host: h, Path: u.Path}).String(), site: "https://" + h, host: h}, nil
}

func sshRemote(u *url.URL, name string) (remote, error) {
	out := url.URL{Scheme: SSH, User: url.User("git"), Host: name, Path: u.Path}
	if u.Scheme == SSH {
		out.Host = strings.ToLower(u.Host)
		if user := u.User.Username(); user != "" {
			out.User = url.User(user)
		}
	}
	if !hostName.MatchString(out.Hostname()) || !sshUser.MatchString(out.User.Username()) {
		return remote{}, fmt.Errorf("%w: ssh user or host %q", ErrInvalid, out.User.Username()+"@"+out.Host)
	}
	return remote{url: out.String()}, nil
}

// checkPath refuses what could mean another thing to a program on the way.
func checkPath(u *url.URL) error {
	if u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" || len(u.Path) < 2 || u.Path[0] != '/' {
		return fmt.Errorf("%w: no plain path to a repository", ErrInvalid)
	}
	for seg := range strings.SplitSeq(u.Path[1:], "/") {
		if seg == "" || seg == "." || seg == ".." || seg[0] == '-' {
			return fmt.Errorf("%w: path %q", ErrInvalid, u.Path)
		}
	}
	if strings.ContainsFunc(u.Path, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return fmt.Errorf("%w: path %q", ErrInvalid, u.Path)
	}
	return nil
}
