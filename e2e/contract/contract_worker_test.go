package contract

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"flightline/e2e/site"
	"flightline/shared/endpoint"
	"flightline/shared/worker"
)

// task is what a job's input tells the handler of the scenarios.
type task struct {
	Emit    []json.RawMessage `json:"emit"`
	String  int               `json:"string"` // emits a string of so many bytes
	Object  int               `json:"object"` // emits an object of so many bytes
	SleepMs int               `json:"sleepMs"`
	Forever bool              `json:"forever"`
	Fail    string            `json:"fail"`
}

// work runs so many handlers for the endpoint until the test ends.
func (p *place) work(concurrency int) {
	p.t.Helper()
	p.t.Cleanup(p.workUntil(concurrency))
}

// workUntil is work until stop is called.
func (p *place) workUntil(concurrency int) (stop func()) {
	p.t.Helper()
	return p.handleUntil(concurrency, handle)
}

// handleUntil is workUntil with another handler.
func (p *place) handleUntil(concurrency int, handle worker.Handler) (stop func()) {
	p.t.Helper()
	cfg := p.nats
	cfg.Endpoint, cfg.Concurrency, cfg.Grace = p.id, concurrency, -1
	ready := make(chan struct{})
	cfg.OnReady = func() { close(ready) }
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var err error
	wg.Go(func() { err = worker.Run(ctx, cfg, handle) })
	stop = func() {
		cancel()
		if wg.Wait(); err != nil && !errors.Is(err, endpoint.ErrNotFound) {
			p.t.Errorf("worker: %v", err)
		}
	}
	select {
	case <-ready:
	case <-time.After(site.Soon):
		stop()
		p.t.Fatal("the worker is not ready")
	}
	return stop
}

// handle does its task and returns its input.
func handle(ctx context.Context, j *worker.Job) (any, error) {
	var do task
	if err := json.Unmarshal(j.Input, &do); err != nil {
		return nil, err
	}
	if do.String > 0 {
		if err := j.Emit(ctx, strings.Repeat("é", do.String/2)+strings.Repeat("x", do.String%2)); err != nil {
			return nil, err
		}
	}
	if do.Object > 0 {
		if err := j.Emit(ctx, map[string]string{"x": strings.Repeat("x", do.Object)}); err != nil {
			return nil, err
		}
	}
	for _, chunk := range do.Emit {
		if err := j.Emit(ctx, chunk); err != nil {
			return nil, err
		}
	}
	wait := time.Duration(do.SleepMs) * time.Millisecond
	if do.Forever {
		wait = time.Hour
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if do.Fail != "" {
		return nil, errors.New(do.Fail)
	}
	if len(j.Input) > 1<<20 { // with more around it, it could be too large for an output
		return map[string]any{"bytes": len(j.Input)}, nil
	}
	return map[string]any{"input": j.Input}, nil
}
