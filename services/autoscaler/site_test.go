package autoscaler

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"flightline/services/autoscaler/driver"
	"flightline/shared/bus/bustest"
	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/streams"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for a fact.
const patience = 2 * time.Minute

// site is a bus with a running registry and queue.
type site struct {
	t *testing.T
	*bustest.Bus
	registry *registry.Registry
	queue    *queue.Queue
	podTTL   time.Duration // of each registry, 0 for the usual
}

// newSite lets the test run beside others.
func newSite(t *testing.T) *site {
	t.Helper()
	return newSiteOf(t, 0)
}

// newSiteOf is newSite with another TTL of the records of pods.
func newSiteOf(t *testing.T, podTTL time.Duration) *site {
	t.Helper()
	t.Parallel()
	s := &site{t: t, Bus: bustest.New(t), podTTL: podTTL}
	if err := streams.Apply(t.Context(), s.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	s.registry, s.queue = s.peer()
	return s
}

// peer is what another process would have.
func (s *site) peer() (*registry.Registry, *queue.Queue) {
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
	s.background(reg.Run)
	s.background(q.Run)
	return reg, q
}

// background runs f until stop is called, or the test ends.
func (s *site) background(f func(context.Context) error) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f(ctx); err != nil {
			s.t.Errorf("run: got %v, want nil", err)
		}
	})
	stop = func() {
		cancel()
		wg.Wait()
	}
	s.t.Cleanup(stop)
	return stop
}

// autoscaler runs one that always leads, on a registry of its own.
func (s *site) autoscaler(drivers ...driver.Driver) (stop func()) {
	s.t.Helper()
	return s.autoscalerOf(Config{}, drivers...)
}

func (s *site) autoscalerOf(cfg Config, drivers ...driver.Driver) (stop func()) {
	s.t.Helper()
	reg, q := s.peer()
	cfg.Every, cfg.DrainTime, cfg.Grace = 50*time.Millisecond, cmp.Or(cfg.DrainTime, 2*time.Second), time.Second
	a, err := New(cfg, Deps{Queue: q, Registry: reg, Drivers: drivers})
	if err != nil {
		s.t.Fatal(err)
	}
	return s.background(a.Run)
}

func (s *site) endpoint(id string, change ...func(*endpoint.Endpoint)) endpoint.Endpoint {
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

func (s *site) update(id string, change func(*endpoint.Endpoint)) {
	s.t.Helper()
	if _, err := s.registry.Endpoints.Update(s.t.Context(), id, func(e endpoint.Endpoint) (endpoint.Endpoint, error) {
		change(&e)
		return e, nil
	}); err != nil {
		s.t.Fatal(err)
	}
}

// eventually waits until missing returns "".
func (s *site) eventually(missing func() string) {
	s.t.Helper()
	for end := time.Now().Add(patience); ; {
		still := missing()
		if still == "" {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("still not: %s", still)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// status waits until the pod has it, and returns the pod.
func (s *site) status(id string, want pod.Status) (p pod.Pod) {
	s.t.Helper()
	s.eventually(func() string {
		var err error
		if p, err = s.registry.Pods.Get(s.t.Context(), id); err == nil && p.Status == want {
			return ""
		}
		return fmt.Sprintf("pod %s: got %s (%s), %v, want %s", id, p.Status, p.Change, err, want)
	})
	return p
}
