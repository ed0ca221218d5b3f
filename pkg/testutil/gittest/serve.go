package gittest

import (
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Server serves the repositories below a directory over HTTP.
type Server struct {
	// URL is the address that paths below the directory are added to.
	URL string

	mu   sync.Mutex
	seen []string
}

// Serve starts a server until the end of the test. With a token, it answers
// nobody who does not give that as the password. Hold, unless nil, is called
// before each request is answered.
func Serve(tb testing.TB, environ []string, root, token string, hold func(*http.Request)) *Server {
	tb.Helper()
	path, err := exec.CommandContext(tb.Context(), "git", "--exec-path").Output()
	if err != nil {
		tb.Fatalf("find git's programs: %v", err)
	}
	backend := &cgi.Handler{
		Path:       filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env:        append([]string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"}, environ...),
		InheritEnv: []string{"PATH"},
	}
	s := &Server{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		s.mu.Lock()
		s.seen = append(s.seen, password)
		s.mu.Unlock()
		if token != "" && password != token {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if hold != nil {
			hold(r)
		}
		if p := r.Header.Get("Git-Protocol"); p != "" {
			h := *backend
			h.Env = append(append([]string{}, backend.Env...), "GIT_PROTOCOL="+p)
			h.ServeHTTP(w, r)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	tb.Cleanup(srv.Close)
	s.URL = srv.URL
	return s
}

// Passwords are those that the requests so far carried, in order; empty for
// none.
func (s *Server) Passwords() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.seen...)
}
