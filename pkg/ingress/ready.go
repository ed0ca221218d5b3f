package ingress

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"loopfleet/pkg/eventlog"
	"loopfleet/pkg/queue"
	"loopfleet/pkg/registry"
)

const (
	// readyFor is how long an answer about readiness is repeated: anybody may
	// ask, and each look costs the broker requests.
	readyFor = time.Second
	readyIn  = 3 * time.Second
)

// Streams is what Missing asks the broker.
type Streams interface {
	Stream(ctx context.Context, name string) (jetstream.Stream, error)
}

// Missing returns a function that lists what a delivery needs and the broker
// does not have. Connected is the connection's own word.
func Missing(connected func() bool, js Streams) func(ctx context.Context) []string {
	needs := []string{queue.EventsStream, eventlog.Stream}
	for _, b := range []string{registry.RecordsBucket, registry.DedupBucket, registry.LinksBucket, registry.ReposBucket} {
		needs = append(needs, "KV_"+b)
	}
	return func(ctx context.Context) []string {
		if !connected() {
			return []string{"the connection to NATS"}
		}
		var missing []string
		for _, name := range needs {
			if _, err := js.Stream(ctx, name); err != nil {
				missing = append(missing, "stream "+name+": "+err.Error())
			}
		}
		return missing
	}
}

// Readiness is the answer of ReadyPath.
type Readiness struct {
	Ready bool `json:"ready"`
	// Missing says what is not there.
	Missing []string `json:"missing,omitempty"`
}

type readiness struct {
	mu   sync.Mutex
	at   time.Time
	last []string
}

func (s *Server) readyAnswer(ctx context.Context) (status int, body any) {
	missing := s.missing(ctx)
	if len(missing) > 0 {
		return http.StatusServiceUnavailable, Readiness{Missing: missing}
	}
	return http.StatusOK, Readiness{Ready: true}
}

func (s *Server) missing(ctx context.Context) []string {
	r := &s.ready
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.IsZero() || time.Since(r.at) >= readyFor {
		// The answer is for others too, so the asker's leaving does not end it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyIn)
		defer cancel()
		r.last, r.at = s.deps.Missing(ctx), time.Now()
	}
	return r.last
}

func (s *Server) alive(context.Context) (status int, body any) {
	return http.StatusOK, map[string]string{"status": "ok"}
}

func probe(w http.ResponseWriter, r *http.Request, look func(context.Context) (int, any)) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		writeJSON(w, http.StatusMethodNotAllowed, Answer{Outcome: Rejected, Reason: string(wrongMethod)})
		return
	}
	status, body := look(r.Context())
	writeJSON(w, status, body)
}
