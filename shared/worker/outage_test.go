package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/shared/testenv/backend"
	"flightline/shared/worker"
)

func TestAnOutageOfSeveralLeasesRunsNoJobTwice(t *testing.T) {
	t.Parallel()
	const jobs = 50
	s := newEnv(t, brief)
	var runs atomic.Int32
	started, early, late := make(chan struct{}, jobs), make(chan struct{}), make(chan struct{})
	// Two workers, so that one could take over what the other holds.
	for range 2 {
		var mine atomic.Int32
		s.run(t, worker.Config{Concurrency: jobs}, func(ctx context.Context, j *worker.Job) (any, error) {
			runs.Add(1)
			started <- struct{}{}
			if mine.Add(1)%2 == 0 {
				<-early // ends while NATS is away
			} else {
				<-late
			}
			return j.ID, ctx.Err()
		})
	}
	var ids []job.ID
	for range jobs {
		ids = append(ids, s.submit(t))
	}
	for range jobs {
		got(t, started, "all jobs")
	}
	s.Stop()
	close(early)
	away := time.NewTimer(3 * lease)
	<-away.C
	s.Start()
	testenv.Eventually(t, "the early ones are delivered", func() bool {
		stats, err := s.q.Counts.Stats(t.Context(), s.e)
		return err == nil && stats.Running <= jobs/2+1
	})
	close(late)
	for _, id := range ids {
		if j := s.wantEnd(t, id, job.Completed, `"`+string(id)+`"`, ""); j.Run != 1 || j.Lost != 0 {
			t.Errorf("got run %d, %d lost, want 1 and 0", j.Run, j.Lost)
		}
	}
	if n := runs.Load(); n != jobs {
		t.Errorf("handlers ran %d times, want %d", n, jobs)
	}
}

// lines gets the first line of a log that nobody has read yet.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}

func TestAWorkerStartsOnceJetStreamAnswers(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	nc := testenv.Connect(t, s.Config())
	s.Stop()
	warned := make(lines, 1)
	log := slog.New(slog.NewTextHandler(warned, nil))
	ready, ended := make(chan struct{}), make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		ended <- worker.Run(ctx, worker.Config{NC: nc, Endpoint: s.e.ID, Log: log, OnReady: func() { close(ready) }}, newObedient().handle)
	}()
	select {
	case <-warned:
	case err := <-ended:
		t.Fatalf("got %v while JetStream was away, want another try", err)
	}
	s.Start()
	got(t, ready, "the start")
	stop()
	if err := got(t, ended, "the end"); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestChunksOutlastAnOutage(t *testing.T) {
	t.Parallel()
	const chunks = 2000
	s := newEnv(t, brief)
	tenth := make(chan struct{})
	s.run(t, worker.Config{}, func(ctx context.Context, j *worker.Job) (any, error) {
		for i := range chunks {
			if i == 10 {
				close(tenth)
			}
			if err := j.Progress(ctx, i); err != nil && i%100 == 0 {
				return nil, err
			}
			if err := j.Emit(ctx, i); err != nil {
				return nil, err
			}
		}
		return "all", nil
	})
	id := s.submit(t)
	got(t, tenth, "the first chunks")
	s.Stop()
	away := time.NewTimer(2 * lease)
	<-away.C
	s.Start()
	s.wantEnd(t, id, job.Completed, `"all"`, "")
	if got := backend.Chunks(t, s.q, s.e, id); len(got) != chunks {
		t.Errorf("got %d chunks, want %d", len(got), chunks)
	}
}

func TestAJobThatEndsInAnOutageHasAllItsChunks(t *testing.T) {
	t.Parallel()
	const chunks = 500
	s := newEnv(t)
	started, away := make(chan struct{}), make(chan struct{})
	s.run(t, worker.Config{}, func(ctx context.Context, j *worker.Job) (any, error) {
		close(started)
		<-away
		for i := range chunks {
			if err := j.Emit(ctx, i); err != nil {
				return nil, err
			}
		}
		return "all", nil
	})
	id := s.submit(t)
	got(t, started, "the job")
	s.Stop()
	close(away)
	s.Start()
	s.wantEnd(t, id, job.Completed, `"all"`, "")
	list := backend.Chunks(t, s.q, s.e, id)
	for i, c := range list {
		if want := fmt.Sprintf(`{"output":%d}`, i); string(c.Data) != want {
			t.Fatalf("chunk %d is %s", i, c.Data)
		}
	}
	if len(list) != chunks {
		t.Errorf("got %d chunks, want %d", len(list), chunks)
	}
}

func TestALostWorkersJobRunsElsewhere(t *testing.T) {
	t.Parallel()
	s := newEnv(t, brief)
	nc := s.Connect(t)
	taken := make(chan struct{})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- worker.Run(ctx, worker.Config{NC: nc, Endpoint: "ep", Grace: -1}, func(ctx context.Context, _ *worker.Job) (any, error) {
			close(taken)
			<-ctx.Done()
			return nil, nil
		})
	}()
	id := s.submit(t)
	got(t, taken, "the job")
	s.run(t, worker.Config{ID: "second"}, returns("second", nil))
	nc.Close() // it can neither beat nor tell
	if j := s.wantEnd(t, id, job.Completed, `"second"`, ""); j.Lost != 1 || j.Run != 2 {
		t.Errorf("got run %d, %d lost, want 2 and 1", j.Run, j.Lost)
	}
	stop()
	if err := got(t, done, "the first worker's end"); !errors.Is(err, worker.ErrStuck) {
		t.Errorf("got %v, want ErrStuck: it could not give its job back", err)
	}
}

// The worker ends a run whose ttl is over as far as it knows. If a caller made the ttl longer
// meanwhile, the job waits for a worker, and not for the end of the lease.
func TestATTLThatWasMadeLongerInAnOutageGivesTheJobBack(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	c := newCable(t, s.Config().URL)
	causes := make(chan error, 1)
	started := make(chan struct{}, 2)
	s.runAt(t, c.url, worker.Config{}, func(ctx context.Context, j *worker.Job) (any, error) {
		started <- struct{}{}
		if j.Run > 1 {
			return "again", nil
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil, ctx.Err()
	})
	id := s.submit(t, func(r *job.Request) { r.Policy.TTL = 5 * time.Second })
	got(t, started, "the job")
	c.mute.Store(true)
	if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := got(t, causes, "the end of the run"); !errors.Is(err, worker.ErrExpired) {
		t.Errorf("got %v, want ErrExpired", err)
	}
	c.mute.Store(false)
	if j := s.wantEnd(t, id, job.Completed, `"again"`, ""); j.Lost != 0 || j.Run != 2 {
		t.Errorf("got run %d, %d lost, want run 2, none lost", j.Run, j.Lost)
	}
}

// An outcome is kept for a job whose ttl a caller made longer while NATS was away.
func TestAnOutcomeOutlastsAnOutageInWhichTheTTLWasMadeLonger(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	c := newCable(t, s.Config().URL)
	started, leave := make(chan struct{}, 2), make(chan struct{})
	s.runAt(t, c.url, worker.Config{}, func(context.Context, *worker.Job) (any, error) {
		started <- struct{}{}
		<-leave
		return "done", nil
	})
	const ttl = 5 * time.Second
	over := time.NewTimer(ttl + 7*time.Second) // longer than a heartbeat waits for its answer
	id := s.submit(t, func(r *job.Request) { r.Policy.TTL = ttl })
	got(t, started, "the job")
	c.mute.Store(true)
	if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Hour); err != nil {
		t.Fatal(err)
	}
	close(leave)
	<-over.C
	c.mute.Store(false)
	if j := s.wantEnd(t, id, job.Completed, `"done"`, ""); j.Lost != 0 || j.Run != 1 {
		t.Errorf("got run %d, %d lost, want one run", j.Run, j.Lost)
	}
}
