package api

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/ratelimit"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

func TestAnEndpointHasItsOwnLimits(t *testing.T) {
	t.Parallel()
	l := start(t).limited(ratelimit.Table{ratelimit.Status: {Requests: 1, Concurrent: 7}, ratelimit.Cancel: {Requests: 1}})
	policy := func(path string) string {
		return l.do("POST", path, "").header.Get("RateLimit-Policy")
	}
	const status, cancel = "/ep/status/nobody", "/ep/cancel/nobody"
	if got, want := policy(status), `"status";q=1;w=10, "status-concurrent";q=7;qu="concurrent-requests"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	l.change(func(e *endpoint.Endpoint) {
		e.Limits = map[string]endpoint.Limit{ratelimit.Status: {Requests: 3}}
	})
	if got, want := policy(status), `"status";q=3;w=10`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := policy(cancel), `"cancel";q=1;w=10`; got != want {
		t.Errorf("what it does not name: got %s, want %s", got, want)
	}
	l.change(func(e *endpoint.Endpoint) { e.Limits = map[string]endpoint.Limit{ratelimit.Status: {}} })
	for range 5 {
		if got := l.do("GET", status, ""); got.status != 404 || got.header.Get("RateLimit-Policy") != "" {
			t.Errorf("without bounds: got %d %q", got.status, got.header.Get("RateLimit-Policy"))
		}
	}
}

func TestRunningWorkersRaiseTheLimits(t *testing.T) {
	t.Parallel()
	l := start(t).limited(ratelimit.Table{ratelimit.Run: {Requests: 10, Concurrent: 3}})
	testenv.Background(t, l.service.Run)
	l.change(func(e *endpoint.Endpoint) { e.RequestsPerWorker = 4 })
	for i, state := range []string{registry.WorkerRunning, registry.WorkerIdle, registry.WorkerRunning, registry.WorkerUnhealthy, registry.WorkerInitializing} {
		err := l.registry.Workers.Beat(t.Context(), registry.Worker{ID: "w" + strconv.Itoa(i), Endpoint: "ep", State: state})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := `"run";q=12;w=10, "run-concurrent";q=12;qu="concurrent-requests"` // 3 that are up
	testenv.Eventually(t, "three workers raise the limits", func() bool {
		l.pass(boundsInterval)
		return l.do("POST", "/ep/run", `{}`).header.Get("RateLimit-Policy") == want
	})
	for i := range 3 {
		if err := l.registry.Workers.Remove(t.Context(), "ep", "w"+strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	want = `"run";q=10;w=10, "run-concurrent";q=3;qu="concurrent-requests"`
	testenv.Eventually(t, "they fall back to the base", func() bool {
		l.pass(boundsInterval)
		return l.do("POST", "/ep/run", `{}`).header.Get("RateLimit-Policy") == want
	})
}

func TestTwoInstancesShareEvenly(t *testing.T) {
	t.Parallel()
	s := start(t)
	table := ratelimit.Table{ratelimit.Status: {Requests: 7}}
	pair := []*limited{s.limited(table), s.limited(table)}
	for _, l := range pair {
		testenv.Background(t, l.service.Run)
	}
	for _, l := range pair {
		testenv.Eventually(t, "it knows of the other", func() bool { return l.service.limits.fleet.Load().instances == 2 })
	}
	var passed []int
	for _, l := range pair {
		n := 0
		for l.do("GET", "/ep/status/nobody", "").status != 429 {
			n++
		}
		got := l.do("GET", "/ep/status/nobody", "")
		if !strings.Contains(got.raw, "allows 7 in 10 s") || got.header.Get("RateLimit-Policy") != `"status";q=7;w=10` {
			t.Errorf("want the whole limit named, got %s %s", got.raw, got.header.Get("RateLimit-Policy"))
		}
		passed = append(passed, n)
	}
	if want := []int{4, 4}; !slices.Equal(passed, want) {
		t.Errorf("got %v passed, want %v: half of 7 each, rounded up", passed, want)
	}
}

func TestIdleEndpointsCostNothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	l := s.limited(ratelimit.Defaults())
	l.do("GET", "/ep/status/nobody", "")
	o := l.service.limits.operations[ratelimit.Status]
	o.sweep(ratelimit.Span - 1)
	if n := len(o.gates); n != 1 {
		t.Errorf("got %d gates within the window, want 1", n)
	}
	o.sweep(ratelimit.Span)
	if n := len(o.gates); n != 0 {
		t.Errorf("got %d gates after the window, want 0", n)
	}
}

func TestWithoutLimitsThereAreNoHeaders(t *testing.T) {
	t.Parallel()
	s := start(t)
	for range 5 { // over the default of purge-queue
		got := s.do("POST", "/ep/purge-queue", "")
		if got.status != 200 || got.header.Get("RateLimit") != "" || got.header.Get("RateLimit-Policy") != "" {
			t.Errorf("got %d with %v", got.status, got.header)
		}
	}
}

// While nobody can be asked, what was known holds, and answers tell it.
func TestLimitsHoldWithoutTheBus(t *testing.T) {
	t.Parallel()
	s := start(t)
	l := s.limited(ratelimit.Table{ratelimit.Status: {Requests: 2}}, func(s *Service, app *fiber.App) {
		app.Get("/v2/:endpoint/open/:id", s.limited(ratelimit.Status), s.forJob(s.status)) // keys may not be known yet
	})
	l.do("GET", "/ep/open/nobody", "")
	s.bus.Stop()
	l.pass(boundsInterval)
	if got := l.do("GET", "/ep/open/nobody", ""); got.status != 503 || got.header.Get("RateLimit") != `"status";r=0;t=9` {
		t.Errorf("got %d %v", got.status, got.header)
	}
}
