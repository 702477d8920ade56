package queue

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// env is a bus with one endpoint and a running queue.
type env struct {
	*testenv.Server
	q *Queue
	e endpoint.Endpoint
}

const soon = 2 * time.Minute

func newEnv(t *testing.T, change ...func(*endpoint.Endpoint)) *env {
	t.Helper()
	b := testenv.NewServer(t)
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	e, err := endpoint.Endpoint{ID: "ep"}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	e.Lease = time.Second
	for _, c := range change {
		c(&e)
	}
	s := &env{Server: b, e: e}
	s.q = s.queue(t, Config{})
	if err := s.q.CreateEndpoint(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	return s
}

// queue makes another process's queue on the same bus.
func (s *env) queue(t *testing.T, cfg Config) *Queue {
	t.Helper()
	q, err := New(t.Context(), s.Connect(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return q.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return q
}

func (s *env) deadlines(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.q.Deadlines(ctx, 1) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (s *env) submit(t *testing.T, change ...func(*job.Request)) job.ID {
	t.Helper()
	r := job.Request{Input: json.RawMessage(`{"n":1}`)}
	for _, c := range change {
		c(&r)
	}
	id := NewID(job.Async)
	if _, err := s.q.Submit(t.Context(), s.e, id, job.Async, r); err != nil {
		t.Fatal(err)
	}
	return id
}

func (s *env) consumer(t *testing.T, q *Queue, worker string) *Consumer {
	t.Helper()
	consumer, err := q.Consume(t.Context(), s.e, worker, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(consumer.Close)
	return consumer
}

func next(t *testing.T, consumer *Consumer) *Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	l, err := consumer.Next(ctx)
	if err != nil {
		t.Fatalf("no job to take: %v", err)
	}
	return l
}

// nothing asserts that no job is handed out within d.
func nothing(t *testing.T, consumer *Consumer, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if l, err := consumer.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got lease %+v, %v; want none", l, err)
	}
}

func (s *env) status(t *testing.T, id job.ID) *job.Job {
	t.Helper()
	j, err := s.q.Status(t.Context(), s.e, id)
	if err != nil {
		t.Fatalf("status: %v", err)
	}
	return j
}

func (s *env) want(t *testing.T, id job.ID, status job.Status) *job.Job {
	t.Helper()
	j := s.status(t, id)
	if j.Status != status {
		t.Fatalf("job is %s (%q), want %s", j.Status, j.Error, status)
	}
	return j
}

func (s *env) empty(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, "the queue is empty", func() bool {
		info, err := s.JS.Stream(t.Context(), streams.Jobs(s.e.ID))
		return err == nil && info.CachedInfo().State.Msgs == 0
	})
}

// inTime tries several times to see something happen within what is
// promised: a busy machine may be late once, a broken promise always.
func inTime(t *testing.T, promise time.Duration, try func() (took time.Duration)) {
	t.Helper()
	const tries = 8
	var took []time.Duration
	for range tries {
		if took = append(took, try()); took[len(took)-1] <= promise {
			return
		}
	}
	t.Errorf("it took %v, want at most %v", took, promise)
}

// unavailable wants a submission to be refused, and returns how long it took.
func (s *env) unavailable(t *testing.T) (took time.Duration, err error) {
	t.Helper()
	start := time.Now()
	_, err = s.q.Submit(t.Context(), s.e, NewID(job.Async), job.Async, job.Request{Input: json.RawMessage(`1`)})
	if !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("got %v, want bus.ErrUnavailable", err)
	}
	return time.Since(start), err
}
