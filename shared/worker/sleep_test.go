package worker_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/shared/worker"
	"flightline/streams"
)

// nap is a worker that can sleep, and its calls of Sleep and Wake.
type nap struct {
	*env
	*running
	nc          *nats.Conn // of the worker
	slept, woke chan struct{}
	at          pod.Pod
}

// napper runs a worker whose Sleep and Wake return these errors.
func (s *env) napper(t *testing.T, sleep, wake error) *nap {
	t.Helper()
	n := &nap{env: s, nc: s.Connect(t), slept: make(chan struct{}, 1), woke: make(chan struct{}, 1)}
	n.at = pod.Pod{ID: "napper", Endpoint: s.e.ID, Driver: pod.Process}
	n.running = s.run(t, worker.Config{
		ID:    "napper",
		NC:    n.nc,
		Sleep: func(context.Context) error { n.slept <- struct{}{}; return sleep },
		Wake:  func(context.Context) error { n.woke <- struct{}{}; return wake },
	}, func(context.Context, *worker.Job) (any, error) { return "done", nil })
	return n
}

// ask requests a sleep, or a wake.
func (n *nap) ask(t *testing.T, wake bool) {
	t.Helper()
	if wake {
		n.at.Sleep.Wake = n.q.Now()
	} else {
		n.at.Sleep = pod.Sleep{At: n.q.Now()}
	}
	if err := n.reg.Pods.ShowSleep(t.Context(), n.at, n.q.Now()); err != nil {
		t.Fatal(err)
	}
}

// inState waits for a heartbeat in the state.
func (n *nap) inState(t *testing.T, state string) {
	t.Helper()
	testenv.Eventually(t, "the worker is "+state, func() bool {
		workers, err := n.reg.Workers.List(t.Context(), n.e.ID)
		return err == nil && len(workers) == 1 && workers[0].State == state && workers[0].Sleeps
	})
}

func TestAWorkerSleepsAndWakesForAJob(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	n := s.napper(t, nil, nil)
	s.wantEnd(t, s.submit(t), job.Completed, `"done"`, "")
	n.ask(t, false)
	got(t, n.slept, "the sleep")
	n.inState(t, registry.WorkerSleeping)
	id := s.submit(t)
	if j, err := s.q.Status(t.Context(), s.e, id); err != nil || j.Status != job.InQueue {
		t.Errorf("got %+v, %v, want a worker that sleeps to take no job", j, err)
	}
	n.ask(t, true)
	got(t, n.woke, "the wake")
	s.wantEnd(t, id, job.Completed, `"done"`, "")
	n.inState(t, registry.WorkerIdle)
	n.stop()
	if err := n.wait(); err != nil {
		t.Errorf("got %v, want a clean stop", err)
	}
}

// In a cluster the pulls of a worker that falls asleep stay open until the server ends them: a
// job that comes by one of them keeps the worker awake.
func TestAJobThatComesWhileAWorkerFallsAsleepKeepsItAwake(t *testing.T) {
	if testing.Short() {
		t.Skip("three servers take some seconds")
	}
	t.Parallel()
	c := testenv.NewCluster(t)
	s := newEnvOn(t, &testenv.Server{NC: c.NC, JS: c.JS})
	n := &nap{env: s, slept: make(chan struct{}, 1), at: pod.Pod{ID: "napper", Endpoint: s.e.ID, Driver: pod.Process}}
	cfg := worker.Config{
		Endpoint: s.e.ID, ID: "napper", NC: c.Connect(t),
		Sleep: func(context.Context) error { n.slept <- struct{}{}; return nil },
		Wake:  func(context.Context) error { return nil },
	}
	testenv.Background(t, func(ctx context.Context) error {
		return worker.Run(ctx, cfg, func(context.Context, *worker.Job) (any, error) { return "done", nil })
	})
	for missed := true; missed; { // a pull may have ended before the job came
		s.wantEnd(t, s.submit(t), job.Completed, `"done"`, "")
		pulls := testenv.Subscribe(t, c.NC, bus.PullNext(streams.Jobs(s.e.ID), streams.Consumer(job.Normal)))
		nextOf(t, pulls) // it is open for some seconds
		n.ask(t, false)
		reads := testenv.Subscribe(t, c.NC, bus.LeaderGet(streams.Bucket(streams.BucketWorkerPods)))
		for range 2 { // after the second one it does as the first one said
			nextOf(t, reads)
		}
		id := s.submit(t)
		got(t, n.slept, "the sleep, once the job has ended")
		j, err := s.q.Status(t.Context(), s.e, id)
		if err != nil {
			t.Fatal(err)
		}
		if missed = j.Status == job.InQueue; missed {
			if stats, err := s.q.Counts.StatsNow(t.Context(), s.e); err != nil || stats.Running > 0 {
				t.Fatalf("got %+v, %v, and a worker that sleeps", stats, err)
			}
			n.ask(t, true)
		}
	}
}

// nextOf waits for a message.
func nextOf(t *testing.T, sub *nats.Subscription) {
	t.Helper()
	if _, err := sub.NextMsgWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A worker may sleep thousands of times.
func TestASleepLeavesNothingBehindOnTheConnection(t *testing.T) {
	t.Parallel()
	n := newEnv(t).napper(t, nil, nil)
	first := 0
	for range 3 {
		n.ask(t, false)
		got(t, n.slept, "the sleep")
		n.inState(t, registry.WorkerSleeping)
		if first == 0 {
			first = n.nc.NumSubscriptions()
		}
		testenv.Eventually(t, "it has as many subscriptions as in its first sleep", func() bool { return n.nc.NumSubscriptions() == first })
		n.ask(t, true)
		got(t, n.woke, "the wake")
		n.inState(t, registry.WorkerIdle)
	}
}

func TestASleepingWorkerLeavesWhenItIsDrained(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	n := s.napper(t, nil, nil)
	n.ask(t, false)
	n.inState(t, registry.WorkerSleeping)
	if _, err := s.reg.Pods.At(s.e.ID).Drain(t.Context(), "napper", "the test", s.q.Now()); err != nil {
		t.Fatal(err)
	}
	if err := n.wait(); err != nil || len(n.woke) > 0 {
		t.Errorf("got %v, %d wakes, want it to leave asleep", err, len(n.woke))
	}
}

func TestAWorkerThatCannotSleepOrWakeEnds(t *testing.T) {
	t.Parallel()
	broken := errors.New("out of order")
	s := newEnv(t)
	n := s.napper(t, broken, nil)
	n.ask(t, false)
	if err := n.wait(); err != nil {
		t.Errorf("got %v from a worker that cannot sleep, want it to leave", err)
	}

	s = newEnv(t)
	n = s.napper(t, nil, broken)
	n.ask(t, false)
	n.inState(t, registry.WorkerSleeping)
	id := s.submit(t)
	n.ask(t, true)
	if err := n.wait(); !errors.Is(err, worker.ErrWake) || !errors.Is(err, broken) {
		t.Errorf("got %v, want an ErrWake that says why", err)
	}
	if j, err := s.q.Status(t.Context(), s.e, id); err != nil || j.Status != job.InQueue || j.Run != 0 {
		t.Errorf("got %+v, %v, want the job untouched", j, err)
	}
}

func TestSleepNeedsAWake(t *testing.T) {
	t.Parallel()
	err := worker.Run(t.Context(), worker.Config{Endpoint: "ep", Sleep: func(context.Context) error { return nil }},
		func(context.Context, *worker.Job) (any, error) { return nil, nil })
	if !errors.Is(err, worker.ErrConfig) {
		t.Errorf("got %v, want an ErrConfig", err)
	}
}
