package recorder

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"flightline/shared/bus/bustest"
	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/streams"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for a fact.
const patience = 2 * time.Minute

// site is a bus with the endpoint "ep", whose jobs are kept for two seconds.
type site struct {
	NC      *nats.Conn
	JS      jetstream.JetStream
	Connect func(testing.TB) *nats.Conn

	e endpoint.Endpoint
	q *queue.Queue // of the clients and the worker

	mu sync.Mutex
	// want is the ledger, written from what callers were told: the events of
	// each attempt, in order, by the attempt's part of their subjects.
	want   map[string][]string
	totals events.Totals
	// torn: something went away at any moment, so a copy for a webhook may have
	// been broken off, and stays until it expires.
	torn bool
}

func newSite(t *testing.T) (*site, *bustest.Bus) {
	t.Helper()
	b := bustest.New(t)
	return siteOn(t, &site{NC: b.NC, JS: b.JS, Connect: b.Connect}, 1), b
}

func siteOn(t *testing.T, s *site, replicas int) *site {
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
func (s *site) queue(t *testing.T, nc *nats.Conn, cfg queue.Config) *queue.Queue {
	t.Helper()
	cfg.ForgetGrace = time.Millisecond
	q, err := queue.New(t.Context(), nc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	background(t, q.Run)
	return q
}

// background runs f until the test ends or stop is called.
func background(t *testing.T, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// recorder is a process of its own. alone leaves out the election.
type process struct {
	*Service
	nc   *nats.Conn
	stop func()
}

func (s *site) recorder(t *testing.T, name string, point func(*process, Point)) *process {
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
	cfg := Config{}
	if point != nil {
		cfg.Point = func(at Point) { point(p, at) }
	}
	if p.Service, err = New(cfg, deps); err != nil {
		t.Fatal(err)
	}
	p.stop = background(t, p.Run)
	return p
}

// kill is as a crash: nothing more reaches the server.
func (p *process) kill() { p.nc.Close() }

// eventually waits until wrong says nothing.
func (s *site) eventually(t *testing.T, what string, wrong func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		problem := wrong()
		if problem == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("never: %s: %s", what, problem)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
