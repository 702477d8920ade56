package worker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/shared/testenv/backend"
	"flightline/shared/worker"
	"flightline/streams"
)

// lease is shorter than an operator may set it, for tests that outlast it. A
// busy machine may stop a living worker for as long: others have an endpoint
// whose lease is longer than any such pause.
const lease = time.Second

// brief sets that lease.
func brief(e *endpoint.Endpoint) { e.Lease = lease }

// soon bounds each wait for a fact.
const soon = 2 * time.Minute

// env is a bus with one endpoint, and a caller's view of its queue.
type env struct {
	*testenv.Server
	q   *queue.Queue
	reg *registry.Registry
	e   endpoint.Endpoint
}

func newEnv(t *testing.T, change ...func(*endpoint.Endpoint)) *env {
	t.Helper()
	return newEnvOn(t, testenv.NewServer(t), change...)
}

func newEnvOn(t *testing.T, b *testenv.Server, change ...func(*endpoint.Endpoint)) *env {
	t.Helper()
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	e, err := endpoint.Endpoint{ID: "ep", Created: time.Now().UTC()}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	e.Lease = soon
	for _, c := range change {
		c(&e)
	}
	table, err := registry.OpenTable[endpoint.Endpoint](t.Context(), b.JS, streams.BucketEndpoints)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Create(t.Context(), e.ID, e); err != nil { // not Endpoints.Create, which knows the bounds
		t.Fatal(err)
	}
	s := &env{Server: b, e: e}
	if s.q, err = queue.New(t.Context(), b.NC, queue.Config{}); err != nil {
		t.Fatal(err)
	}
	if s.reg, err = registry.New(t.Context(), b.JS, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.reg.Endpoints.RepairWorkerCopies(t.Context()); err != nil {
		t.Fatal(err)
	}
	testenv.Background(t, s.q.Run)
	if err := s.q.CreateEndpoint(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	return s
}

// running is a worker in the background.
type running struct {
	t    *testing.T
	stop context.CancelFunc // as SIGTERM does
	done chan error
	once sync.Once
	err  error
}

// run starts a worker with a connection of its own and waits until it takes
// jobs; it is stopped with the test.
func (s *env) run(t *testing.T, cfg worker.Config, h worker.Handler) *running {
	t.Helper()
	return s.runAt(t, s.Config().URL, cfg, h)
}

// runAt is run with another address of the bus.
func (s *env) runAt(t *testing.T, url string, cfg worker.Config, h worker.Handler) *running {
	t.Helper()
	return s.start(t, url, cfg, func(ctx context.Context, cfg worker.Config) error { return worker.Run(ctx, cfg, h) })
}

// start starts a worker with run and waits until it takes jobs.
func (s *env) start(t *testing.T, url string, cfg worker.Config, run func(context.Context, worker.Config) error) *running {
	t.Helper()
	cfg.Endpoint = s.e.ID
	cfg.NATSURL, cfg.User, cfg.Password = url, s.Config().User, s.Config().Password
	ready := make(chan struct{})
	cfg.OnReady = func() { close(ready) }
	ctx, stop := context.WithCancel(context.Background())
	w := &running{t: t, stop: stop, done: make(chan error, 1)}
	go func() { w.done <- run(ctx, cfg) }()
	t.Cleanup(func() {
		stop()
		_ = w.wait()
	})
	select {
	case <-ready:
	case err := <-w.done:
		t.Fatalf("worker ended: %v", err)
	}
	return w
}

// wait returns what Run returned.
func (w *running) wait() error {
	w.t.Helper()
	w.once.Do(func() { w.err = got(w.t, w.done, "the end of the worker") })
	return w.err
}

func (s *env) submit(t *testing.T, change ...func(*job.Request)) job.ID {
	t.Helper()
	return backend.Submit(t, s.q, s.e, change...)
}

// ended waits for the job's outcome.
func (s *env) ended(t *testing.T, id job.ID) *job.Job {
	t.Helper()
	return backend.Ended(t, s.q, s.e, id)
}

// wantEnd waits for the job's outcome and compares.
func (s *env) wantEnd(t *testing.T, id job.ID, status job.Status, output, text string) *job.Job {
	t.Helper()
	j := s.ended(t, id)
	if j.Status != status || string(j.Output) != output || j.Error != text {
		t.Errorf("job: got %s %s %q, want %s %s %q", j.Status, j.Output, j.Error, status, output, text)
	}
	return j
}

// got receives, or fails the test.
func got[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(soon):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}
