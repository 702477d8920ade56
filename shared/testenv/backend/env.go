// Package backend gives a test what a service needs: a NATS server with the
// streams, a running registry and queue, an endpoint and an API key. Serve
// answers HTTP requests.
//
// An error fails the test at once, except that a step which times out on a busy
// machine is repeated.
package backend

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/chunks"
	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/shared/web"
	"flightline/streams"
)

// Key is an API key that may do everything.
const Key = "admin-key-of-the-test"

// EndpointID names the endpoint of every Env.
const EndpointID = "ep"

// Env is what a test of a service runs on.
type Env struct {
	Bus      *testenv.Server
	Registry *registry.Registry
	// Queue is on Bus.NC, as is Registry.
	Queue *queue.Queue
	// Endpoint has every setting's default.
	Endpoint endpoint.Endpoint
}

// New makes an Env on a server of its own. All of it runs until the test ends.
func New(t testing.TB) *Env {
	t.Helper()
	return On(t, testenv.NewServer(t))
}

// On is New on a server, or a connection to a cluster, that is there.
func On(t testing.TB, server *testenv.Server) *Env {
	t.Helper()
	ctx, s := t.Context(), &Env{Bus: server}
	for _, step := range []func() error{
		func() error { return streams.Apply(ctx, s.Bus.JS, streams.Config{}) },
		func() (err error) { s.Registry, err = registry.New(ctx, s.Bus.JS, nil); return err },
		func() (err error) { s.Queue, err = queue.New(ctx, s.Bus.NC, queue.Config{}); return err },
		func() error {
			_, err := s.Registry.Keys.Put(ctx, Key, registry.KeySpec{Scopes: registry.AllScopes()})
			return err
		},
		func() error {
			_, err := s.Registry.Endpoints.Create(ctx, endpoint.Endpoint{ID: EndpointID, Created: time.Now()})
			return made(err)
		},
		func() (err error) { s.Endpoint, err = s.Registry.Endpoints.Get(ctx, EndpointID); return err },
		func() error { return s.Queue.CreateEndpoint(ctx, s.Endpoint) },
	} {
		testenv.Retry(t, step)
	}
	testenv.Background(t, s.Registry.Run)
	testenv.Background(t, s.Queue.Run)
	return s
}

// Events opens the log of events.
func (s *Env) Events(t testing.TB) *events.Log {
	t.Helper()
	log, err := events.New(s.Bus.NC, s.Bus.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// Serve answers requests with the app until the test ends, and returns its
// address, as "http://127.0.0.1:1234".
func Serve(t testing.TB, app *fiber.App) (address string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	testenv.Background(t, func(ctx context.Context) error { return web.Serve(ctx, app, listener) })
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return "http://" + listener.Addr().String()
}

// Submit submits a job with the input {"text":"hi"}, unless a change gives it another.
func Submit(t testing.TB, q *queue.Queue, e endpoint.Endpoint, change ...func(*job.Request)) job.ID {
	t.Helper()
	r := job.Request{Input: json.RawMessage(`{"text":"hi"}`)}
	for _, c := range change {
		c(&r)
	}
	id := queue.NewID(job.Async)
	if _, err := q.Submit(t.Context(), e, id, job.Async, r); err != nil {
		t.Fatal(err)
	}
	return id
}

// endTimeout bounds the wait for the end of a job, with room for a busy machine.
const endTimeout = 2 * time.Minute

// Ended waits for the job's outcome.
func Ended(t testing.TB, q *queue.Queue, e endpoint.Endpoint, id job.ID) *job.Job {
	t.Helper()
	w, err := q.Watch(e, id)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), endTimeout)
	defer cancel()
	j, err := w.Wait(ctx)
	if err != nil {
		t.Fatalf("wait for job %s: %v", id, err)
	}
	return j
}

// Chunks reads what the current run of a job has emitted.
func Chunks(t testing.TB, q *queue.Queue, e endpoint.Endpoint, id job.ID) []chunks.Chunk {
	t.Helper()
	f, err := chunks.Follow(q, e, id)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []chunks.Chunk
	for after := uint64(0); ; after = all[len(all)-1].Seq {
		const most = 1000
		list, _, _, err := f.Read(t.Context(), after, most)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			return all
		}
		all = append(all, list...)
	}
}

// made ignores that an attempt before, whose answer was lost, made the record.
func made(err error) error {
	if errors.Is(err, registry.ErrExists) {
		return nil
	}
	return err
}
