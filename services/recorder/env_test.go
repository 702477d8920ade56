package recorder

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

func TestMain(m *testing.M) {
	testenv.SetParallel()
	goleak.VerifyTestMain(m)
}

// patience bounds every wait for a fact.
const patience = 2 * time.Minute

// env is a bus with the endpoint "ep", whose jobs are kept for two seconds.
type env struct {
	NC      *nats.Conn
	JS      jetstream.JetStream
	Connect func(testing.TB) *nats.Conn

	e endpoint.Endpoint
	q *queue.Queue // of the clients and the worker

	mu sync.Mutex
	// want is the ledger, written from the answers to callers: the events of
	// each attempt, in order, by the attempt's part of their subjects.
	want   map[string][]string
	totals events.Totals
	// torn: something went away at any moment, so a copy for a webhook may have
	// been broken off, and stays until it expires.
	torn bool
}

func newEnv(t *testing.T) (*env, *testenv.Server) {
	t.Helper()
	b := testenv.NewServer(t)
	return siteOn(t, &env{NC: b.NC, JS: b.JS, Connect: b.Connect}, 1), b
}

func siteOn(t *testing.T, s *env, replicas int) *env {
	t.Helper()
	if err := streams.Apply(t.Context(), s.JS, streams.Config{Replicas: replicas}); err != nil {
		t.Fatal(err)
	}
	const keep = 2 * time.Second
	e, err := endpoint.Endpoint{ID: "ep", Retention: keep, SyncRetention: keep}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	s.e, s.want = e, map[string][]string{}
	s.q = s.queue(t, s.Connect(t), queue.Config{Replicas: replicas})
	if err := s.q.CreateEndpoint(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	return s
}

// queue makes a process's queue, which removes records at once when they may go.
func (s *env) queue(t *testing.T, nc *nats.Conn, cfg queue.Config) *queue.Queue {
	t.Helper()
	cfg.RemovalGrace = time.Millisecond
	q, err := queue.New(t.Context(), nc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Background(t, q.Run)
	return q
}

// recorder is a process of its own. alone leaves out the election.
type process struct {
	*Service
	nc   *nats.Conn
	stop func()
}

func (s *env) recorder(t *testing.T, name string, point func(*process, Point)) *process {
	t.Helper()
	p := &process{nc: s.Connect(t)}
	js, err := jetstream.New(p.nc)
	if err != nil {
		t.Fatal(err)
	}
	log, err := events.New(p.nc, js, nil)
	if err != nil {
		t.Fatal(err)
	}
	deps := Deps{Queue: s.queue(t, p.nc, queue.Config{}), Events: log}
	if name != "" {
		if deps.Election, err = registry.NewElection(t.Context(), js, "recorder", name, nil); err != nil {
			t.Fatal(err)
		}
	}
	cfg := Config{Log: slog.New(slog.NewTextHandler(t.Output(), nil))} // shown if the test fails
	if point != nil {
		cfg.Point = func(at Point) { point(p, at) }
	}
	if p.Service, err = New(cfg, deps); err != nil {
		t.Fatal(err)
	}
	p.stop = testenv.Background(t, p.Run)
	return p
}

// recorded waits until the recorder has noted that all that was written is recorded.
func (s *env) recorded(t *testing.T, p *process) {
	t.Helper()
	last, err := s.q.Changes.Last(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the recorder's position is saved", func() bool { return p.parts[0].saved.Load() >= last })
}

// kill is as a crash: nothing more reaches the server.
func (p *process) kill() { p.nc.Close() }
