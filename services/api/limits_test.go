package api

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/ratelimit"
	"flightline/shared/testenv"
)

// limited is one more instance, with limits and a clock of its own, on the bus
// of an env.
type limited struct {
	*env
	now atomic.Int64
}

func (s *env) limited(table ratelimit.Table, routes ...func(*Service, *fiber.App)) *limited {
	s.t.Helper()
	own := *s
	l := &limited{env: &own}
	withClock := func(service *Service, _ *fiber.App) {
		service.limits.clock = func() time.Duration { return time.Duration(l.now.Load()) }
	}
	l.serve(Config{Limits: table}, Deps{Queue: s.queue, Registry: s.registry, Events: s.at.Events(s.t)}, append(routes, withClock)...)
	return l
}

func (l *limited) pass(d time.Duration) { l.now.Add(int64(d)) }

// change gives the endpoint other settings and waits until instances know.
func (l *limited) change(change func(*endpoint.Endpoint)) {
	l.t.Helper()
	changed, err := l.registry.Endpoints.Update(l.t.Context(), "ep", func(e endpoint.Endpoint) (endpoint.Endpoint, error) {
		change(&e)
		return e, nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	testenv.Eventually(l.t, "the change is seen", func() bool {
		e, err := l.registry.Endpoints.Get(l.t.Context(), "ep")
		return err == nil && e.Version == changed.Version
	})
	l.pass(boundsInterval)
}

// operations are all that have limits and are served by now, as requests that
// need no job.
var operations = map[string]struct{ method, path, body string }{
	ratelimit.Run:        {"POST", "/ep/run", `{"input":{}}`},
	ratelimit.RunSync:    {"POST", "/ep/runsync?wait=1000", `{}`}, // a 400 counts as well
	ratelimit.Status:     {"GET", "/ep/status/nobody", ""},
	ratelimit.Cancel:     {"POST", "/ep/cancel/nobody", ""},
	ratelimit.Retry:      {"POST", "/ep/retry/nobody", ""},
	ratelimit.PurgeQueue: {"POST", "/ep/purge-queue", ""},
	ratelimit.Explain:    {"GET", "/ep/explain/nobody", ""},
	ratelimit.Scale:      {"GET", "/ep/scale", ""},
}

func TestEachOperationHasARateAndRecovers(t *testing.T) {
	t.Parallel()
	table := ratelimit.Table{}
	for i, name := range slices.Sorted(maps.Keys(operations)) {
		table[name] = ratelimit.Bounds{Requests: 2 + i}
	}
	l := start(t).limited(table)
	for name, op := range operations {
		bound := table[name].Requests
		for i := range bound {
			got := l.do(op.method, op.path, op.body)
			want := fmt.Sprintf(`"%s";r=%d;t=10`, name, bound-1-i)
			if got.status == 429 || got.header.Get("RateLimit") != want {
				t.Errorf("%s, request %d of %d: got %d %s and RateLimit %s, want %s", name, i+1, bound, got.status, got.raw, got.header.Get("RateLimit"), want)
			}
		}
	}
	l.pass(ratelimit.Span - 2*time.Second)
	for name, op := range operations {
		got, what := l.do(op.method, op.path, op.body), name+" requests"
		if name == ratelimit.Requests {
			what = "requests to /requests"
		}
		if got.status != 429 || got.body["code"] != "too_many_requests" || !strings.Contains(got.raw, "too many "+what) {
			t.Errorf("%s over its limit: got %d %s", name, got.status, got.raw)
		}
		want := http.Header{
			"Retry-After": {"2"}, "Ratelimit": {fmt.Sprintf(`"%s";r=0;t=2`, name)},
			"Ratelimit-Policy": {fmt.Sprintf(`"%s";q=%d;w=10`, name, table[name].Requests)},
		}
		for key, value := range want {
			if !slices.Equal(got.header[key], value) {
				t.Errorf("%s: got %s %q, want %q", name, key, got.header[key], value)
			}
		}
	}
	l.pass(2 * time.Second)
	for name, op := range operations {
		if got := l.do(op.method, op.path, op.body); got.status == 429 {
			t.Errorf("%s after its window: got %d %s", name, got.status, got.raw)
		}
	}
}

func TestAllFormsOfStatusCountAsOne(t *testing.T) {
	t.Parallel()
	l := start(t).limited(ratelimit.Table{ratelimit.Status: {Requests: 4}})
	for i, call := range []string{"GET /ep/status/x", "POST /ep/status/x", "GET /ep/status-sync/x", "POST /ep/status-sync/x", "GET /ep/status/x", "POST /ep/status-sync/x"} {
		method, path, _ := strings.Cut(call, " ")
		if got := l.do(method, path, ""); (got.status == 429) != (i >= 4) {
			t.Errorf("request %d, %s: got %d", i, call, got.status)
		}
	}
}

func TestWhoIsNotLetInSpendsNothingAndLearnsNothing(t *testing.T) {
	t.Parallel()
	l := start(t).limited(ratelimit.Table{ratelimit.Run: {Requests: 1}})
	for range 3 {
		req := l.request("POST", "/ep/run", strings.NewReader(`{"input":{}}`))
		req.Header.Set("Authorization", "Bearer nobody")
		if got := l.send(req); got.status != 401 || got.header.Get("RateLimit") != "" {
			t.Errorf("got %d and %q, want 401 without quota", got.status, got.header.Get("RateLimit"))
		}
	}
	if got := l.do("POST", "/nobody/run", `{"input":{}}`); got.status != 404 {
		t.Errorf("unknown endpoint: got %d %s", got.status, got.raw)
	}
	if n := len(l.service.limits.operations[ratelimit.Run].gates); n != 0 {
		t.Errorf("got %d gates, want none for strangers and unknown endpoints", n)
	}
	if got := l.do("POST", "/ep/run", `{"input":{}}`); got.status != 200 {
		t.Errorf("got %d %s, want the whole quota left", got.status, got.raw)
	}
}

func TestRefusedBeforeTheBodyIsParsed(t *testing.T) {
	t.Parallel()
	l := start(t).limited(ratelimit.Table{ratelimit.Run: {Requests: 1}})
	l.do("POST", "/ep/run", `{"input":{}}`)
	for _, body := range []string{"{", strings.Repeat("x", 11<<20)} {
		if got := l.do("POST", "/ep/run", body); got.status != 429 {
			t.Errorf("%d bytes: got %d %s, want 429", len(body), got.status, got.raw)
		}
	}
}
