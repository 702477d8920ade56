package worker

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"flightline/shared/bus/bustest"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	sdk "flightline/shared/worker"
	"flightline/streams"
)

// soon bounds each wait for a fact.
const soon = 2 * time.Minute

// site is a bus with one endpoint, and a caller's view of its queue.
type site struct {
	*bustest.Bus
	q *queue.Queue
	e endpoint.Endpoint
}

func newSite(t *testing.T) *site {
	t.Helper()
	b := bustest.New(t)
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	reg, err := registry.New(t.Context(), b.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{Bus: b}
	if s.e, err = reg.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: "ep"}); err != nil {
		t.Fatal(err)
	}
	if s.q, err = queue.New(t.Context(), b.NC, queue.Config{}); err != nil {
		t.Fatal(err)
	}
	background(t, s.q.Run)
	if err := s.q.CreateEndpoint(t.Context(), s.e); err != nil {
		t.Fatal(err)
	}
	return s
}

// background runs part until the test ends, and stops it.
func background(t *testing.T, part func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- part(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// shell runs a worker whose command is a script.
func (s *site) shell(t *testing.T, script string) {
	t.Helper()
	s.run(t, Config{Command: []string{"sh", "-c", script}, Dir: t.TempDir()})
}

// serve runs a worker whose handler is an HTTP server.
func (s *site) serve(t *testing.T, h http.HandlerFunc) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	s.run(t, Config{URL: server.URL})
}

func (s *site) run(t *testing.T, cfg Config) {
	t.Helper()
	cfg.Worker = sdk.Config{NC: s.Connect(t), Endpoint: s.e.ID, Grace: -1}
	service, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	background(t, service.Run)
}

func (s *site) submit(t *testing.T, change ...func(*job.Request)) job.ID {
	t.Helper()
	r := job.Request{Input: json.RawMessage(`{"text":"hi"}`)}
	for _, c := range change {
		c(&r)
	}
	id := queue.NewID(job.Async)
	if _, err := s.q.Submit(t.Context(), s.e, id, job.Async, r); err != nil {
		t.Fatal(err)
	}
	return id
}

// ended waits for the job's outcome.
func (s *site) ended(t *testing.T, id job.ID) *job.Job {
	t.Helper()
	w, err := s.q.Watch(s.e, id)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	j, err := w.Wait(ctx)
	if err != nil {
		t.Fatalf("wait for job %s: %v", id, err)
	}
	return j
}

// chunks are the outputs that the job has emitted.
func (s *site) chunks(t *testing.T, id job.ID) []string {
	t.Helper()
	chunks, err := s.q.Chunks(t.Context(), s.e, id, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, c := range chunks {
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

// until repeats a look at a fact until it holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	late := time.After(soon)
	for !holds() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-late:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
