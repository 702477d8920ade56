package queue

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/testenv"
)

// beat extends the leases until ctx ends and reports any that is lost.
func beat(ctx context.Context, t *testing.T, lease time.Duration, leases []*Lease) (wait func()) {
	t.Helper()
	var wg sync.WaitGroup
	for _, l := range leases {
		wg.Go(func() {
			tick := time.NewTicker(lease / 3)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					if err := l.Extend(ctx); errors.Is(err, ErrLost) {
						t.Errorf("job %s lost its lease", l.Job.ID)
						return
					}
				}
			}
		})
	}
	return wg.Wait
}

// An outage of NATS of any length runs no job twice and counts no worker lost.
func TestOutageLongerThanTwoLeasesRunsNothingTwice(t *testing.T) {
	t.Parallel()
	const jobs = 50
	s := newEnv(t)
	holder := s.consumer(t, s.q, "holder")
	leases := make([]*Lease, jobs)
	for i := range leases {
		s.submit(t)
		leases[i] = next(t, holder)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stop := beat(ctx, t, s.e.Lease, leases)
	// Idle workers wait all the while, one of them since long before.
	others := s.queue(t, Config{})
	testenv.Eventually(t, "the other worker has been served for a lease", func() bool { return others.bus.Availability().Age() > s.e.Lease })
	idle, stopIdle := context.WithCancel(t.Context())
	defer stopIdle()
	var second atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		consumer := s.consumer(t, others, "idle")
		wg.Go(func() {
			for {
				if _, err := consumer.Next(idle); err != nil {
					return
				}
				second.Add(1)
			}
		})
	}

	s.Stop()
	away := time.NewTimer(2 * s.e.Lease)
	<-away.C
	s.Start()
	testenv.Eventually(t, "the holder has been served for two leases again", func() bool { return s.q.bus.Availability().Age() > 2*s.e.Lease })
	cancel()
	stop()
	for _, l := range leases {
		if j, err := l.Complete(t.Context(), json.RawMessage(`1`)); err != nil || j.Lost != 0 || j.Run != 1 {
			t.Errorf("job %s: %+v, %v", l.Job.ID, j, err)
		}
	}
	stopIdle()
	wg.Wait()
	if n := second.Load(); n != 0 {
		t.Errorf("%d second runs, want 0", n)
	}
}

// Everything between the outcome and the delete may be repeated, however late.
func TestCrashBetweenOutcomeAndDeleteDoesNotRunTheJobAgain(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Retention = 100 * time.Millisecond })
	id := s.submit(t)
	nc := s.Connect(t)
	dying, err := New(t.Context(), nc, Config{Point: func(p Point) {
		if p == AfterTerminalWrite {
			nc.Close() // as a crash does: nothing more reaches the server
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := dying.Consume(t.Context(), s.e, "dies", 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := next(t, consumer).Complete(t.Context(), json.RawMessage(`1`)); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "past retention", func() bool {
		_, err := s.q.Status(t.Context(), s.e, id)
		return errors.Is(err, job.ErrNotFound)
	})
	info, err := s.JS.Stream(t.Context(), "JOBS_ep")
	if err != nil || info.CachedInfo().State.Msgs != 1 {
		t.Fatalf("the queue message went although the process died before it: %v", err)
	}
	nothing(t, s.consumer(t, s.q, "starts later"), 3*s.e.Lease)
	s.empty(t)
}

func TestWorkerClockAnHourAheadLosesNothing(t *testing.T) {
	t.Parallel()
	for name, skew := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			skewed := s.queue(t, Config{Now: func() time.Time { return time.Now().Add(skew) }})
			id := s.submit(t, func(r *job.Request) { r.Policy.TTL = 10 * time.Second })
			l := next(t, s.consumer(t, skewed, "skewed"))
			if d := skewed.Until(l.Deadline()); d > l.Job.ExecutionTimeout || d < l.Job.ExecutionTimeout-time.Second {
				t.Errorf("the deadline is %v away, want about %v", d, l.Job.ExecutionTimeout)
			}
			if _, err := l.Complete(t.Context(), json.RawMessage(`1`)); err != nil {
				t.Fatal(err)
			}
			if j := s.want(t, id, job.Completed); j.Delay() > 5*time.Second || j.Execution(s.q.Now()) > 5*time.Second {
				t.Errorf("delay %v, execution %v", j.Delay(), j.Execution(s.q.Now()))
			}
		})
	}
}

func TestTakeoverBetweenTwoLargeOutputsKeepsOneWhole(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	outputs := map[string]json.RawMessage{}
	for _, c := range []string{"a", "b"} {
		outputs[c] = json.RawMessage(`"` + strings.Repeat(c, 8<<20) + `"`)
	}
	stalled, resume := make(chan struct{}), make(chan struct{})
	slow := s.queue(t, Config{Point: func(p Point) {
		if p == AfterPayload {
			close(stalled)
			<-resume
		}
	}})
	first := next(t, s.consumer(t, slow, "a"))
	done := make(chan error, 1)
	go func() {
		_, err := first.Complete(t.Context(), outputs["a"])
		done <- err
	}()
	<-stalled
	testenv.Eventually(t, "served for a lease", func() bool { return s.q.bus.Availability().Age() > s.e.Lease })
	second := next(t, s.consumer(t, s.q, "b"))
	go close(resume)
	_, secondErr := second.Complete(t.Context(), outputs["b"])
	firstErr := <-done
	if (firstErr == nil) == (secondErr == nil) {
		t.Errorf("first: %v, second: %v; want exactly one outcome", firstErr, secondErr)
	}
	want := outputs["b"]
	if firstErr == nil {
		want = outputs["a"]
	}
	if j := s.want(t, id, job.Completed); string(j.Output) != string(want) {
		t.Errorf("the output of %d bytes is not one run's, whole", len(j.Output))
	}
}

// A pick-up whose answer is lost is adopted by the process that wrote it.
func TestPickUpWithALostAnswerIsNoLostWorker(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.submit(t)
	consumer := s.consumer(t, s.q, "w")
	l := next(t, consumer)
	consumer.release(l) // as if the answer to the pick-up had never come
	again := next(t, consumer)
	if again.Job.Lost != 0 || again.Job.Run != 2 {
		t.Errorf("lost %d run %d, want 0 and 2", again.Job.Lost, again.Job.Run)
	}
}
