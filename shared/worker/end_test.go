package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/shared/worker"
)

// obedient is a handler that runs until its context ends, and what it reports.
type obedient struct {
	started chan *worker.Job
	causes  chan error
}

func newObedient() obedient {
	return obedient{make(chan *worker.Job, 100), make(chan error, 100)}
}

func (o obedient) handle(ctx context.Context, j *worker.Job) (any, error) {
	o.started <- j
	<-ctx.Done()
	o.causes <- context.Cause(ctx)
	return "too late", nil
}

func TestTheDeadlineEndsTheRun(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	h := newObedient()
	s.run(t, worker.Config{}, h.handle)
	id := s.submit(t, timeout(time.Second))
	if err := got(t, h.causes, "the end"); !errors.Is(err, worker.ErrDeadline) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want ErrDeadline", err)
	}
	s.wantEnd(t, id, job.TimedOut, "", job.ErrTextTimedOut)
}

func TestAHandlerThatIgnoresItsDeadlineKeepsItsSlotAndNothingElse(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	started, leave := make(chan string, 2), make(chan struct{})
	s.run(t, worker.Config{}, func(_ context.Context, j *worker.Job) (any, error) {
		started <- j.ID
		<-leave
		return "too late", nil
	})
	first := s.submit(t, timeout(time.Second))
	got(t, started, "the first job")
	second := s.submit(t)
	s.wantEnd(t, first, job.TimedOut, "", job.ErrTextTimedOut)
	if len(started) != 0 {
		t.Error("got the second job in a slot that is not free")
	}
	close(leave)
	s.wantEnd(t, second, job.Completed, `"too late"`, "")
	s.wantEnd(t, first, job.TimedOut, "", job.ErrTextTimedOut)
}

func TestACancelReachesTheHandlerWithoutAHeartbeat(t *testing.T) {
	s := newEnv(t)
	h := newObedient()
	s.run(t, worker.Config{}, h.handle)
	testenv.Promptly(t, s.e.Lease/6, "a cancel without a heartbeat", func(int) time.Duration {
		id := s.submit(t)
		got(t, h.started, "the job")
		asked := time.Now()
		if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
			t.Fatal(err)
		}
		if err := got(t, h.causes, "the end"); !errors.Is(err, worker.ErrCancelled) {
			t.Errorf("got %v, want ErrCancelled", err)
		}
		took := time.Since(asked)
		s.wantEnd(t, id, job.Cancelled, "", "")
		return took
	})
}

func TestTheTTLEndsTheRunAndTheJob(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	h := newObedient()
	s.run(t, worker.Config{}, h.handle)
	id := s.submit(t, func(r *job.Request) { r.Policy.TTL = 2 * time.Second })
	if err := got(t, h.causes, "the end"); !errors.Is(err, worker.ErrExpired) {
		t.Errorf("got %v, want ErrExpired", err)
	}
	testenv.Within(t, time.Second, "the job is gone", func() bool { // its clocks may differ by some milliseconds
		_, err := s.q.Status(t.Context(), s.e, id)
		return errors.Is(err, job.ErrNotFound)
	})
}

func TestAShorterTTLReachesTheHandler(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	h := newObedient()
	s.run(t, worker.Config{}, h.handle)
	id := s.submit(t)
	got(t, h.started, "the job")
	if _, err := s.q.SetTTL(t.Context(), s.e, id, 3*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := got(t, h.causes, "the end"); !errors.Is(err, worker.ErrExpired) {
		t.Errorf("got %v, want ErrExpired", err)
	}
}

func timeout(d time.Duration) func(*job.Request) {
	return func(r *job.Request) { r.Policy.ExecutionTimeout = d }
}
