package queue

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/shared/testenv"
	"flightline/streams"
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

// endInMemory has a worker end a job, and returns once the end is written and not on the
// disk.
func (s *env) endInMemory(t *testing.T, end func(context.Context, *Lease) error) job.ID {
	t.Helper()
	id := s.submit(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ending atomic.Bool
	q := s.queue(t, Config{Durable: func(context.Context, string) error {
		if ending.Load() {
			cancel()
			return errBrokenDisk
		}
		return nil
	}})
	l := next(t, s.consumer(t, q, "w"))
	ending.Store(true)
	if err := end(ctx, l); !errors.Is(err, context.Canceled) {
		t.Fatalf("while nothing gets to the disk: got %v, want context.Canceled", err)
	}
	return id
}

func complete(ctx context.Context, l *Lease) error {
	_, err := l.Complete(ctx, nil)
	return err
}

func fail(ctx context.Context, l *Lease) error {
	_, err := l.Fail(ctx, "no")
	return err
}

// A power loss may take an end that is not on the disk and leave the removal of the queue
// message. Then nothing would run the job again.
func TestADeliveryAfterAnEndWaitsForTheDiskBeforeItsMessageGoes(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.endInMemory(t, complete)
	g := &gate{broken: 1 << 30}
	consumer := s.consumer(t, s.queue(t, Config{Durable: g.sync}), "other")
	testenv.Background(t, func(ctx context.Context) error {
		_, err := consumer.Next(ctx)
		if ctx.Err() == nil {
			return err
		}
		return nil
	})
	testenv.Eventually(t, "the message was delivered again", func() bool {
		return g.at(streams.Records(0)) > 0 || s.Messages(t, streams.Jobs("ep")) == 0
	})
	if got := s.Messages(t, streams.Jobs("ep")); got != 1 {
		t.Errorf("got %d queue messages while nothing gets to the disk, want one", got)
	}
	g.breakFor(0)
	s.empty(t)
}

func TestWhatFollowsAnEndWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		end  func(context.Context, *Lease) error
		call func(s *env, q *Queue, id job.ID) error
	}{
		"purge": {complete, func(s *env, q *Queue, _ job.ID) error {
			_, err := q.Purge(t.Context(), s.e)
			return err
		}},
		"retry": {fail, func(s *env, q *Queue, id job.ID) error {
			_, err := q.Retry(t.Context(), s.e, id, "")
			return err
		}},
		"cancel": {complete, func(s *env, q *Queue, id job.ID) error {
			_, err := q.Cancel(t.Context(), s.e, id)
			return err
		}},
		"deletion of the endpoint": {complete, func(s *env, q *Queue, _ job.ID) error {
			return q.DeleteEndpoint(t.Context(), s.e)
		}},
		"a look": {complete, func(s *env, q *Queue, id job.ID) error {
			_, err := q.Current(t.Context(), s.e, id)
			return err
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			id := s.endInMemory(t, test.end)
			g := &gate{broken: 1 << 30}
			if err := test.call(s, s.queue(t, Config{Durable: g.sync}), id); !errors.Is(err, bus.ErrUnavailable) {
				t.Errorf("while nothing gets to the disk: got %v, want bus.ErrUnavailable", err)
			}
			if msg, err := s.q.read.message(t.Context(), record.LocationOf(s.e), id); err != nil || msg.Attempt != 1 {
				t.Errorf("got queue message %+v, %v; want that of the first attempt", msg, err)
			}
		})
	}
}
