package queue

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/job"
	"flightline/shared/testenv"
)

// The server's clock is set by an hour, forth and back, while jobs run: their
// holders have as much time as before, and nobody else ends them.
func TestAStepOfTheServersClockEndsNoRun(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	server := testenv.NewSteppedClock(t, s.Config())
	holder, other := steppedQueue(t, server), steppedQueue(t, server)
	take := s.consumer(t, holder, "holder")
	for _, to := range []time.Duration{time.Hour, 0, -time.Hour, 0} {
		id := s.submit(t)
		l := next(t, take)
		server.Set(to)
		testenv.Eventually(t, "both have seen the step", func() bool {
			return near(holder.Until(time.Now().Add(to))) && near(other.Until(time.Now().Add(to)))
		})
		if err := l.Extend(t.Context()); err != nil {
			t.Fatalf("the clock at %v: heartbeat: %v", to, err)
		}
		if left := holder.Until(l.Deadline()); left > l.Job.ExecutionTimeout || left < l.Job.ExecutionTimeout-soon {
			t.Errorf("the clock at %v: the run has %v left, want about %v", to, left, l.Job.ExecutionTimeout)
		}
		if j, err := other.Status(t.Context(), s.e, id); err != nil || j.Status != job.InProgress {
			t.Errorf("the clock at %v: another process sees %+v, %v; want IN_PROGRESS", to, j, err)
		}
		if j, err := l.Complete(t.Context(), json.RawMessage(`1`)); err != nil || j.Status != job.Completed {
			t.Errorf("the clock at %v: got %+v, %v; want COMPLETED", to, j, err)
		}
	}
}

// What is delivered again because of a step is not taken over.
func TestAStepOfTheServersClockProvesNoSilence(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	server := testenv.NewSteppedClock(t, s.Config())
	q := steppedQueue(t, server)
	testenv.Eventually(t, "service for a lease", func() bool { return q.bus.Availability().Age() > s.e.Lease })
	before := time.Now()
	server.Set(time.Hour)
	testenv.Eventually(t, "the step is seen", func() bool { return near(q.Until(time.Now().Add(time.Hour))) })
	testenv.Eventually(t, "service again", func() bool { return q.bus.Availability().Age() > 0 })
	if served := q.bus.Availability().Age(); served >= time.Since(before) {
		t.Error("service counts as uninterrupted, want it to begin with the step")
	}
}

// An id says when its job came, by the clock by which the job's events are recorded.
func TestAnIDHasTheServersTime(t *testing.T) {
	t.Parallel()
	server := testenv.NewSteppedClock(t, newEnv(t).Config())
	server.Set(-time.Hour)
	q := steppedQueue(t, server)
	for _, mode := range []job.Mode{job.Async, job.Sync} {
		id := q.NewID(mode)
		if made, ok := id.Made(); !ok || !near(q.Until(made)) || !id.Valid() {
			t.Errorf("%s: got %s, made at %v, want about %v", mode, id, made, q.Now())
		}
	}
}

func near(d time.Duration) bool { return d.Abs() < time.Minute }

// steppedQueue is a queue of a process that asks the server for its time.
func steppedQueue(t *testing.T, s *testenv.SteppedClock) *Queue {
	t.Helper()
	q, err := New(t.Context(), testenv.Connect(t, s.Config), Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var g errgroup.Group
	g.Go(func() error { return q.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return q
}
