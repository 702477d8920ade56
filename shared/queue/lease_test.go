package queue

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/testenv"
)

func TestLostWorkerIsReplacedAfterItsLease(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	second := s.queue(t, Config{})
	testenv.Eventually(t, "served for a lease", func() bool { return second.bus.Availability().Age() > s.e.Lease })
	inTime(t, s.e.Lease+askTimeout+time.Second, func() time.Duration {
		id := s.submit(t)
		first := next(t, s.consumer(t, s.q, "dies"))
		start := time.Now()
		l := next(t, s.consumer(t, second, "lives"))
		took := time.Since(start)
		if l.Job.Run != 2 || l.Job.Lost != 1 {
			t.Errorf("run %d lost %d, want 2 and 1", l.Job.Run, l.Job.Lost)
		}
		if _, err := first.Complete(t.Context(), json.RawMessage(`"stale"`)); !errors.Is(err, ErrLost) {
			t.Errorf("the stale run completed: %v", err)
		}
		if err := first.Emit(t.Context(), json.RawMessage(`"stale"`)); !errors.Is(err, ErrLost) {
			t.Errorf("a chunk of the stale run: got %v, want ErrLost", err)
		}
		if _, err := l.Complete(t.Context(), json.RawMessage(`"fresh"`)); err != nil {
			t.Fatal(err)
		}
		if j := s.want(t, id, job.Completed); string(j.Output) != `"fresh"` || j.Retries() != 1 {
			t.Errorf("output %s retries %d", j.Output, j.Retries())
		}
		return took
	})
}

func TestHeartbeatKeepsTheLease(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	second := s.queue(t, Config{})
	testenv.Eventually(t, "served for a lease", func() bool { return second.bus.Availability().Age() > s.e.Lease })
	s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	ctx, cancel := context.WithTimeout(t.Context(), 3*s.e.Lease)
	defer cancel()
	go func() {
		tick := time.NewTicker(s.e.Lease / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := l.Extend(ctx); err != nil && ctx.Err() == nil {
					t.Errorf("extend: %v", err)
				}
			}
		}
	}()
	nothing(t, s.consumer(t, second, "other"), 3*s.e.Lease-100*time.Millisecond)
}

func TestTooManyLostWorkersFailTheJob(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.MaxLost = 2 })
	testenv.Eventually(t, "served for a lease", func() bool { return s.q.bus.Availability().Age() > s.e.Lease })
	id := s.submit(t)
	consumer := s.consumer(t, s.q, "w")
	next(t, consumer)
	other := s.consumer(t, s.q, "w2")
	if err := next(t, other).Progress(t.Context(), json.RawMessage(`"half"`)); err != nil {
		t.Fatal(err)
	}
	third, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	w3 := s.consumer(t, s.q, "w3")
	go func() { _, err := w3.Next(third); ended <- err }()
	testenv.Eventually(t, "the job is over", func() bool { return s.status(t, id).Status.Terminal() })
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the third worker got a job: %v", err)
	}
	const want = "worker lost: this attempt was handed out 2 times, and 2 workers ended or fell silent while they ran it"
	if j := s.want(t, id, job.Failed); j.Error != want || j.Lost != 2 || j.Output != nil {
		t.Errorf("got %q, lost %d, output %s, want %q, 2 and no output: its progress was none", j.Error, j.Lost, j.Output, want)
	}
}

func TestGiveBackIsNotCounted(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	l := next(t, s.consumer(t, s.q, "a"))
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.want(t, id, job.InQueue)
	again := next(t, s.consumer(t, s.q, "b"))
	if again.Job.Lost != 0 || again.Job.Run != 2 {
		t.Errorf("lost %d run %d, want 0 and 2", again.Job.Lost, again.Job.Run)
	}
}

// As after a stop of dev, whose workers give back what they do not end.
func TestWhatWasGivenBackWaitsForNoLeaseAfterARestart(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Lease = time.Hour })
	id := s.submit(t)
	l := next(t, s.consumer(t, s.q, "a"))
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.q.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	s.Start()
	if again := next(t, s.consumer(t, s.q, "b")); again.Job.ID != id || again.Job.Lost != 0 {
		t.Errorf("got job %s, lost %d, want %s and 0", again.Job.ID, again.Job.Lost, id)
	}
}

func TestDeadlineEndsAForgottenRun(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.deadlines(t)
	id := s.submit(t, func(r *job.Request) { r.Policy.ExecutionTimeout = time.Second })
	l := next(t, s.consumer(t, s.q, "w"))
	w, err := s.q.Watch(s.e, id)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	j, err := w.Wait(ctx)
	if err != nil || j.Status != job.TimedOut || j.Error != job.ErrTextTimedOut {
		t.Fatalf("got %+v, %v", j, err)
	}
	if j, err := l.Complete(t.Context(), nil); !errors.Is(err, ErrLost) && (err != nil || j.Status != job.TimedOut) {
		t.Errorf("complete: %v, %v", j, err)
	}
	s.empty(t)
	if _, err := s.q.Retry(t.Context(), s.e, id, ""); err != nil {
		t.Fatal(err)
	}
}

func TestLateResultIsTimedOut(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t, func(r *job.Request) { r.Policy.ExecutionTimeout = 50 * time.Millisecond })
	l := next(t, s.consumer(t, s.q, "w"))
	testenv.Eventually(t, "past the deadline", func() bool { return s.q.Until(l.Deadline()) < 0 })
	if j, err := l.Complete(t.Context(), json.RawMessage(`1`)); err != nil || j.Status != job.TimedOut {
		t.Fatalf("got %v, %v", j, err)
	}
	s.want(t, id, job.TimedOut)
}

// A worker that runs decides by the settings that the endpoint has, not by those of its own
// start: it left a job to a silent worker for up to the former lease, an hour.
func TestAShorterLeaseHoldsForWorkersThatRun(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(*testing.T, *env) job.ID{
		"of a worker": func(t *testing.T, s *env) job.ID {
			t.Helper()
			id := s.submit(t)
			next(t, s.consumer(t, s.q, "dies"))
			return id
		},
		"of a worker behind a gateway": func(t *testing.T, s *env) job.ID {
			t.Helper()
			id, _ := s.handed(t, "dies")
			stop, err := s.q.Remote.OnNudge(s.e, func(job.ID) {})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(stop)
			if err := s.q.Remote.Heartbeat(t.Context(), s.e, id, "dies"); err != nil {
				t.Fatal(err)
			}
			return id
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, func(e *endpoint.Endpoint) { e.Lease, e.MaxLost = time.Hour, 1 })
			id := take(t, s)
			other := s.consumer(t, s.queue(t, Config{}), "other")
			s.e.Lease, s.e.MaxLost = time.Second, 2
			s.register(t)
			if err := s.q.CreateEndpoint(t.Context(), s.e); err != nil {
				t.Fatal(err)
			}
			if l := next(t, other); l.Job.ID != id || l.Job.Lost != 1 {
				t.Errorf("got %+v, want the job of the silent worker", l.Job)
			}
		})
	}
}
