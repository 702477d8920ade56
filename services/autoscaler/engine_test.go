package autoscaler

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"flightline/services/autoscaler/driver"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/retry"
)

// engine is a driver whose pods are goroutines that beat as workers do.
type engine struct {
	id       string
	registry *registry.Registry
	refuse   error                // what Start returns
	broken   atomic.Value         // the UUID of a GPU on which nothing starts
	newborn  string               // the state of those that start
	pulls    bool                 // it says that it fetches an image
	records  *registry.WorkerPods // if not nil, its workers read there that they are to sleep, to wake and to drain
	listed   func()               // if not nil, called once List has its answer, before it returns that
	starting chan struct{}        // if not nil, closed by the one start, which lasts until the autoscaler is stopped

	mu      sync.Mutex
	away    bool
	running map[string]*run
	started map[string]int
	peak    int // the most that ran at once
}

type run struct {
	start  driver.Start
	cancel context.CancelFunc
	done   chan struct{}
	held   []string // jobs
	state  string   // what it says instead of idle; mute for nothing
	began  time.Time
}

func (s *env) engine(id string) *engine {
	return &engine{id: id, registry: s.registry, running: map[string]*run{}, started: map[string]int{}}
}

func (e *engine) Name() pod.Driver { return pod.Process }

func (e *engine) Machine(context.Context) (string, pod.Machine, error) {
	return e.id, pod.Machine{Hostname: e.id}, nil
}

func (e *engine) Start(ctx context.Context, start driver.Start) error {
	if e.refuse != nil {
		return e.refuse
	}
	if slices.ContainsFunc(start.GPUs, func(g pod.GPU) bool { return g.UUID == e.broken.Load() }) {
		return errors.New("the device is lost")
	}
	if e.starting != nil {
		close(e.starting)
		<-ctx.Done()
	}
	if e.pulls {
		start.Entered(ctx, pod.Pulling)
		start.Entered(ctx, pod.Starting)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &run{start: start, cancel: cancel, done: make(chan struct{}), began: time.Now(), state: e.newborn}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running[start.PodID] != nil {
		if start.LeftAlone != nil {
			start.LeftAlone(ctx)
		}
		cancel()
		return nil
	}
	e.running[start.PodID] = r
	e.started[start.PodID]++
	e.peak = max(e.peak, len(e.running))
	go func() {
		defer close(r.done)
		each(ctx, 100*time.Millisecond, func() {
			e.mu.Lock()
			held, state := r.held, r.state
			e.mu.Unlock()
			if state == mute {
				return
			}
			w := registry.Worker{ID: start.PodID, Endpoint: start.Endpoint, State: cmp.Or(state, registry.WorkerIdle), Running: held}
			if e.records != nil {
				own, _ := e.records.Get(ctx, start.Endpoint, start.PodID)
				w.Native, w.Sleeps, w.Draining = true, true, own.Drains(r.began)
				if own.Sleep.Sleeps() {
					w.State = registry.WorkerSleeping
				}
			}
			if len(held) > 0 {
				w.State = registry.WorkerRunning
			}
			_ = e.registry.Workers.Beat(ctx, w)
		})
	}()
	return nil
}

func (e *engine) Stop(_ context.Context, id string, _ time.Duration) error {
	e.mu.Lock()
	r := e.running[id]
	delete(e.running, id)
	e.mu.Unlock()
	if r != nil {
		r.cancel()
		<-r.done
	}
	return nil
}

func (e *engine) List(context.Context) ([]driver.Instance, error) {
	if e.listed != nil {
		defer e.listed()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.away {
		return nil, driver.ErrUnavailable
	}
	var all []driver.Instance
	for id, r := range e.running {
		all = append(all, driver.Instance{PodID: id, Endpoint: r.start.Endpoint, Life: r.start.Life, Running: true, Started: r.began, GPUs: uuidsOf(r.start.GPUs)})
	}
	return all, nil
}

func uuidsOf(gpus []pod.GPU) []string {
	var all []string
	for _, g := range gpus {
		all = append(all, g.UUID)
	}
	return all
}

func (e *engine) Forget(context.Context, string) error { return nil }

func (e *engine) Close(ctx context.Context) error {
	for _, id := range e.pods() {
		_ = e.Stop(ctx, id, 0)
	}
	return nil
}

func (e *engine) pods() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var names []string
	for id := range e.running {
		names = append(names, id)
	}
	return names
}

// hold makes the worker hold these jobs.
func (e *engine) hold(id string, jobs ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.running[id]; r != nil {
		r.held = jobs
	}
}

var errRefused = errors.New("no such image")

// mute workers say nothing.
const mute = "mute"

// starts is how often the pod was started.
func (e *engine) starts(id string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.started[id]
}

// each calls f at once, and again after each pause, until ctx ends.
func each(ctx context.Context, pause time.Duration, f func()) {
	for ctx.Err() == nil {
		f()
		_ = retry.Sleep(ctx, pause) // the loop ends with ctx
	}
}
