package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/worker"
)

func TestJobsThatFinishWithinTheGraceAreFinished(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	started, leave := make(chan struct{}, 1), make(chan struct{})
	w := s.run(t, worker.Config{}, func(ctx context.Context, _ *worker.Job) (any, error) {
		started <- struct{}{}
		<-leave
		return "in time", ctx.Err()
	})
	running, waiting := s.submit(t), s.submit(t)
	got(t, started, "the job")
	w.stop()
	close(leave)
	if err := w.wait(); err != nil {
		t.Errorf("got %v, want a clean stop", err)
	}
	s.wantEnd(t, running, job.Completed, `"in time"`, "")
	if j, err := s.q.Status(t.Context(), s.e, waiting); err != nil || j.Status != job.InQueue || j.Run != 0 {
		t.Errorf("got %+v, %v, want the other job untouched", j, err)
	}
}

func TestJobsThatOutlastTheGraceRunElsewhereAtOnce(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	h := newObedient()
	w := s.run(t, worker.Config{ID: "first", Concurrency: 2, Grace: -1}, h.handle)
	ids := []job.ID{s.submit(t), s.submit(t)}
	for range ids {
		got(t, h.started, "the jobs")
	}
	second := make(chan time.Time, len(ids))
	s.run(t, worker.Config{ID: "second", Concurrency: 2}, func(context.Context, *worker.Job) (any, error) {
		second <- time.Now()
		return "second", nil
	})
	asked := time.Now()
	w.stop()
	for range ids {
		if took := got(t, second, "the other worker").Sub(asked); took > s.e.Lease/2 {
			t.Errorf("it took %v, want no wait for the lease", took)
		}
		if err := got(t, h.causes, "the end"); !errors.Is(err, worker.ErrDraining) {
			t.Errorf("got %v, want ErrDraining", err)
		}
	}
	if err := w.wait(); err != nil {
		t.Errorf("got %v, want a clean stop", err)
	}
	for _, id := range ids {
		if j := s.wantEnd(t, id, job.Completed, `"second"`, ""); j.Lost != 0 || j.Run != 2 || j.Worker != "second" {
			t.Errorf("got %+v, want run 2 by the second worker, none lost", j)
		}
	}
}

// What stops the worker may have ended what the handler works with, too.
func TestAHandlerGivesItsJobBackOnceTheWorkerStops(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	started, leave := make(chan struct{}, 1), make(chan struct{})
	w := s.run(t, worker.Config{ID: "first", Grace: time.Hour}, func(context.Context, *worker.Job) (any, error) {
		started <- struct{}{}
		<-leave
		return nil, fmt.Errorf("the server is gone: %w", worker.ErrDraining)
	})
	early := s.submit(t)
	got(t, started, "the job")
	leave <- struct{}{}
	s.wantEnd(t, early, job.Failed, "", "the server is gone: worker: stopping") // the worker goes on
	id := s.submit(t)
	got(t, started, "the job")
	w.stop()
	leave <- struct{}{}
	if err := w.wait(); err != nil {
		t.Errorf("got %v, want a clean stop", err)
	}
	s.run(t, worker.Config{ID: "second"}, func(context.Context, *worker.Job) (any, error) { return "second", nil })
	if j := s.wantEnd(t, id, job.Completed, `"second"`, ""); j.Lost != 0 || j.Run != 2 {
		t.Errorf("got %+v, want run 2, none lost", j)
	}
}

func TestAHandlerThatDoesNotStopIsReported(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	started, leave := make(chan struct{}, 1), make(chan struct{})
	w := s.run(t, worker.Config{Grace: -1}, func(context.Context, *worker.Job) (any, error) {
		started <- struct{}{}
		<-leave
		return nil, nil
	})
	id := s.submit(t)
	got(t, started, "the job")
	w.stop()
	if err := w.wait(); !errors.Is(err, worker.ErrStuck) {
		t.Errorf("got %v, want ErrStuck", err)
	}
	if j, err := s.q.Status(t.Context(), s.e, id); err != nil || j.Status != job.InQueue || j.Lost != 0 {
		t.Errorf("got %+v, %v, want it given back", j, err)
	}
	close(leave)
}

// slowJSON is an output whose encoding lasts until its context has ended.
type slowJSON struct {
	ended <-chan struct{}
	began chan struct{}
}

func (s slowJSON) MarshalJSON() ([]byte, error) {
	s.began <- struct{}{}
	<-s.ended
	return []byte(`"done"`), nil
}

func TestAHandlerThatReturnedBeforeTheGraceWasOverHasEndedItsJob(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	returned := make(chan struct{}, 1)
	w := s.run(t, worker.Config{Grace: -1}, func(ctx context.Context, _ *worker.Job) (any, error) {
		return slowJSON{ctx.Done(), returned}, nil
	})
	id := s.submit(t)
	got(t, returned, "the output")
	w.stop()
	if err := w.wait(); err != nil {
		t.Errorf("got %v, want a clean stop", err)
	}
	s.wantEnd(t, id, job.Completed, `"done"`, "")
}
