package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/wakeup"
)

const (
	// beatApart is the least pause between two registrations: /health is at
	// most 1 s old, and thousands of short jobs a second are not worth
	// thousands of writes.
	beatApart = time.Second
	// beatTimeout bounds one registration.
	beatTimeout = 3 * time.Second
)

// presence publishes that this worker exists and what it does, and
// notices when its endpoint is gone.
type presence struct {
	workers   *registry.Workers
	endpoints *registry.Endpoints
	pods      *registry.WorkerPods
	endpoint  endpoint.Endpoint
	pod       pod.Pod
	clock     func() time.Time // the server's
	log       *slog.Logger
	changed   wakeup.Signal // run is to register the worker soon
	drained   chan struct{} // closed when the worker is to drain
	onDrain   func()        // Config.OnDrain
	sleep     wakeup.Signal // the worker is to sleep
	wake      wakeup.Signal // it is to wake

	beating    sync.Mutex // one beat at a time
	appeared   bool       // the pod is on record, or cannot be
	ownsRecord bool       // the pod's record is this worker's to end, and no driver's
	heard      time.Time  // the last beat that was taken
	looked     time.Time  // when the pod's record was last read

	mu        sync.Mutex
	self      registry.Worker
	running   []string
	idleSince time.Time // the end of the last job, or of sleep, by this machine's clock
	why       string    // it is to drain
	mode      mode
}

func newPresence(reg *registry.ForWorker, e endpoint.Endpoint, own pod.Pod, cfg Config, clock func() time.Time) *presence {
	return &presence{
		workers: reg.Workers, endpoints: reg.Endpoints, pods: reg.Pods, endpoint: e, pod: own, clock: clock, log: cfg.Log, onDrain: cfg.OnDrain,
		self: registry.Worker{
			ID: own.ID, Endpoint: e.ID, Concurrency: cfg.Concurrency, Native: true, Sleeps: cfg.Sleep != nil,
			Started: own.Started, Host: hostOf(own.Machine),
		},
		changed: wakeup.New(), drained: make(chan struct{}), sleep: wakeup.New(), wake: wakeup.New(),
	}
}

// started notes that the worker runs the job. run registers it soon if it was idle.
func (p *presence) started(id job.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = append(p.running, string(id))
	if len(p.running) == 1 { // it was idle
		p.changed.Send()
	}
}

// finished notes that the worker no longer runs the job. run registers it soon if it is
// idle now.
func (p *presence) finished(id job.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.running, string(id)); i >= 0 {
		p.running = slices.Delete(p.running, i, i+1)
	}
	p.idleSince = time.Now()
	if len(p.running) == 0 { // it is idle
		p.changed.Send()
	}
}

// run registers the worker again and again, takes the registration back when
// ctx ends, and returns nil then. It returns endpoint.ErrNotFound when the
// endpoint is gone.
func (p *presence) run(ctx context.Context) error {
	defer p.leave(ctx)
	apart := time.NewTicker(beatApart)
	defer apart.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-apart.C:
		}
		p.readPod(ctx)
		select {
		case <-p.changed:
		default:
			if time.Since(last) < registry.BeatEvery {
				continue
			}
		}
		last = time.Now()
		p.beat(ctx)
		if err := p.checkEndpoint(ctx); err != nil {
			return err
		}
	}
}

// beat registers the worker as it is now. That NATS does not answer is no
// error: the next beat comes beatApart later.
func (p *presence) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	p.beating.Lock()
	defer p.beating.Unlock()
	if err := p.workers.Beat(ctx, p.now()); err != nil {
		p.log.DebugContext(ctx, "worker not registered", "err", err)
		p.changed.Send()
		return
	}
	p.recordRunning(ctx)
	p.heard = time.Now()
}

func (p *presence) now() registry.Worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	self := p.self
	self.State, self.Running = registry.WorkerIdle, slices.Clone(p.running)
	switch {
	case len(p.running) > 0:
		self.State = registry.WorkerRunning
	case p.mode == asleep || p.mode == waking:
		self.State = registry.WorkerSleeping
	case !p.idleSince.IsZero():
		self.Rested = time.Since(p.idleSince)
	}
	return self
}

// checkEndpoint returns endpoint.ErrNotFound if the endpoint is known to be gone, or
// is another one of the same id.
func (p *presence) checkEndpoint(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	e, err := p.endpoints.Get(ctx, p.endpoint.ID)
	if errors.Is(err, endpoint.ErrNotFound) || err == nil && !e.Created.Equal(p.endpoint.Created) {
		return fmt.Errorf("endpoint %s was deleted: %w", p.endpoint.ID, endpoint.ErrNotFound)
	}
	return nil
}

func (p *presence) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	p.beating.Lock()
	defer p.beating.Unlock()
	p.recordLeft(ctx) // first: a worker that is gone without a word counts as lost
	if err := p.workers.Remove(ctx, p.self.Endpoint, p.self.ID); err != nil {
		p.log.DebugContext(ctx, "registration left to expire", "err", err)
	}
}
