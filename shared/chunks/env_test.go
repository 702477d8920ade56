package chunks_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"flightline/shared/chunks"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/testenv"
	"flightline/shared/testenv/backend"
)

const soon = 2 * time.Minute

// env is a bus with one endpoint, whose lease is 1 s, and a running queue.
type env struct {
	*testenv.Server
	q *queue.Queue
	e endpoint.Endpoint
}

func newEnv(t *testing.T) *env {
	t.Helper()
	b := backend.New(t)
	s := &env{Server: b.Bus, q: b.Queue, e: b.Endpoint}
	s.e.ID, s.e.Lease = "short", time.Second // the registry's endpoint has the least lease of the API or a longer one
	if err := s.q.CreateEndpoint(t.Context(), s.e); err != nil {
		t.Fatal(err)
	}
	return s
}

// queue makes another process's queue on the same bus.
func (s *env) queue(t *testing.T) *queue.Queue {
	t.Helper()
	q, err := queue.New(t.Context(), s.Connect(t), queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Background(t, q.Run)
	return q
}

func (s *env) submit(t *testing.T, change ...func(*job.Request)) job.ID {
	t.Helper()
	return backend.Submit(t, s.q, s.e, change...)
}

func (s *env) consumer(t *testing.T, q *queue.Queue, worker string) *queue.Consumer {
	t.Helper()
	consumer, err := q.Consume(t.Context(), s.e, worker, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(consumer.Close)
	return consumer
}

func next(t *testing.T, consumer *queue.Consumer) *queue.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	l, err := consumer.Next(ctx)
	if err != nil {
		t.Fatalf("no job to take: %v", err)
	}
	return l
}

func emit(t *testing.T, l *queue.Lease, data ...string) {
	t.Helper()
	for _, c := range data {
		if err := l.Emit(t.Context(), json.RawMessage(c)); err != nil {
			t.Fatal(err)
		}
		if err := l.Flush(t.Context()); err != nil { // each in a message of its own
			t.Fatal(err)
		}
	}
}

func follow(t *testing.T, q *queue.Queue, e endpoint.Endpoint, id job.ID) *chunks.Follower {
	t.Helper()
	f, err := chunks.Follow(q, e, id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func (s *env) follow(t *testing.T, q *queue.Queue, id job.ID) *chunks.Follower {
	t.Helper()
	return follow(t, q, s.e, id)
}
