package workspace

import (
	"errors"
	"strings"
	"testing"

	"loopfleet/pkg/workitem"
)

func TestPickRemote(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		item, given, protocol string
		url, site             string
		bad                   bool
	}{
		"made, https":        {"octo/hello#1", "", HTTPS, "https://github.com/octo/hello.git", "https://github.com", false},
		"made, ssh":          {"octo/hello#1", "", SSH, "ssh://git@github.com/octo/hello.git", "", false},
		"made, dots":         {"octo/next.js#1", "", HTTPS, "https://github.com/octo/next.js.git", "https://github.com", false},
		"made, other host":   {"github:git.example.com:8443/octo/hello#1", "", HTTPS, "https://git.example.com:8443/octo/hello.git", "https://git.example.com:8443", false},
		"other host, ssh":    {"github:git.example.com:8443/octo/hello#1", "", SSH, "ssh://git@git.example.com/octo/hello.git", "", false},
		"case is kept":       {"octo/hello#1", "https://GitHub.com/Octo/Hello.git", HTTPS, "https://github.com/Octo/Hello.git", "https://github.com", false},
		"https to ssh":       {"octo/hello#1", "https://github.com/octo/hello.git", SSH, "ssh://git@github.com/octo/hello.git", "", false},
		"ssh to https":       {"octo/hello#1", "ssh://git@github.com/octo/hello.git", HTTPS, "https://github.com/octo/hello.git", "https://github.com", false},
		"scp to https":       {"octo/hello#1", "git@github.com:octo/hello.git", HTTPS, "https://github.com/octo/hello.git", "https://github.com", false},
		"scp":                {"octo/hello#1", "git@github.com:octo/hello.git", SSH, "ssh://git@github.com/octo/hello.git", "", false},
		"ssh, port and user": {"octo/hello#1", "ssh://org-7@ssh.github.com:443/octo/hello.git", SSH, "ssh://org-7@ssh.github.com:443/octo/hello.git", "", false},
		"user is dropped":    {"octo/hello#1", "https://octo@github.com/octo/hello.git", HTTPS, "https://github.com/octo/hello.git", "https://github.com", false},
		"password":           {"octo/hello#1", "https://x:s3cret@github.com/octo/hello.git", HTTPS, "", "", true},
		"password, broken":   {"octo/hello#1", "https://x:s3cret@github.com:bad/octo/hello.git", HTTPS, "", "", true},
		"another host":       {"octo/hello#1", "https://evil.example/octo/hello.git", HTTPS, "", "", true},
		"suffix of a host":   {"octo/hello#1", "https://evilgithub.com/octo/hello.git", HTTPS, "", "", true},
		"subdomain, https":   {"octo/hello#1", "https://x.github.com/octo/hello.git", HTTPS, "", "", true},
		"plain http":         {"octo/hello#1", "http://github.com/octo/hello.git", HTTPS, "", "", true},
		"git":                {"octo/hello#1", "git://github.com/octo/hello.git", HTTPS, "", "", true},
		"ext":                {"octo/hello#1", "ext::sh -c touch%20pwn", HTTPS, "", "", true},
		"path":               {"octo/hello#1", "/etc", HTTPS, "", "", true},
		"file":               {"octo/hello#1", "file:///etc", HTTPS, "", "", true},
		"option":             {"octo/hello#1", "--upload-pack=touch pwn", HTTPS, "", "", true},
		"option as host":     {"octo/hello#1", "ssh://-oProxyCommand=x/octo/hello.git", SSH, "", "", true},
		"option as user":     {"octo/hello#1", "ssh://-oProxyCommand=x@github.com/octo/hello.git", SSH, "", "", true},
		"option as path":     {"octo/hello#1", "ssh://git@github.com/-x/hello.git", SSH, "", "", true},
		"up":                 {"octo/hello#1", "https://github.com/octo/../other.git", HTTPS, "", "", true},
		"escaped up":         {"octo/hello#1", "https://github.com/octo/%2e%2e/other.git", HTTPS, "", "", true},
		"escaped newline":    {"octo/hello#1", "https://github.com/octo/a%0ahost=evil", HTTPS, "", "", true},
		"query":              {"octo/hello#1", "https://github.com/octo/hello.git?x=1", HTTPS, "", "", true},
		"no path":            {"octo/hello#1", "https://github.com/", HTTPS, "", "", true},
	} {
		item, err := workitem.Parse(tc.item)
		if err != nil {
			t.Fatal(err)
		}
		r, err := pickRemote(item, tc.given, tc.protocol, false)
		if (err != nil) != tc.bad || err != nil && !errors.Is(err, ErrInvalid) || r.url != tc.url || r.site != tc.site {
			t.Errorf("%s: %+v %v", name, r, err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: shows the password: %v", name, err)
		}
	}
}

func TestListener(t *testing.T) {
	t.Parallel()
	var l listener
	for _, chunk := range []string{
		"remote: \x1b[31mhostile\u202e\n", "Receiving objects:  10% (1/10)\rReceiving obj", "ects:  20% (2/10)\r",
		"Receiving objects: 100% (10/10), done.\n", "fatal: \"it\"", " broke\nand more",
	} {
		if n, err := l.Write([]byte(chunk)); n != len(chunk) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got, _ := l.latest(); got != `fatal: "it" broke` {
		t.Errorf("latest is %q", got)
	}
	if got := l.end(); got != `remote: \x1b[31mhostile\u202e; fatal: "it" broke; and more` {
		t.Errorf("end is %q", got)
	}
	if _, err := l.Write([]byte(strings.Repeat("x", 1<<20))); err != nil || len(l.end()) > 5*maxLine*2 {
		t.Errorf("a long line is not cut: %d bytes %v", len(l.end()), err)
	}
}
