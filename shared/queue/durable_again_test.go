package queue

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"flightline/shared/bus"
	"flightline/shared/job"
)

// An answer that repeats an earlier one promises the same: that what was done
// is on the disk.
func TestARepeatedCallWaitsForTheDiskToo(t *testing.T) {
	t.Parallel()
	input := job.Request{Input: json.RawMessage(`{"n":1}`)}
	tests := map[string]func(s *env, q *Queue, id job.ID) error{
		"cancel": func(s *env, q *Queue, id job.ID) error {
			_, err := q.Cancel(t.Context(), s.e, id)
			return err
		},
		"ttl": func(s *env, q *Queue, id job.ID) error {
			_, err := q.SetTTL(t.Context(), s.e, id, time.Hour)
			return err
		},
		"submit": func(s *env, q *Queue, id job.ID) error {
			_, _, err := q.SubmitIdempotent(t.Context(), s.e, id, job.Async, input)
			return err
		},
		"a look at what was submitted": func(s *env, q *Queue, id job.ID) error {
			_, err := q.DurableStatus(t.Context(), s.e, id)
			return err
		},
	}
	for name, call := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			id := s.submit(t)
			if err := call(s, s.q, id); err != nil {
				t.Fatal(err)
			}
			g := &gate{broken: 1 << 30}
			if err := call(s, s.queue(t, Config{Durable: g.sync}), id); !errors.Is(err, bus.ErrUnavailable) {
				t.Errorf("again, while nothing gets to the disk: got %v, want bus.ErrUnavailable", err)
			}
		})
	}
}

// Of retries that come at once each is answered for the one that came first.
func TestARetryThatMeetsAnotherWaitsForTheDiskToo(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	if _, err := next(t, s.consumer(t, s.q, "w")).Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	g := &gate{broken: 1 << 30}
	q := s.queue(t, Config{Durable: g.sync})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if _, err := q.Retry(ctx, s.e, id, ""); err == nil {
				t.Error("a retry was answered while nothing gets to the disk")
			}
		})
	}
	all.Wait()
}

// A holder whose first call wrote the outcome, but does not know whether it is
// on the disk, is not told so by the record alone.
func TestARepeatedOutcomeWaitsForTheDiskToo(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.submit(t)
	g := &gate{}
	q := s.queue(t, Config{Durable: g.sync})
	l := next(t, s.consumer(t, q, "w"))
	g.breakFor(1 << 30)
	for range 2 {
		if _, err := l.Complete(t.Context(), nil); !errors.Is(err, bus.ErrUnavailable) {
			t.Errorf("while nothing gets to the disk: got %v, want bus.ErrUnavailable", err)
		}
	}
	g.breakFor(0)
	if j, err := l.Complete(t.Context(), nil); err != nil || j.Status != job.Completed {
		t.Errorf("got %+v, %v, want it COMPLETED", j, err)
	}
}
