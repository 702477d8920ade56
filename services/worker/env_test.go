package worker

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/shared/testenv/backend"
	sdk "flightline/shared/worker"
	"flightline/streams"
)

// soon bounds each wait for a fact.
const soon = 2 * time.Minute

// env is a bus with one endpoint, and a caller's view of its queue.
type env struct {
	*testenv.Server
	q *queue.Queue
	e endpoint.Endpoint
}

func newEnv(t *testing.T) *env {
	t.Helper()
	b := testenv.NewServer(t)
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	reg, err := registry.New(t.Context(), b.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &env{Server: b}
	if s.e, err = reg.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: "ep"}); err != nil {
		t.Fatal(err)
	}
	if s.q, err = queue.New(t.Context(), b.NC, queue.Config{}); err != nil {
		t.Fatal(err)
	}
	testenv.Background(t, s.q.Run)
	if err := s.q.CreateEndpoint(t.Context(), s.e); err != nil {
		t.Fatal(err)
	}
	return s
}

// shell runs a worker whose command is a script.
func (s *env) shell(t *testing.T, script string) {
	t.Helper()
	s.run(t, Config{Command: []string{"sh", "-c", script}, Dir: t.TempDir()})
}

// serve runs a worker whose handler is an HTTP server.
func (s *env) serve(t *testing.T, h http.HandlerFunc) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	s.run(t, Config{URL: server.URL})
}

// start runs a worker with the usual grace until stop is called, which returns how it ended.
func (s *env) start(t *testing.T, cfg Config) (stop func() error) {
	t.Helper()
	cfg.Worker = sdk.Config{NC: s.Connect(t), Endpoint: s.e.ID}
	service, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = stop() })
	return stop
}

func (s *env) run(t *testing.T, cfg Config) {
	t.Helper()
	cfg.Worker = sdk.Config{NC: s.Connect(t), Endpoint: s.e.ID, Grace: -1, OnReady: cfg.Worker.OnReady}
	service, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Background(t, service.Run)
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

// chunks are the outputs that the job has emitted.
func (s *env) chunks(t *testing.T, id job.ID) []string {
	t.Helper()
	var all []string
	for _, c := range backend.Chunks(t, s.q, s.e, id) {
		var element struct {
			Output json.RawMessage `json:"output"`
		}
		if err := json.Unmarshal(c.Data, &element); err != nil {
			t.Fatal(err)
		}
		all = append(all, string(element.Output))
	}
	return all
}
