package ingress_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"loopfleet/pkg/event"
	"loopfleet/pkg/ingress"
	"loopfleet/pkg/testutil/githubtest"
	"loopfleet/streams"
)

// BenchmarkIngest measures accepted webhooks beside raw JetStream publishes of
// the same bodies, with as many clients, on the same server, in turn: over real
// HTTP on loopback, with signatures, decoding, lookups and log lines. Server,
// ingress and clients share the machine's cores, so the ratios say more than
// the rates. Run it with
//
//	go test -run '^$' -bench Ingest -benchtime 2000x ./pkg/ingress
//
// x-raw is the ingress's rate as a part of the raw one, x-p99 its p99 as a
// multiple of the raw one. x-cpu is what x-raw would be if CPU time alone
// counted; it stays comparable on a busy machine.
func BenchmarkIngest(b *testing.B) {
	for _, sync := range []struct {
		name   string
		always bool
	}{{"always", true}, {"default", false}} {
		b.Run("sync="+sync.name, func(b *testing.B) {
			for _, size := range []int{2 << 10, 20 << 10} {
				for _, clients := range []int{1, 16, 64} {
					b.Run(fmt.Sprintf("body=%dKiB/clients=%d", size>>10, clients), func(b *testing.B) {
						ingest(b, sync.always, size, clients)
					})
				}
			}
		})
	}
}

// benchSite is an ingress and a raw publisher on one real server.
type benchSite struct {
	js     jetstream.JetStream
	hook   string
	client *http.Client
}

func newBenchSite(b *testing.B, always bool, clients int) *benchSite {
	b.Helper()
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: b.TempDir(), JetStreamMaxStore: 64 << 30,
		SyncAlways: always, MaxPayload: 8 << 20, NoSigs: true, NoLog: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	srv.Start()
	b.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(10 * time.Second) {
		b.Fatal("the server is not ready")
	}
	connect := func() (*nats.Conn, jetstream.JetStream) {
		nc, err := nats.Connect(srv.ClientURL(), nats.ReconnectBufSize(-1))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			b.Fatal(err)
		}
		return nc, js
	}
	_, js := connect()
	if _, err := streams.Apply(b.Context(), js, streams.Options{}); err != nil {
		b.Fatal(err)
	}
	if _, err := js.CreateStream(b.Context(), jetstream.StreamConfig{
		Name: "RAW", Subjects: []string{"raw.>"}, Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew,
		Duplicates: time.Hour, MaxBytes: 2 << 30,
	}); err != nil {
		b.Fatal(err)
	}
	nc, ingressJS := connect()
	cfg := testConfig()
	cfg.Webhooks.GHWebhook.Listen = freeAddress(b)
	ctx, cancel := context.WithCancel(b.Context())
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- ingress.ListenAndServe(ctx, cfg, ingress.Options{
			Conn: nc, JS: ingressJS, Secret: []byte(secret), Log: zerolog.Nop(), Ready: func(url string) { ready <- url },
		})
	}()
	tr := &http.Transport{MaxIdleConnsPerHost: clients}
	b.Cleanup(func() {
		tr.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	s := &benchSite{js: js, client: &http.Client{Transport: tr}}
	select {
	case s.hook = <-ready:
	case err := <-done:
		done <- nil
		b.Fatal(err)
	}
	return s
}

func freeAddress(b *testing.B) string {
	b.Helper()
	l, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func ingest(b *testing.B, always bool, size, clients int) {
	b.Helper()
	s := newBenchSite(b, always, clients)
	template := githubtest.IssueComment("created", 42, armed, githubtest.ID(777_000_000_000), githubtest.Text("TEXT"), githubtest.At(time.Now()))
	// The same bytes but for the comment's id, as large as asked.
	body := template.Body()
	body = bytes.Replace(body, []byte("TEXT"), []byte(strings.Repeat("a", max(4, size-len(body)))), 1)
	with := func(id int64) []byte {
		return bytes.Replace(body, []byte("777000000000"), fmt.Appendf(nil, "%d", 100_000_000_000+id), 1)
	}
	stored := storedSize(b, s, with(1))
	requests := make([][]byte, (b.N/rounds+1+warmUp)*rounds+clients*rounds)
	for i := range requests {
		d := template
		d.GUID = fmt.Sprintf("72d3162e-cc78-11e3-81ab-%012d", i)
		var buf bytes.Buffer
		if err := githubtest.NewRawRequest(b.Context(), s.hook, secret, d, "application/json", with(int64(i)+2)).Write(&buf); err != nil {
			b.Fatal(err)
		}
		requests[i] = buf.Bytes()
	}
	conns := newPool(b, strings.TrimPrefix(strings.TrimSuffix(s.hook, "/webhooks/github"), "http://"), clients)
	var raw, hooks measured
	b.ResetTimer()
	for range rounds { // in turn, so that what else the machine does hits both
		raw.run(b, clients, func(ctx context.Context, _, id int) error {
			m := nats.NewMsg(fmt.Sprintf("raw.%d", id%100))
			m.Data = stored
			_, err := s.js.PublishMsg(ctx, m, jetstream.WithMsgID(fmt.Sprintf("comment-aaaaaaaaaaaaaaaaaaaaaaaa.raw.%d.g0", id)))
			return err
		})
		hooks.run(b, clients, func(_ context.Context, client, id int) error { return conns[client].send(requests[id]) })
	}
	raw.sort()
	hooks.sort()
	ratio, tail := hooks.rate()/raw.rate(), float64(hooks.at(99))/float64(raw.at(99))
	b.ReportMetric(0, "ns/op") // of both together: says nothing
	b.ReportMetric(hooks.rate(), "hooks/s")
	b.ReportMetric(raw.rate(), "raw/s")
	b.ReportMetric(ratio, "x-raw")
	b.ReportMetric(tail, "x-p99")
	b.ReportMetric(float64(hooks.at(50).Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(hooks.at(99).Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(hooks.cpu.Microseconds())/float64(len(hooks.all)), "cpu-us")
	b.ReportMetric(raw.perOp()/hooks.perOp(), "x-cpu")
	if b.N == 1 { // the framework's first guess
		return
	}
	b.Logf("hooks %6.0f/s p50 %6.2f p99 %7.2f ms | raw %6.0f/s p50 %6.2f p99 %7.2f ms | rate x%.2f p99 x%.1f | cpu %.0f and %.0f us",
		hooks.rate(), ms(hooks.at(50)), ms(hooks.at(99)), raw.rate(), ms(raw.at(50)), ms(raw.at(99)), ratio, tail, 1e6*hooks.perOp(), 1e6*raw.perOp())
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// storedSize sends one delivery and returns the message that came of it: what
// is published raw is as large.
func storedSize(b *testing.B, s *benchSite, body []byte) []byte {
	b.Helper()
	d := githubtest.IssueComment("created", 42)
	resp, err := s.client.Do(githubtest.NewRawRequest(b.Context(), s.hook, secret, d, "application/json", body))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		b.Fatal(err)
	}
	st, err := s.js.Stream(b.Context(), streams.Events)
	if err != nil {
		b.Fatal(err)
	}
	m, err := st.GetMsg(b.Context(), 1)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := event.Decode(m.Data); err != nil {
		b.Fatal(err)
	}
	return m.Data
}

const (
	rounds = 5
	// warmUp is how many operations of a round are not measured.
	warmUp = 50
)

// conn is one keep-alive connection of a client that costs little: the load is
// not what is measured.
type conn struct {
	net.Conn
	r *bufio.Reader
}

func newPool(b *testing.B, addr string, n int) []conn {
	b.Helper()
	out := make([]conn, n)
	for i := range out {
		c, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
		out[i] = conn{c, bufio.NewReader(c)}
	}
	return out
}

func (c conn) send(request []byte) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusAccepted || !bytes.Contains(answer, []byte(`"routed"`))) {
		err = fmt.Errorf("answered %d %s", resp.StatusCode, answer)
	}
	return err
}

// measured are operations that as many clients do at once.
type measured struct {
	next atomic.Int64
	took time.Duration
	// cpu is what the whole process used, the server and the load included.
	cpu time.Duration
	all []time.Duration
}

func (m *measured) sort() { slices.Sort(m.all) }

func (m *measured) rate() float64 { return float64(len(m.all)) / m.took.Seconds() }

// perOp is the CPU time of an operation in seconds.
func (m *measured) perOp() float64 { return m.cpu.Seconds() / float64(len(m.all)) }

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (m *measured) at(percent int) time.Duration { return m.all[len(m.all)*percent/100] }

// run does one round of op, which gets its client's number and a new id.
func (m *measured) run(b *testing.B, clients int, op func(ctx context.Context, client, id int) error) {
	b.Helper()
	work := func(n int) []time.Duration {
		var left atomic.Int64
		left.Store(int64(n))
		var mu sync.Mutex
		var all []time.Duration
		var wg sync.WaitGroup
		for c := range clients {
			wg.Go(func() {
				var mine []time.Duration
				for left.Add(-1) >= 0 {
					id := int(m.next.Add(1) - 1)
					start := time.Now()
					if err := op(b.Context(), c, id); err != nil {
						b.Error(err)
						return
					}
					mine = append(mine, time.Since(start))
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, mine...)
			})
		}
		wg.Wait()
		if b.Failed() {
			b.FailNow()
		}
		return all
	}
	work(warmUp)
	start, cpu := time.Now(), cpuTime(b)
	m.all = append(m.all, work(b.N/rounds+1)...)
	m.took += time.Since(start)
	m.cpu += cpuTime(b) - cpu
}
