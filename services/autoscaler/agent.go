package autoscaler

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/services/autoscaler/driver"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

const (
	// agentRest is the least pause between two looks because of changes.
	agentRest = 25 * time.Millisecond
	// stopsAtOnce bounds the pods that an agent asks to end side by side. Those
	// that are let finish first are not counted, nor those that are started: a
	// driver knows how much of that it can do.
	stopsAtOnce = 16
	// lackingWait is how long a pod that this machine cannot run is left to others.
	lackingWait = 3 * time.Second
	// clockSkew is far more than clocks differ, and far less than records last.
	clockSkew = time.Hour
	// lookWithin bounds the question what runs.
	lookWithin = 10 * time.Second
)

// agent makes the pods of one driver's machine what their records say.
type agent struct {
	*Service
	driver driver.Driver
	woken  chan struct{}
	stops  chan struct{}
	// machine is known once the driver has answered.
	machine string
	facts   pod.Machine
	began   time.Time // local clock

	mu   sync.Mutex
	busy map[string]bool // pods that are being started or stopped
	work sync.WaitGroup

	asking  sync.Mutex
	asked   time.Time       // local clock
	running map[string]bool // what the driver had then
}

func newAgent(s *Service, d driver.Driver) *agent {
	return &agent{
		Service: s, driver: d, busy: map[string]bool{}, began: time.Now(),
		woken: make(chan struct{}, 1), stops: make(chan struct{}, stopsAtOnce),
	}
}

// run works until ctx ends. Then the pods that end with this program are
// stopped, and their records say so.
func (a *agent) run(ctx context.Context) error {
	if !a.learn(ctx) {
		return nil
	}
	g, held := errgroup.WithContext(ctx)
	g.Go(func() error {
		return a.registry.Instances.Announce(held, registry.Instance{ID: a.machine, Role: registry.DriverRole(a.driver.Name())})
	})
	g.Go(func() error {
		a.attend(held)
		return nil
	})
	err := g.Wait()
	a.work.Wait()
	a.close(context.WithoutCancel(ctx))
	return err
}

// attend looks at what runs: now and then, when the leader here has decided
// something, and when a pod's record changed, as by the leader of another host.
func (a *agent) attend(ctx context.Context) {
	tick := time.NewTicker(a.cfg.Every)
	defer tick.Stop()
	for ctx.Err() == nil {
		began, changed := time.Now(), a.registry.Pods.Changed()
		if err := a.round(ctx); err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "pods not looked at, all stays as it is", "driver", a.driver.Name(), "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-a.woken:
		case <-changed:
			select {
			case <-time.After(agentRest - time.Since(began)): // many change at once
			case <-ctx.Done():
			}
		}
	}
}

// learn waits until the driver says which machine this is.
func (a *agent) learn(ctx context.Context) bool {
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, lookWithin)
		id, facts, err := a.driver.Machine(within)
		cancel()
		if err == nil {
			a.machine, a.facts = id, facts
			return true
		}
		a.log.WarnContext(ctx, "driver not available, trying again", "driver", a.driver.Name(), "err", err)
		select {
		case <-time.After(registry.BeatEvery):
		case <-ctx.Done():
		}
	}
	return false
}

// round compares what runs with what should. It begins what takes time, and
// does not wait for it.
func (a *agent) round(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	running, err := a.driver.List(within)
	if err != nil {
		return err
	}
	pods, err := a.registry.Pods.List(within)
	if err != nil {
		return err
	}
	instances := map[string]driver.Instance{}
	for _, i := range running {
		instances[i.PodID] = i
	}
	for _, p := range pods {
		if p.Driver != a.driver.Name() || p.Status != pod.Running {
			continue
		}
		if p.MachineID == "" && !a.claim(within, p) || p.MachineID != "" && p.MachineID != a.machine {
			continue
		}
		i, there := instances[p.ID]
		delete(instances, p.ID)
		a.tend(ctx, p, i, there)
	}
	for id, i := range instances {
		a.begin(id, func() { a.surplus(ctx, id, i) })
	}
	return nil
}

// begin does something about a pod, unless something is being done.
func (a *agent) begin(id string, do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.busy[id] {
		return
	}
	a.busy[id] = true
	a.work.Go(func() {
		defer func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			delete(a.busy, id)
		}()
		do()
	})
}

// errClaimed means that another agent was faster.
var errClaimed = errors.New("autoscaler: claimed by another")

// claim takes a pod that has no machine yet. One that this machine cannot run
// is left to others for a while; then it is told why nobody does.
func (a *agent) claim(ctx context.Context, seen pod.Pod) bool {
	if a.lacks(seen.Spec) != "" && a.queue.Now().Sub(seen.Changed) < lackingWait {
		return false
	}
	_, err := a.registry.Pods.Update(ctx, seen.ID, func(p pod.Pod) (pod.Pod, error) {
		if p.MachineID != "" && p.MachineID != a.machine || p.Status != pod.Running {
			return p, errClaimed
		}
		p.MachineID, p.Machine = a.machine, a.facts
		return p, nil
	})
	if err != nil && !errors.Is(err, errClaimed) && ctx.Err() == nil {
		a.log.WarnContext(ctx, "pod not claimed, trying again", "pod", seen.ID, "err", err)
	}
	return err == nil
}

// tend looks after a pod that should run here.
func (a *agent) tend(ctx context.Context, p pod.Pod, i driver.Instance, there bool) {
	switch {
	case there && i.Running && (i.Life < p.Starts || isOlder(i, p)):
		a.begin(p.ID, func() { a.restart(ctx, p.ID) })
	case !there || i.Life < p.Starts || !i.Running && i.Ended.Before(p.Started):
		a.begin(p.ID, func() { a.start(ctx, p.ID) })
	case !i.Running:
		a.begin(p.ID, func() { a.ended(ctx, p, i) })
	case i.PublicIP != p.PublicIP || len(i.PortMappings) != len(p.PortMappings):
		a.begin(p.ID, func() {
			_, err := a.registry.Pods.Update(ctx, p.ID, func(p pod.Pod) (pod.Pod, error) {
				p.PublicIP, p.PortMappings = i.PublicIP, i.PortMappings
				return p, nil
			})
			a.complain(ctx, "addresses of a pod not noted, trying again", p.ID, err)
		})
	}
}

// isOlder reports whether what runs was started for an earlier pod of this id, whose
// record expired while no autoscaler ran. Its token is worthless. The clocks of the
// machine and of the server may differ by clockSkew.
func isOlder(i driver.Instance, p pod.Pod) bool {
	return !i.Started.IsZero() && i.Started.Add(clockSkew).Before(p.Created)
}

func (a *agent) complain(ctx context.Context, what, id string, err error) {
	if err != nil && ctx.Err() == nil && !errors.Is(err, pod.ErrNotFound) {
		a.log.WarnContext(ctx, what, "pod", id, "err", err) //nolint:sloglint // the callers' texts are constants
	}
}
