package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/testenv"
	"flightline/shared/worker"
)

// ask drains a worker by request.
func (s *env) ask(t *testing.T, id string) {
	t.Helper()
	if _, err := s.reg.Pods.Drain(t.Context(), id, "by request", s.q.Now()); err != nil {
		t.Fatal(err)
	}
}

// obeyed waits until the worker says that it drains.
func (s *env) obeyed(t *testing.T, id string) {
	t.Helper()
	testenv.Eventually(t, id+" says that it drains", func() bool {
		workers, err := s.reg.Workers.List(t.Context(), s.e.ID)
		for _, w := range workers {
			if err == nil && w.ID == id && w.Draining && w.Native {
				return true
			}
		}
		return false
	})
}

// left checks that the worker ended in order, and that its pod says why.
func (s *env) left(t *testing.T, w *running, id string) {
	t.Helper()
	if err := w.wait(); err != nil {
		t.Errorf("got %v, want a clean end", err)
	}
	if p := s.pod(t, id); p.Status != pod.Exited || p.By != pod.Leave || !strings.HasSuffix(p.Change, "drained, and left: by request") {
		t.Errorf("got %s by %s: %q, want EXITED, drained by request", p.Status, p.By, p.Change)
	}
}

func TestAWorkerDrainedByRequestFinishesItsJobAndLeaves(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	started, leave := make(chan struct{}, 1), make(chan struct{})
	first := s.run(t, worker.Config{ID: "first", Grace: -1}, func(ctx context.Context, _ *worker.Job) (any, error) {
		started <- struct{}{}
		<-leave
		return "first", ctx.Err()
	})
	long := s.submit(t)
	got(t, started, "the job")
	s.ask(t, "first")
	s.ask(t, "first") // again changes nothing
	s.obeyed(t, "first")
	next := s.submit(t)
	s.run(t, worker.Config{ID: "second"}, returns("second", nil))
	s.wantEnd(t, next, job.Completed, `"second"`, "")
	close(leave) // later than any grace
	if j := s.wantEnd(t, long, job.Completed, `"first"`, ""); j.Run != 1 || j.Lost != 0 {
		t.Errorf("got run %d, %d lost, want 1 and 0", j.Run, j.Lost)
	}
	s.left(t, first, "first")
}

func TestAnIdleWorkerThatIsDrainedLeavesAndCanBeStartedAgain(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	w := s.run(t, worker.Config{ID: "w1"}, returns("one", nil))
	s.ask(t, "w1")
	s.left(t, w, "w1")
	testenv.Eventually(t, "its registration is gone", func() bool {
		workers, err := s.reg.Workers.List(t.Context(), s.e.ID)
		return err == nil && len(workers) == 0
	})
	s.run(t, worker.Config{ID: "w1"}, returns("two", nil))
	s.wantEnd(t, s.submit(t), job.Completed, `"two"`, "")
	if p := s.pod(t, "w1"); p.Status != pod.Running || !p.Drain.At.IsZero() {
		t.Errorf("got %+v, want it running and not draining", p)
	}
}

func TestARequestToDrainOutlastsAnOutage(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	started, leave := make(chan struct{}, 1), make(chan struct{})
	w := s.run(t, worker.Config{ID: "w1"}, func(ctx context.Context, _ *worker.Job) (any, error) {
		started <- struct{}{}
		<-leave
		return "done", ctx.Err()
	})
	id := s.submit(t)
	got(t, started, "the job")
	s.ask(t, "w1")
	s.Stop()
	// Meanwhile somebody thought it gone, as the autoscaler does with the silent.
	s.Start()
	testenv.Eventually(t, "it is taken for gone", func() bool {
		_, err := s.reg.Pods.Move(t.Context(), "w1", pod.Exit, "its worker fell silent", s.q.Now(), nil)
		return err == nil
	})
	s.obeyed(t, "w1")
	close(leave)
	s.wantEnd(t, id, job.Completed, `"done"`, "")
	if err := w.wait(); err != nil {
		t.Errorf("got %v, want a clean end", err)
	}
}

func TestTheEndOfAWorkerThatDrainsBeginsItsGrace(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	h := newObedient()
	w := s.run(t, worker.Config{ID: "w1", Grace: -1}, h.handle)
	id := s.submit(t)
	got(t, h.started, "the job")
	s.ask(t, "w1")
	s.obeyed(t, "w1")
	w.stop()
	if err := got(t, h.causes, "the end"); !errors.Is(err, worker.ErrDraining) {
		t.Errorf("got %v, want ErrDraining", err)
	}
	if err := w.wait(); err != nil {
		t.Errorf("got %v, want a clean end", err)
	}
	if j, err := s.q.Status(t.Context(), s.e, id); err != nil || j.Status != job.InQueue || j.Lost != 0 {
		t.Errorf("got %+v, %v, want it given back", j, err)
	}
}

// The worker of a driver's pod may be asked to drain before it begins: it takes no job.
func TestADriversWorkerObeysWhatItWasToldBefore(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	now := s.q.Now().UTC()
	if err := s.reg.Pods.Create(t.Context(), pod.Pod{
		ID: "w1", Endpoint: s.e.ID, Status: pod.Running, Driver: pod.Process, Created: now, Changed: now,
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.reg.Pods.Drain(t.Context(), "w1", "scale-in", now); err != nil {
		t.Fatal(err)
	}
	id := s.submit(t)
	to := s.Config()
	cfg := worker.Config{ID: "w1", Endpoint: s.e.ID, NATSURL: to.URL, User: to.User, Password: to.Password}
	if err := worker.Run(t.Context(), cfg, returns(nil, nil)); err != nil {
		t.Errorf("got %v, want a clean end", err)
	}
	if j, err := s.q.Status(t.Context(), s.e, id); err != nil || j.Status != job.InQueue || j.Run != 0 {
		t.Errorf("got %+v, %v, want it waiting", j, err)
	}
	if p := s.pod(t, "w1"); p.Status != pod.Running {
		t.Errorf("got %s, want it left to the driver", p.Status)
	}
	if _, err := s.reg.Pods.Drain(t.Context(), "nobody", "", now); !errors.Is(err, pod.ErrNotFound) {
		t.Errorf("got %v, want pod.ErrNotFound", err)
	}
	if _, err := s.reg.Pods.Update(t.Context(), "w1", func(p pod.Pod) (pod.Pod, error) {
		p.Locked, p.Drain = true, pod.Drain{}
		return p, nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.reg.Pods.Drain(t.Context(), "w1", "", now); !errors.Is(err, pod.ErrLocked) {
		t.Errorf("got %v, want pod.ErrLocked", err)
	}
}
