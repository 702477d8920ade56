package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/shared/testenv/backend"
	"flightline/shared/web"
)

func TestMain(m *testing.M) {
	testenv.SetParallel()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}

const (
	// patience bounds every wait for a fact.
	patience = 2 * time.Minute
	// noise is what a machine that is busy with something else may add to a time
	// that the API promises.
	noise    = 20 * time.Second
	adminKey = backend.Key
)

// env is the API on a real listener, on a bus of its own, with the
// endpoint "ep".
type env struct {
	t        *testing.T
	at       *backend.Env
	bus      *testenv.Server
	conn     *nats.Conn   // of the API's queue alone
	queue    *queue.Queue // of the workers
	registry *registry.Registry
	endpoint endpoint.Endpoint
	base     string
	service  *Service
}

func start(t *testing.T) *env {
	t.Helper()
	return startWith(t, eventsOf)
}

// startWith starts an env whose API has this log of events.
func startWith(t *testing.T, log func(s *env) *events.Log) *env {
	t.Helper()
	at := backend.New(t)
	s := &env{t: t, at: at, bus: at.Bus, queue: at.Queue, registry: at.Registry, endpoint: at.Endpoint}
	s.conn = s.bus.Connect(t)
	served, err := queue.New(t.Context(), s.conn, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Background(t, served.Run)
	s.serve(Config{}, Deps{Queue: served, Registry: s.registry, Events: log(s)})
	return s
}

// serve makes an instance of the API the one that is asked.
func (s *env) serve(cfg Config, deps Deps, routes ...func(*Service, *fiber.App)) {
	s.t.Helper()
	var err error
	if s.service, err = New(cfg, deps); err != nil {
		s.t.Fatal(err)
	}
	app := web.New(web.Config{Log: slog.New(slog.NewTextHandler(s.t.Output(), nil))})
	s.service.Routes(app)
	for _, add := range routes {
		add(s.service, app)
	}
	s.t.Cleanup(s.service.openAI.Wait)
	s.base = backend.Serve(s.t, app) + "/v2"
}

type answer struct {
	status int
	header http.Header
	raw    string
	body   map[string]any
}

func (a answer) id() string { id, _ := a.body["id"].(string); return id }

// do sends a request with the admin's key; a body of "" is none.
func (s *env) do(method, path, body string) answer {
	s.t.Helper()
	return s.send(s.request(method, path, strings.NewReader(body)))
}

func (s *env) request(method, path string, body io.Reader) *http.Request {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	return req
}

func (s *env) send(req *http.Request) answer {
	s.t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatalf("%s %s: %v", req.Method, req.URL.Path, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	if err := json.Unmarshal(raw, &a.body); err != nil {
		s.t.Fatalf("%s %s: %d %q is no JSON object: %v", req.Method, req.URL.Path, resp.StatusCode, raw, err)
	}
	if got := resp.Header.Get("Content-Type"); got != "application/json" {
		s.t.Errorf("%s %s: got content type %q", req.Method, req.URL.Path, got)
	}
	return a
}

// sendLoosely is send for answers of any form.
func (s *env) sendLoosely(req *http.Request) answer {
	s.t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
}

// submit accepts one job and returns its id.
func (s *env) submit() string {
	s.t.Helper()
	a := s.do("POST", "/ep/run", `{"input":{"n":1}}`)
	if a.status != http.StatusOK || a.id() == "" {
		s.t.Fatalf("run: got %d %s", a.status, a.raw)
	}
	return a.id()
}

// take picks up the next job.
func (s *env) take() *queue.Lease {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	consumer, err := s.queue.Consume(ctx, s.endpoint, "worker-1", 1)
	if err != nil {
		s.t.Fatal(err)
	}
	defer consumer.Close()
	lease, err := consumer.Next(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	return lease
}

func (s *env) complete(output string) {
	s.t.Helper()
	if _, err := s.take().Complete(s.t.Context(), json.RawMessage(output)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *env) fail(text string) {
	s.t.Helper()
	if _, err := s.take().Fail(s.t.Context(), text); err != nil {
		s.t.Fatal(err)
	}
}

// body is a submission of exactly size bytes.
func body(size int) io.Reader {
	const head, tail = `{"input":{"x":"`, `"}}`
	fill := bytes.Repeat([]byte("x"), size-len(head)-len(tail))
	return io.MultiReader(strings.NewReader(head), bytes.NewReader(fill), strings.NewReader(tail))
}
