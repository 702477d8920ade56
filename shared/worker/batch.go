package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// DefaultBatchWait is what Batching.Wait 0 means.
	DefaultBatchWait = 20 * time.Millisecond
	// MaxBatch bounds Batching.Max.
	MaxBatch = 1000
	// MaxBatchWait bounds Batching.Wait.
	MaxBatchWait = 10 * time.Second
)

// Batching says how jobs are put together for one call of a BatchHandler.
type Batching struct {
	// Max is how many jobs one call gets at most, 2 to MaxBatch.
	Max int
	// Wait is how long the first job of a call waits for others, at most MaxBatchWait. 0
	// means DefaultBatchWait. A full batch does not wait, nor does any once Run's ctx is done.
	Wait time.Duration
}

// BatchHandler runs several jobs in one call, as a model does that computes a batch as
// fast as one input. It returns one Result for each job, in the order of the jobs. With
// an error, after a panic, or with another number of results, all the jobs are FAILED.
//
// ctx ends when no job of the batch is wanted any longer: each was cancelled, timed out,
// or is given back because the worker stops. The result of a job that ended before is
// dropped. Each job is a job by itself in all else: Emit, Progress, its retries.
type BatchHandler func(ctx context.Context, jobs []*Job) ([]Result, error)

// Result is what came of one job of a batch, as a Handler returns it.
type Result struct {
	Output any
	Err    error
}

// RunBatches is Run with a handler that gets up to b.Max jobs in one call.
// Config.Concurrency is how many jobs are taken at once: 0 means b.Max, for one call at
// a time; twice b.Max lets a second batch fill while the first one runs. Less than b.Max
// is an ErrConfig, as are bounds of b.
func RunBatches(ctx context.Context, cfg Config, b Batching, h BatchHandler) error {
	cfg.Concurrency = cmp.Or(cfg.Concurrency, b.Max)
	b.Wait = cmp.Or(b.Wait, DefaultBatchWait)
	switch {
	case h == nil:
		return fmt.Errorf("%w: no handler", ErrConfig)
	case b.Max < 2 || b.Max > MaxBatch:
		return fmt.Errorf("%w: Batching.Max is %d; must be between 2 and %d", ErrConfig, b.Max, MaxBatch)
	case b.Wait < 0 || b.Wait > MaxBatchWait:
		return fmt.Errorf("%w: Batching.Wait is %v; must be between 0s and %v", ErrConfig, b.Wait, MaxBatchWait)
	case cfg.Concurrency < b.Max:
		return fmt.Errorf("%w: Concurrency is %d; must be at least Batching.Max, %d", ErrConfig, cfg.Concurrency, b.Max)
	}
	return Run(ctx, cfg, (&batcher{Batching: b, handler: h, stopping: ctx.Done()}).handle)
}

// batcher is a Handler that puts concurrent calls together.
type batcher struct {
	Batching
	handler  BatchHandler
	stopping <-chan struct{} // closed once no further job comes

	mu      sync.Mutex
	filling *batch // nil if none
}

// batch is the jobs of one call. Its fields are written before the call, those below
// done before done is closed.
type batch struct {
	jobs     []*Job
	contexts []context.Context
	full     chan struct{} // closed when there is no room for another job

	done    chan struct{}
	results []Result
	err     error
	panic   *batchPanic
}

// batchPanic is the value of a panic of a BatchHandler, with the stack of its goroutine.
type batchPanic struct {
	value any
	stack []byte
}

// handle adds the job to a batch and waits for what the call makes of it, also after ctx
// has ended: a slot is free when the handler no longer works on its job.
func (b *batcher) handle(ctx context.Context, j *Job) (any, error) {
	of, i := b.join(ctx, j)
	<-of.done
	switch {
	case of.panic != nil:
		panic(of.panic)
	case of.err != nil:
		return nil, of.err
	}
	return of.results[i].Output, of.results[i].Err
}

// join returns the batch of the job, and its place there.
func (b *batcher) join(ctx context.Context, j *Job) (of *batch, place int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.filling == nil {
		b.filling = &batch{full: make(chan struct{}), done: make(chan struct{})}
		go b.run(ctx, b.filling)
	}
	of = b.filling
	of.jobs, of.contexts = append(of.jobs, j), append(of.contexts, ctx)
	if len(of.jobs) == b.Max {
		b.filling = nil
		close(of.full)
	}
	return of, len(of.jobs) - 1
}

// run waits until the batch is full, its wait is over or the worker stops, and calls the
// handler. first is the context of its first job.
func (b *batcher) run(first context.Context, of *batch) {
	wait := time.NewTimer(b.Wait)
	defer wait.Stop()
	select {
	case <-of.full:
	case <-wait.C:
	case <-b.stopping:
	}
	b.mu.Lock()
	if b.filling == of {
		b.filling = nil
	}
	b.mu.Unlock()
	defer close(of.done)
	of.err = errors.New("the handler ended its goroutine") // runtime.Goexit
	defer func() {
		if v := recover(); v != nil {
			of.panic = &batchPanic{v, debug.Stack()}
		}
	}()
	ctx, stop := whileWanted(first, of.contexts)
	defer stop()
	of.results, of.err = b.handler(ctx, of.jobs)
	if of.err == nil && len(of.results) != len(of.jobs) {
		of.err = fmt.Errorf("the handler returned %d results for %d jobs", len(of.results), len(of.jobs))
	}
}

// whileWanted returns a context with the values of first, which ends with the last of all,
// for its cause.
func whileWanted(first context.Context, all []context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(first))
	var mu sync.Mutex
	left := len(all)
	stops := make([]func() bool, len(all))
	for i, each := range all {
		stops[i] = context.AfterFunc(each, func() {
			mu.Lock()
			defer mu.Unlock()
			if left--; left == 0 {
				cancel(context.Cause(each))
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}
