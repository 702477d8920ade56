package autoscaler

import (
	"cmp"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"flightline/services/autoscaler/driver"
	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/pod"
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

// env is a bus with a running registry and queue.
type env struct {
	t *testing.T
	*testenv.Server
	registry *registry.Registry
	queue    *queue.Queue
	podTTL   time.Duration // of each registry, 0 for the usual
	queueOf  *queue.Queue  // if not nil, that of autoscalers
}

// newEnv lets the test run beside others.
func newEnv(t *testing.T) *env {
	t.Helper()
	return newSiteOf(t, 0)
}

// newSiteOf is newEnv with another TTL of the records of pods.
func newSiteOf(t *testing.T, podTTL time.Duration) *env {
	t.Helper()
	t.Parallel()
	return openEnv(t, podTTL)
}

// openEnv is for subtests, which say by themselves that they are parallel, and for tests that
// let no other run meanwhile.
func openEnv(t *testing.T, podTTL time.Duration) *env {
	t.Helper()
	s := &env{t: t, Server: testenv.NewServer(t), podTTL: podTTL}
	if err := streams.Apply(t.Context(), s.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	s.registry, s.queue = s.peer()
	return s
}

// peer is what another process would have.
func (s *env) peer() (*registry.Registry, *queue.Queue) {
	s.t.Helper()
	q, err := queue.New(s.t.Context(), s.Connect(s.t), queue.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	reg, err := registry.New(s.t.Context(), s.JS, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.podTTL > 0 {
		reg.SetPodTTL(s.podTTL)
	}
	testenv.Background(s.t, reg.Run)
	testenv.Background(s.t, q.Run)
	return reg, q
}

// autoscaler runs an autoscaler that always leads, on a registry of its own.
func (s *env) autoscaler(drivers ...driver.Driver) (stop func()) {
	s.t.Helper()
	return s.autoscalerOf(Config{}, drivers...)
}

func (s *env) autoscalerOf(cfg Config, drivers ...driver.Driver) (stop func()) {
	s.t.Helper()
	reg, q := s.peer()
	q = cmp.Or(s.queueOf, q)
	cfg.Every, cfg.DrainTime, cfg.Grace = 50*time.Millisecond, cmp.Or(cfg.DrainTime, 2*time.Second), time.Second
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(s.t.Output(), nil)) // shown if the test fails
	}
	a, err := New(cfg, Deps{Queue: q, Registry: reg, Events: s.events(), Drivers: drivers})
	if err != nil {
		s.t.Fatal(err)
	}
	return testenv.Background(s.t, a.Run)
}

// events is a process's access to the log.
func (s *env) events() *events.Log {
	s.t.Helper()
	l, err := events.New(s.Connect(s.t), s.JS, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

func (s *env) endpoint(id string, change ...func(*endpoint.Endpoint)) endpoint.Endpoint {
	s.t.Helper()
	e := ep(change...)
	e.ID, e.IdleTimeout = id, time.Second
	e, err := s.registry.Endpoints.Create(s.t.Context(), e)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.queue.CreateEndpoint(s.t.Context(), e); err != nil {
		s.t.Fatal(err)
	}
	return e
}

func (s *env) update(id string, change func(*endpoint.Endpoint)) {
	s.t.Helper()
	testenv.Retry(s.t, func() error {
		_, err := s.registry.Endpoints.Update(s.t.Context(), id, func(e endpoint.Endpoint) (endpoint.Endpoint, error) {
			change(&e)
			return e, nil
		})
		return err
	})
}

// status waits until the pod has it, and returns the pod.
func (s *env) status(id string, want pod.Status) (p pod.Pod) {
	s.t.Helper()
	testenv.EventuallyNone(s.t, func() string {
		var err error
		if p, err = s.registry.Pods.Get(s.t.Context(), id); err == nil && p.Status == want {
			return ""
		}
		return fmt.Sprintf("pod %s: got %s (%s), %v, want %s", id, p.Status, p.Change, err, want)
	})
	return p
}
