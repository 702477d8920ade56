package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/shared/worker"
)

// runBatches starts a worker of batches and waits until it takes jobs.
func (s *env) runBatches(t *testing.T, cfg worker.Config, b worker.Batching, h worker.BatchHandler) *running {
	t.Helper()
	return s.start(t, s.Config().URL, cfg, func(ctx context.Context, cfg worker.Config) error { return worker.RunBatches(ctx, cfg, b, h) })
}

// long is a wait that no test sees the end of: a batch goes because it is full.
const long = worker.MaxBatchWait

func numbered(n int) func(*job.Request) {
	return func(r *job.Request) { r.Input = json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)) }
}

func TestAFullBatchIsOneCallAndEachJobHasItsOwnEnd(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	sizes := make(chan int, 10)
	s.runBatches(t, worker.Config{}, worker.Batching{Max: 3, Wait: long}, func(_ context.Context, jobs []*worker.Job) ([]worker.Result, error) {
		sizes <- len(jobs)
		results := make([]worker.Result, len(jobs))
		for i, j := range jobs {
			var in struct {
				N int `json:"n"`
			}
			if err := json.Unmarshal(j.Input, &in); err != nil {
				return nil, err
			}
			if in.N == 1 {
				results[i].Err = errors.New("one is odd")
				continue
			}
			results[i].Output = in.N * in.N
		}
		return results, nil
	})
	var ids []job.ID
	for n := range 3 {
		ids = append(ids, s.submit(t, numbered(n)))
	}
	s.wantEnd(t, ids[0], job.Completed, `0`, "")
	s.wantEnd(t, ids[1], job.Failed, ``, "one is odd")
	s.wantEnd(t, ids[2], job.Completed, `4`, "")
	if got := got(t, sizes, "a call"); got != 3 || len(sizes) > 0 {
		t.Errorf("got a call of %d jobs and %d more calls, want one of 3", got, len(sizes))
	}
}

func TestABatchThatDoesNotFillGoesWhenItsWaitIsOver(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.runBatches(t, worker.Config{}, worker.Batching{Max: 100}, func(_ context.Context, jobs []*worker.Job) ([]worker.Result, error) {
		return make([]worker.Result, len(jobs)), nil
	})
	s.wantEnd(t, s.submit(t), job.Completed, "", "")
}

func TestABatchThatFailsFailsItsJobs(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		handler worker.BatchHandler
		want    string
	}{
		"an error": {func(context.Context, []*worker.Job) ([]worker.Result, error) { return nil, errors.New("out of memory") }, "out of memory"},
		"too few results": {
			func(context.Context, []*worker.Job) ([]worker.Result, error) { return make([]worker.Result, 1), nil },
			"the handler returned 1 results for 2 jobs",
		},
		"a panic":             {func(context.Context, []*worker.Job) ([]worker.Result, error) { panic("secret-4711") }, "handler panicked: string"},
		"its goroutine's end": {func(context.Context, []*worker.Job) ([]worker.Result, error) { runtime.Goexit(); return nil, nil }, "the handler ended its goroutine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			var log strings.Builder
			w := s.runBatches(t, worker.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, worker.Batching{Max: 2, Wait: long}, tt.handler)
			ids := []job.ID{s.submit(t), s.submit(t)}
			for _, id := range ids {
				s.wantEnd(t, id, job.Failed, "", tt.want)
			}
			w.stop()
			_ = w.wait()
			if stack := strings.Contains(log.String(), "batch_test.go"); stack != (name == "a panic") {
				t.Errorf("the handler's stack is in the log: %t\n%s", stack, log.String())
			}
		})
	}
}

// A cancelled job leaves its batch, and the rest goes on; the call's context ends with
// the last of them.
func TestABatchEndsWhenNobodyWantsItsJobs(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	called, ended := make(chan []*worker.Job, 1), make(chan error, 1)
	s.runBatches(t, worker.Config{}, worker.Batching{Max: 2, Wait: long}, func(ctx context.Context, jobs []*worker.Job) ([]worker.Result, error) {
		called <- jobs
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return make([]worker.Result, len(jobs)), nil
	})
	ids := []job.ID{s.submit(t), s.submit(t)}
	if jobs := got(t, called, "the call"); len(jobs) != 2 {
		t.Fatalf("got %d jobs, want 2", len(jobs))
	}
	cancel := func(id job.ID) {
		t.Helper()
		if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
			t.Fatal(err)
		}
		s.wantEnd(t, id, job.Cancelled, "", "")
	}
	cancel(ids[0])
	select {
	case err := <-ended:
		t.Fatalf("the call ended while a job ran: %v", err)
	default:
	}
	cancel(ids[1])
	if err := got(t, ended, "the end of the call"); !errors.Is(err, worker.ErrCancelled) {
		t.Errorf("got %v, want ErrCancelled", err)
	}
}

func TestASecondBatchFillsWhileTheFirstRuns(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	calls, release := make(chan int, 4), make(chan struct{})
	s.runBatches(t, worker.Config{Concurrency: 4}, worker.Batching{Max: 2, Wait: long}, func(_ context.Context, jobs []*worker.Job) ([]worker.Result, error) {
		calls <- len(jobs)
		<-release
		return make([]worker.Result, len(jobs)), nil
	})
	var ids []job.ID
	for range 4 {
		ids = append(ids, s.submit(t))
	}
	sizes := []int{got(t, calls, "the first call"), got(t, calls, "the second call")}
	close(release)
	if !slices.Equal(sizes, []int{2, 2}) {
		t.Errorf("got calls of %v jobs, want two of 2", sizes)
	}
	for _, id := range ids {
		s.wantEnd(t, id, job.Completed, "", "")
	}
}

// No further job comes once the worker stops, so a batch that fills does not wait for one:
// it would use up the grace, and hold up the end of the worker.
func TestABatchThatFillsGoesWhenTheWorkerStops(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	w := s.runBatches(t, worker.Config{Grace: long / 2}, worker.Batching{Max: 2, Wait: long}, func(_ context.Context, jobs []*worker.Job) ([]worker.Result, error) {
		return make([]worker.Result, len(jobs)), nil
	})
	id := s.submit(t)
	// The record says that it is IN_PROGRESS before the worker has it.
	testenv.Eventually(t, "the worker has the job", func() bool {
		workers, err := s.reg.Workers.List(t.Context(), s.e.ID)
		return err == nil && len(workers) == 1 && slices.Equal(workers[0].Running, []string{string(id)})
	})
	w.stop()
	if err := w.wait(); err != nil {
		t.Errorf("got %v, want a clean stop", err)
	}
	s.wantEnd(t, id, job.Completed, "", "")
}

func TestBoundsOfBatching(t *testing.T) {
	t.Parallel()
	h := func(context.Context, []*worker.Job) ([]worker.Result, error) { return nil, nil }
	for want, run := range map[string]func() error{
		"Batching.Max is 1; must be between 2 and 1000": func() error {
			return worker.RunBatches(t.Context(), worker.Config{Endpoint: "e"}, worker.Batching{Max: 1}, h)
		},
		"Batching.Max is 1001": func() error {
			return worker.RunBatches(t.Context(), worker.Config{Endpoint: "e"}, worker.Batching{Max: 1001}, h)
		},
		"Batching.Wait is -1ns; must be between 0s and 10s": func() error {
			return worker.RunBatches(t.Context(), worker.Config{Endpoint: "e"}, worker.Batching{Max: 2, Wait: -1}, h)
		},
		"Batching.Wait is 11s": func() error {
			return worker.RunBatches(t.Context(), worker.Config{Endpoint: "e"}, worker.Batching{Max: 2, Wait: 11 * time.Second}, h)
		},
		"Concurrency is 3; must be at least Batching.Max, 4": func() error {
			return worker.RunBatches(t.Context(), worker.Config{Endpoint: "e", Concurrency: 3}, worker.Batching{Max: 4}, h)
		},
		"no handler": func() error {
			return worker.RunBatches(t.Context(), worker.Config{Endpoint: "e"}, worker.Batching{Max: 4}, nil)
		},
	} {
		if err := run(); !errors.Is(err, worker.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ErrConfig with %q", err, want)
		}
	}
}
