package natstest_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"loopfleet/pkg/testutil/natstest"
	"loopfleet/pkg/testutil/waitfor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func publish(t *testing.T, s *natstest.Server) {
	t.Helper()
	if _, err := s.JS.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s.>"},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.JS.Publish(t.Context(), "s.a", []byte("kept")); err != nil {
		t.Fatal(err)
	}
}

func wantKept(t *testing.T, s *natstest.Server) {
	t.Helper()
	stream, err := s.JS.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	msg, err := stream.GetMsg(t.Context(), 1)
	if err != nil || string(msg.Data) != "kept" {
		t.Fatalf("message after the restart: %v, %v", msg, err)
	}
}

func TestServer_RestartKeepsFilesAndClients(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T, string, ...natstest.Option) *natstest.Server{
		"in process": natstest.Start, "tcp": natstest.StartTCP,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, t.TempDir())
			other := s.Connect(t)
			url := s.URL()
			publish(t, s)
			s.Restart(t)
			wantKept(t, s)
			waitfor.Until(t, "the other connection to be back", other.IsConnected)
			if s.URL() != url {
				t.Errorf("listens on %s, was %s", s.URL(), url)
			}
		})
	}
}

func TestServer_DownIsSeenByClients(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, "")
	s.Down()
	waitfor.Until(t, "the client to notice", func() bool { return s.Conn.Status() != nats.CONNECTED })
	s.Up(t)
	publish(t, s)
	wantKept(t, s)
}

func TestStartTCP_AcceptsAnotherProcess(t *testing.T) {
	t.Parallel()
	if url := os.Getenv("NATSTEST_CHILD_URL"); url != "" {
		nc, err := nats.Connect(url)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.AccountInfo(t.Context()); err != nil {
			t.Fatal(err)
		}
		return
	}
	s := natstest.StartTCP(t, "")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "NATSTEST_CHILD_URL="+s.URL())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
}
