package queue

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
)

func TestAQueueIsMeasuredWhenItMatters(t *testing.T) {
	now := time.Now()
	limit, one := load{100, 100}, load{1, 1}
	for name, test := range map[string]struct {
		room queueUsage
		want bool
	}{
		"no job came":                         {queueUsage{}, false},
		"the first job came":                  {queueUsage{asked: 1, accepted: one}, true},
		"little is used":                      {queueUsage{asked: 1, accepted: one, used: load{40, 40}, measured: now.Add(-29 * time.Second)}, false},
		"little was used, a while ago":        {queueUsage{asked: 1, accepted: one, used: load{40, 40}, measured: now.Add(-30 * time.Second)}, true},
		"more than half of the bytes is used": {queueUsage{asked: 1, accepted: one, used: load{bytes: 50}, measured: now.Add(-time.Second)}, true},
		"more than half of the jobs is there": {queueUsage{asked: 1, accepted: one, used: load{jobs: 50}, measured: now.Add(-time.Second)}, true},
		"much was accepted":                   {queueUsage{asked: 1, accepted: load{11, 1}, measured: now.Add(-time.Second)}, true},
		"many were accepted":                  {queueUsage{asked: 11, accepted: load{0, 11}, measured: now.Add(-time.Second)}, true},
		"it is full, and one came":            {queueUsage{asked: 1, used: load{bytes: 99}, measured: now.Add(-time.Second)}, true},
		"it is full, and none came":           {queueUsage{used: load{bytes: 99}, measured: now.Add(-4 * time.Second)}, false},
		"it is full, and none came for long":  {queueUsage{used: load{jobs: 99}, measured: now.Add(-5 * time.Second)}, true},
	} {
		test.room.limit = limit
		if got := test.room.due(now); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestASubmissionIsRefusedByAFreshMeasurementOnly(t *testing.T) {
	now := time.Now()
	e := endpoint.Endpoint{ID: "ep", MaxQueueBytes: 100, MaxQueueJobs: 10}
	for name, test := range map[string]struct {
		room queueUsage
		size int64
		want FullError // zero for admitted
	}{
		"never measured":             {queueUsage{}, 200, FullError{}},
		"there is room":              {queueUsage{used: load{40, 4}, accepted: load{40, 5}, measured: now}, 20, FullError{}},
		"no room for the bytes":      {queueUsage{used: load{40, 4}, accepted: load{40, 4}, measured: now}, 21, FullError{"ep", "maxQueueBytes", 21, 80, 100}},
		"no room for a job":          {queueUsage{used: load{4, 5}, accepted: load{4, 5}, measured: now}, 0, FullError{"ep", "maxQueueJobs", 1, 10, 10}},
		"there was none, a time ago": {queueUsage{used: load{200, 20}, measured: now.Add(-maxRefusalAge)}, 21, FullError{}},
	} {
		test.room.at.Endpoint = "ep"
		s := usageTable{of: map[string]*queueUsage{"ep": &test.room}}
		before := test.room.accepted
		err := s.reserve(e, test.size, job.Caller{}, true, now)
		full, refused := errors.AsType[*FullError](err)
		if refused != (test.want != FullError{}) || refused && *full != test.want {
			t.Errorf("%s: got %v, want %v", name, err, &test.want)
		}
		if got := test.room.accepted.minus(before); refused != (got == load{}) || test.room.asked != 1 {
			t.Errorf("%s: got %v more, refused %v", name, got, refused)
		}
	}
}

func TestAFullErrorNamesTheBound(t *testing.T) {
	for want, err := range map[string]error{
		"the queue of endpoint ep is full: it holds 80 bytes, the job has 21, and maxQueueBytes is 100": &FullError{"ep", fieldQueueBytes, 21, 80, 100},
		"the queue of endpoint ep is full: it holds 10 jobs, and maxQueueJobs is 10":                    &FullError{"ep", fieldQueueJobs, 1, 10, 10},
	} {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}

// A queue with as many jobs as it may have refuses one more, and a job that ends
// makes room for one.
func TestAQueueOfSoManyJobsRefusesOneMore(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.MaxQueueJobs = 3 })
	submit := func() error {
		_, err := s.q.Submit(t.Context(), s.e, NewID(job.Async), job.Async, job.Request{Input: json.RawMessage(`{}`)})
		s.measured(t)
		return err
	}
	for range 3 {
		if err := submit(); err != nil {
			t.Fatal(err)
		}
	}
	full, isFull := errors.AsType[*FullError](submit())
	if want := (FullError{Endpoint: s.e.ID, Field: "maxQueueJobs", Size: 1, Used: 3, Limit: 3}); !isFull || *full != want {
		t.Fatalf("got %v, want %v", full, &want)
	}
	if _, err := next(t, s.consumer(t, s.q, "w")).Complete(t.Context(), json.RawMessage(`1`)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(soon); ; <-time.After(50 * time.Millisecond) { // the server removes the message some time after its ack
		switch err := submit(); {
		case err == nil:
			return
		case !errors.Is(err, ErrFull), time.Now().After(end):
			t.Fatalf("after an end: got %v, want room again", err)
		}
	}
}

// An endpoint that gets few jobs is measured twice a minute; a burst between is bounded.
func TestABurstAfterAQuietTimeIsBounded(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.MaxQueueJobs = 3 })
	s.submit(t)
	s.measured(t)
	s.q.usage.mu.Lock()
	s.q.usage.of[s.e.ID].measured = time.Now().Add(-maxRefusalAge)
	s.q.usage.mu.Unlock()
	s.submit(t)
	s.submit(t)
	_, err := s.q.Submit(t.Context(), s.e, NewID(job.Async), job.Async, job.Request{Input: json.RawMessage(`{}`)})
	if !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
}

// A queue is measured before it refuses a job: a job that ended since the last
// measurement makes room at once, so a small bound does not bound the rate.
func TestAnEndMakesRoomAtOnce(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.MaxQueueJobs = 1 })
	consumer := s.consumer(t, s.q, "w")
	s.submit(t)
	for range 10 {
		s.measured(t) // the queue is full
		if _, err := next(t, consumer).Complete(t.Context(), json.RawMessage(`1`)); err != nil {
			t.Fatal(err)
		}
		s.empty(t)
		<-time.After(minMeasureAge) // no earlier measurement counts for a refusal
		s.submit(t)
	}
}

// A queue that is full refuses jobs, with inputs in the message and beside it,
// and nothing else: what was accepted is retried, gets a longer ttl, runs and
// ends, and makes room.
func TestAFullQueueRefusesJobsAndNothingElse(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"in the message": 200 << 10, "beside it": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, func(e *endpoint.Endpoint) { e.MaxQueueBytes = 4 << 20 })
			input := json.RawMessage(`"` + strings.Repeat("x", size) + `"`)
			accepted := []job.ID{}
			var full *FullError
			for full == nil {
				id := NewID(job.Async)
				_, err := s.q.Submit(t.Context(), s.e, id, job.Async, job.Request{Input: input})
				switch found, isFull := errors.AsType[*FullError](err); {
				case isFull:
					full = found
				case err != nil:
					t.Fatal(err)
				default:
					accepted = append(accepted, id)
				}
				if len(accepted) > 100 {
					t.Fatal("got 100 jobs, want the queue to be full")
				}
				s.measured(t)
			}
			if !errors.Is(full, ErrFull) || full.Limit != 4<<20 || full.Used+full.Size <= full.Limit || full.Used > full.Limit+full.Limit/4 {
				t.Errorf("got %v, want about the limit in use", full)
			}
			if sum := int64(len(accepted) * size); full.Used < sum*3/4 || full.Used > sum*5/4 {
				t.Errorf("got %d bytes in use after %d jobs of %d, want about their sum", full.Used, len(accepted), size)
			}
			if _, err := s.q.SetTTL(t.Context(), s.e, accepted[1], 48*time.Hour); err != nil {
				t.Errorf("a longer ttl: %v", err)
			}
			consumer := s.consumer(t, s.q, "w")
			l := next(t, consumer)
			if _, err := l.Fail(t.Context(), "once"); err != nil {
				t.Fatal(err)
			}
			if _, err := s.q.Retry(t.Context(), s.e, l.Job.ID, ""); err != nil {
				t.Errorf("a retry: %v", err)
			}
			for range accepted {
				if _, err := next(t, consumer).Complete(t.Context(), json.RawMessage(`1`)); err != nil {
					t.Fatal(err)
				}
			}
			for _, id := range accepted {
				s.want(t, id, job.Completed)
			}
		})
	}
}

// measured measures the queue now.
func (s *env) measured(t *testing.T) {
	t.Helper()
	if !s.q.usage.measure(t.Context(), s.e.ID) {
		t.Error("the queue could not be measured")
	}
	s.q.usage.wasAnswered(time.Now())
}

// Once jobs have ended, new ones are accepted.
func TestAQueueThatWasFullAcceptsJobsAgain(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.MaxQueueBytes = 1 << 20 })
	input := json.RawMessage(`"` + strings.Repeat("x", 200<<10) + `"`)
	submit := func() error {
		_, err := s.q.Submit(t.Context(), s.e, NewID(job.Async), job.Async, job.Request{Input: input})
		s.measured(t)
		return err
	}
	n := 0
	for ; submit() == nil; n++ {
		if n > 100 {
			t.Fatal("got 100 jobs, want the queue to be full")
		}
	}
	consumer := s.consumer(t, s.q, "w")
	for range n {
		if _, err := next(t, consumer).Complete(t.Context(), json.RawMessage(`1`)); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(soon); ; <-time.After(50 * time.Millisecond) {
		err := submit()
		if err == nil {
			return
		}
		if !errors.Is(err, ErrFull) || time.Now().After(end) {
			t.Fatalf("got %v, want room again", err)
		}
	}
}
