package control

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"flightline/shared/api"
	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/shared/testenv/backend"
	"flightline/shared/web"
	"flightline/streams"
)

func TestMain(m *testing.M) {
	testenv.SetParallel()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}

const (
	// patience bounds every wait for a fact.
	patience = 2 * time.Minute
	// noise is what a busy machine may add to a time that is promised.
	noise      = 20 * time.Second
	controlKey = "control-key-of-the-test"
)

// env is /v1 on a real listener, on a bus of its own.
type env struct {
	t        *testing.T
	bus      *testenv.Server
	queue    *queue.Queue
	registry *registry.Registry
	service  *Service
	base     string
	durable  func(ctx context.Context, stream string) error // nil: no barrier
	system   func(ctx context.Context, stream string) (api.System, error)
}

func start(t *testing.T) *env {
	t.Helper()
	return startWith(t, nil)
}

// startWith lets other tests run meanwhile: most of what an env takes is
// waiting for its bus to begin and to end.
func startWith(t *testing.T, durable func(ctx context.Context, stream string) error) *env {
	t.Helper()
	t.Parallel()
	s := &env{t: t, bus: testenv.NewServer(t), durable: durable}
	testenv.Retry(t, s.open)
	app := web.New(web.Config{})
	s.service.Routes(app)
	testenv.Background(t, s.registry.Run)
	testenv.Background(t, s.queue.Run)
	s.base = backend.Serve(t, app) + "/v1"
	return s
}

func (s *env) open() (err error) {
	ctx := s.t.Context()
	if err = streams.Apply(ctx, s.bus.JS, streams.Config{Partitions: 4}); err != nil {
		return err
	}
	if s.registry, err = registry.New(ctx, s.bus.JS, nil); err != nil {
		return err
	}
	if s.queue, err = queue.New(ctx, s.bus.NC, queue.Config{Durable: s.durable}); err != nil {
		return err
	}
	if _, err = s.registry.Keys.Put(ctx, controlKey, registry.KeySpec{Scopes: []registry.Scope{{Permission: registry.Control}}}); err != nil {
		return err
	}
	log, err := events.New(s.bus.NC, s.bus.JS, nil)
	if err != nil {
		return err
	}
	system := func(ctx context.Context, stream string) (api.System, error) { return s.system(ctx, stream) }
	s.service, err = New(Config{Partitions: 4}, Deps{Queue: s.queue, Registry: s.registry, Events: log, System: system})
	return err
}

type answer struct {
	status int
	header http.Header
	raw    string
	body   map[string]any // of an object
}

func (s *env) do(method, path, body string) answer {
	s.t.Helper()
	return s.doAs(controlKey, method, path, body)
}

func (s *env) doAs(key, method, path, body string) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	if strings.HasPrefix(a.raw, "{") {
		if err := json.Unmarshal(raw, &a.body); err != nil {
			s.t.Fatalf("%s %s: %q: %v", method, path, raw, err)
		}
	}
	return a
}

// expect compares the status and, of an error, the code and part of the text.
func (s *env) expect(what string, got answer, status int, code, text string) {
	s.t.Helper()
	message, _ := got.body["message"].(string)
	switch {
	case got.status != status, code != "" && got.body["code"] != code, !strings.Contains(message, text):
		s.t.Errorf("%s: got %d %s, want %d %s with %q", what, got.status, got.raw, status, code, text)
	case status >= 400 && (got.body["message"] != got.body["error"] || got.body["requestId"] == nil):
		s.t.Errorf("%s: got %s, want error and message the same, and a request id", what, got.raw)
	}
}

// endpoint is the id of an endpoint that exists.
func (s *env) endpoint(id string) endpoint.Endpoint {
	s.t.Helper()
	e, err := s.registry.Endpoints.Get(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

// submit queues a job of the endpoint.
func (s *env) submit(e endpoint.Endpoint, change ...func(*job.Request)) job.ID {
	s.t.Helper()
	id, request := queue.NewID(job.Async), job.Request{Input: []byte(`{}`)}
	for _, with := range change {
		with(&request)
	}
	if _, err := s.queue.Submit(s.t.Context(), e, id, job.Async, request); err != nil {
		s.t.Fatal(err)
	}
	return id
}
