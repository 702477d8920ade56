package autoscaler

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/endpoint"
	"flightline/shared/queue"
	"flightline/shared/registry"
)

const (
	// maxConcurrentEndpoints bounds how many endpoints are looked at side by side.
	maxConcurrentEndpoints = 8
	// externalInterval is the pause between two looks at an endpoint whose workers
	// somebody else starts.
	externalInterval = 5 * time.Second
	// reconcileInterval is the pause between two looks at all pods.
	reconcileInterval = 2 * time.Second
	// repeatInterval is how long a decision stands unchanged before it is written again.
	repeatInterval = 24 * time.Hour
)

// leader is one term as the active instance. Nothing of it is needed by the
// next: what it forgets costs time only.
type leader struct {
	*Service
	endpoints      map[string]*endpointState
	reconciler     *reconciler
	lastReconciled time.Time
	// looked is when the last look began.
	looked   time.Time
	arrivals *queue.EnqueueNotifier
	known    background

	gpuMu sync.Mutex
	// gpus are the endpoints whose workers need GPUs.
	gpus map[string]*postponed
	// swept is when claims were last looked at, orphaned since when which have no pod.
	swept    time.Time
	orphaned map[string]time.Time
	// probes are the workers that try GPUs on probation.
	probes map[string]probe
}

// endpointState is what the leader remembers of an endpoint.
type endpointState struct {
	memory memory
	last   registry.Decision // the last one written
	loaded bool              // last is what the stream has
	// states is since when each worker is in its state.
	states map[memberState]time.Time
	// stale is since when a worker says that it runs a job which it does not hold.
	stale  map[staleJob]time.Time
	looked time.Time
	of     endpoint.Endpoint
	alive  int // workers, when it was looked at
	count  jobCount
	handed handedJobs
	// failures are the last that were read, at failuresRead.
	failures     sameFailure
	failuresRead time.Time
	// budgetRead is when the failures were counted last that the budget bounds; applied is
	// the pause by the budget that this leader has applied to the queue.
	budgetRead, applied time.Time
	// canaryRead is when the ends of jobs on both versions were read last.
	canaryRead time.Time
}

// memberState is that a worker is in a state.
type memberState struct {
	id    string
	state state
}

// lead is one term.
func (s *Service) lead(ctx context.Context) error {
	l := &leader{Service: s, arrivals: s.queue.EnqueueNotifier()}
	l.forget()
	defer l.arrivals.Close()
	var notes sync.WaitGroup
	defer notes.Wait()
	notes.Go(func() { s.noteSteps(ctx) })
	tick, again := time.NewTicker(s.cfg.Every), time.NewTimer(0)
	defer tick.Stop()
	defer again.Stop()
	hasty := map[string]int{} // how often they were looked at in haste
	l.runRound(ctx, nil)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			l.runRound(ctx, nil)
			continue
		case m := <-l.arrivals.Notifications():
			l.noteArrivals(m, hasty)
		case <-again.C:
		}
		if pause := l.hurry(ctx, hasty); pause > 0 {
			again.Reset(pause)
		}
	}
}

// forget begins the term again.
func (l *leader) forget() {
	l.endpoints, l.gpus, l.reconciler, l.known = map[string]*endpointState{}, map[string]*postponed{}, newReconciler(l.Service), background{}
	l.lastReconciled, l.swept, l.orphaned, l.probes = time.Time{}, time.Time{}, nil, nil
}

// runRound looks at all endpoints that are due, or at some alone. When the server's clock
// was set, what is remembered has times of before: nothing would be due for as long as the
// clock was set back, and all would be late after it was set forward.
func (l *leader) runRound(ctx context.Context, only map[string]int) {
	if l.queue.Bus().Clock().StepSince(l.looked) != 0 {
		l.forget()
	}
	l.looked = l.queue.Now()
	if err := l.round(ctx, only); err != nil && ctx.Err() == nil {
		l.reconciler.forgetTimes() // who was silent could not be heard
		l.log.WarnContext(ctx, "fleets not looked at, all stays as it is", "err", err)
	}
}

func (l *leader) round(ctx context.Context, only map[string]int) error {
	v, err := l.readView(ctx)
	if err != nil {
		return err
	}
	if v.unwell() { // they must be counted as failed before others are started
		l.lastReconciled = v.now
		l.reconciler.reconcile(ctx, v)
		if v, err = l.readView(ctx); err != nil {
			return err
		}
	}
	var g errgroup.Group
	g.SetLimit(maxConcurrentEndpoints)
	for i := range v.endpoints {
		e := &v.endpoints[i] // a copy for the closure would be made for those too that are not due
		m := l.endpoints[e.ID]
		if m == nil {
			m = &endpointState{}
			l.endpoints[e.ID] = m
		}
		_, hasty := only[e.ID]
		if only != nil && !hasty || !hasty && e.Fleet.External() && e.Version == m.of.Version && v.now.Sub(m.looked) < externalInterval {
			continue
		}
		m.looked, m.of, m.count.hasty = v.now, *e, hasty
		g.Go(func() error {
			if err := l.scale(ctx, v, *e, m); err != nil && ctx.Err() == nil {
				l.log.WarnContext(ctx, "fleet not scaled, trying again", "endpoint", e.ID, "err", err)
			}
			return nil
		})
	}
	_ = g.Wait() // nobody returns an error
	l.arbitrate(ctx, v)
	if only == nil {
		l.dropDeleted(ctx, v)
		l.reconcileIfDue(ctx, v)
	}
	return nil
}

// dropDeleted drops what is kept of endpoints that no longer exist.
func (l *leader) dropDeleted(ctx context.Context, v *view) {
	if len(l.endpoints) == len(v.endpoints) { // round has added those that are new
		return
	}
	for id := range l.endpoints {
		if _, exists := v.endpoint(id); exists {
			continue
		}
		l.arrivals.Forget(id)
		if err := l.registry.Scaling.Drop(ctx, id); err == nil {
			delete(l.endpoints, id)
			delete(l.gpus, id)
		}
	}
}

// reconcileIfDue reconciles all pods once in reconcileInterval.
func (l *leader) reconcileIfDue(ctx context.Context, v *view) {
	if v.now.Sub(l.lastReconciled) >= reconcileInterval {
		l.lastReconciled = v.now
		l.reconciler.reconcile(ctx, v)
		if err := l.superviseGPUs(ctx, v); err != nil && ctx.Err() == nil {
			l.log.WarnContext(ctx, "GPUs and their claims not looked at, trying again", "err", err)
		}
	}
}

// scale samples, decides and applies.
func (l *leader) scale(ctx context.Context, v *view, e endpoint.Endpoint, m *endpointState) error {
	if !m.loaded {
		last, err := l.registry.Scaling.Last(ctx, e.ID)
		if err != nil && !errors.Is(err, registry.ErrNotFound) {
			return err
		}
		m.last, m.memory.wanted, m.loaded = last, last.Wanted, true
	}
	e, err := l.spendBudget(ctx, v.now, e, m)
	if err != nil {
		return err
	}
	if e, err = l.watchCanary(ctx, v, e, m); err != nil {
		return err
	}
	in := l.sample(ctx, v, e, m)
	out := decide(e, in.sample, m.memory, v.now)
	if out.start > 1 || out.start > 0 && m.alive > 0 { // else no log is read
		in.failing = l.lookAtFailures(ctx, e, m, v.now)
		out = decide(e, in.sample, m.memory, v.now)
	}
	if l.postpone(e, m, in, out) {
		return nil
	}
	return l.settle(ctx, v, e, m, in, out)
}

// settle writes a decision down and applies it.
func (l *leader) settle(ctx context.Context, v *view, e endpoint.Endpoint, m *endpointState, in fleetSample, out decision) error {
	out.retire = retireSleepers(e, in.sample, out, v.now)
	m.alive = out.wanted
	if !e.Fleet.External() {
		m.alive = countAlive(in.members) + out.start + len(out.wake)
	}
	if err := l.recordDecision(ctx, v, e, m, in.sample, out); err != nil {
		return err
	}
	if err := l.apply(ctx, v, e, m, in, out); err != nil {
		return err // all of it is decided again
	}
	m.memory = out.memory
	return nil
}
