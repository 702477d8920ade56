package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/services/autoscaler/driver"
	"flightline/shared/host"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/retry"
	"flightline/shared/telemetry"
)

const (
	// agentRest is the least pause between two looks because of changes.
	agentRest = 25 * time.Millisecond
	// maxConcurrentStops bounds the pods that an agent asks to end side by side. Those
	// that are let finish first are not counted, nor those that are started: a
	// driver knows how much of that it can do.
	maxConcurrentStops = 16
	// lackingWait is how long a pod that this machine cannot run is left to others.
	lackingWait = 3 * time.Second
	// clockSkew is far more than clocks drift while a pod runs, and far less than records last.
	clockSkew = time.Hour
	// listTimeout bounds the question what runs.
	listTimeout = 10 * time.Second
)

// agent makes the pods of one driver's machine what their records say.
type agent struct {
	*Service
	driver driver.Driver
	stops  chan struct{}
	began  time.Time // local clock
	// machine is known once the driver has answered.
	machine string
	facts   pod.Machine
	// before are those that had ended when this program first looked, by pod: when they were
	// started, by the driver's clock. It is nil before that.
	before map[string]time.Time

	mu   sync.Mutex
	busy map[string]bool // pods that are worked on; false: that ended since the last look began
	// starts are those that the driver is busy with, by pod, and what ends them.
	starts map[string]context.CancelFunc
	work   sync.WaitGroup
	logs   *logKeeper
	// inventory are the GPUs, and cached the models, as they were last read.
	inventory []pod.GPU
	watch     host.GPUWatch
	cached    []pod.Model
	held      map[string][]string // claimed GPUs, by pod
	recalled  time.Time           // when held was read; local clock

	asking  sync.Mutex
	asked   time.Time       // local clock
	running map[string]bool // what the driver had then
}

func newAgent(s *Service, d driver.Driver) *agent {
	return &agent{
		Service: s, driver: d, busy: map[string]bool{}, starts: map[string]context.CancelFunc{}, held: map[string][]string{},
		stops: make(chan struct{}, maxConcurrentStops), began: time.Now(), logs: newLogKeeper(),
	}
}

// run works until ctx ends. Then the pods that end with this program are
// stopped, and their records say so.
func (a *agent) run(ctx context.Context) error {
	if !a.awaitDriver(ctx) {
		return nil
	}
	reporting, stop := context.WithCancel(context.WithoutCancel(ctx))
	var reports sync.WaitGroup
	reports.Go(func() { a.report(reporting) }) // until what runs here has ended
	reports.Go(func() { a.watchModels(reporting) })
	defer func() {
		stop()
		reports.Wait()
		a.withdraw(reporting)
	}()
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
	a.logs.close()
	return err
}

// attend looks at what runs: now and then, and when a pod's record changed, as by the
// leader, of this host or another one.
func (a *agent) attend(ctx context.Context) {
	tick := time.NewTicker(a.cfg.Every)
	defer tick.Stop()
	outage := telemetry.NewOutageLog()
	for ctx.Err() == nil {
		began, changed := time.Now(), a.registry.Pods.Changed()
		if err := a.round(ctx); err != nil && ctx.Err() == nil {
			outage.Warn(ctx, a.log, "pods not looked at, all stays as it is", slog.Any("driver", a.driver.Name()), slog.Any("err", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-changed:
			_ = retry.Sleep(ctx, agentRest-time.Since(began)) // many change at once
		}
	}
}

// awaitDriver waits until the driver says which machine this is.
func (a *agent) awaitDriver(ctx context.Context) bool {
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, listTimeout)
		id, facts, err := a.driver.Machine(within)
		cancel()
		if err == nil {
			a.machine, a.facts, a.inventory = id, facts, facts.GPUs
			if a.cfg.GPUs != nil {
				a.inventory = nil
				a.readGPUs(ctx)
			}
			return true
		}
		a.log.WarnContext(ctx, "driver not available, trying again", "driver", a.driver.Name(), "err", err)
		_ = retry.Sleep(ctx, registry.BeatEvery) // the loop ends with ctx
	}
	return false
}

// round compares what runs with what should. It begins what takes time, and
// does not wait for it.
func (a *agent) round(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	a.forgetEnded()
	if err := a.recallClaims(within); err != nil {
		return err
	}
	running, err := a.driver.List(within)
	if err != nil {
		return err
	}
	a.noteEnded(running)
	pods, err := a.registry.Pods.Known(within)
	if err != nil {
		return err
	}
	instances, live, wanted := map[string]driver.Instance{}, map[string]bool{}, map[string]bool{}
	for _, i := range running {
		instances[i.PodID], live[i.PodID] = i, i.Running
	}
	for _, p := range pods.All {
		if p.Driver != a.driver.Name() || p.Status != pod.Running {
			continue
		}
		if p.MachineID == "" && !a.claim(within, p) || p.MachineID != "" && p.MachineID != a.machine {
			continue
		}
		i, there := instances[p.ID]
		delete(instances, p.ID)
		if there && i.Running {
			a.follow(ctx, p)
			a.noteReady(ctx, p)
			a.followSleep(ctx, p)
		}
		wanted[p.ID] = true
		a.reconcilePod(ctx, p, i, there)
	}
	for id, i := range instances {
		a.begin(id, func() { a.stopSurplus(ctx, id, i) })
	}
	a.cancelStarts(within, wanted)
	a.releaseGone(ctx, live, wanted)
	return nil
}

// begin does something about a pod, unless something is being done, or was done since
// this look began: then the next look sees what came of it.
func (a *agent) begin(id string, do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, found := a.busy[id]; found {
		return
	}
	a.busy[id] = true
	a.work.Go(func() {
		defer func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.busy[id] = false
		}()
		do()
	})
}

// forgetEnded lets a look begin something about pods that are no longer worked on.
func (a *agent) forgetEnded() {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.busy, func(_ string, working bool) bool { return !working })
}

// claim takes a pod that has no machine yet, once it has the pod's GPUs. A pod that this
// machine cannot run now is left to others for a while; then its record says why no
// machine does.
func (a *agent) claim(ctx context.Context, seen pod.Pod) bool {
	if a.queue.Now().Sub(seen.Changed) < lackingWait && (a.lacks(seen.Spec) != "" || !a.claimFree(ctx, seen)) {
		return false
	}
	err := a.changePod(ctx, seen.ID, func(p *pod.Pod) bool {
		if p.MachineID != "" && p.MachineID != a.machine {
			return false
		}
		p.MachineID, p.Machine = a.machine, a.machineFacts()
		return true
	})
	a.warn(ctx, "pod not claimed, trying again", seen.ID, err)
	return err == nil
}

// reconcilePod looks after a pod that should run here.
func (a *agent) reconcilePod(ctx context.Context, p pod.Pod, i driver.Instance, there bool) {
	switch {
	case there && i.Running && (i.Life < p.Starts || isOlder(i.Started, time.Now(), a.steadyNow(), a.madeAgo(p))):
		a.begin(p.ID, func() { a.restart(ctx, p.ID) })
	case !there || i.Life < p.Starts:
		a.begin(p.ID, func() { a.start(ctx, p.ID) })
	case !i.Running:
		a.begin(p.ID, func() { a.ended(ctx, p, i) })
	case i.PublicIP != p.PublicIP || !maps.Equal(i.PortMappings, p.PortMappings):
		a.begin(p.ID, func() {
			a.warn(ctx, "addresses of a pod not noted, trying again", p.ID, a.changePod(ctx, p.ID, func(p *pod.Pod) bool {
				p.PublicIP, p.PortMappings = i.PublicIP, i.PortMappings
				return true
			}))
		})
	}
}

// isOlder reports whether what runs was started for an earlier pod of this id, whose
// record expired while no autoscaler ran. Its token has expired. The pod was made so long ago
// by the server's clock, of which the machine's may differ. The machine's may have been set since:
// steady is what it would be without that, and what runs is older by both.
func isOlder(started, now, steady time.Time, madeAgo time.Duration) bool {
	return !started.IsZero() && min(now.Sub(started), steady.Sub(started)) > madeAgo+clockSkew
}

// steadyNow is the machine's time as if its clock had not been set since this program started.
func (a *agent) steadyNow() time.Time { return a.began.Add(time.Since(a.began)) }

// madeAgo is how long ago the pod was made, whatever the server's clock was set by since.
func (a *agent) madeAgo(p pod.Pod) time.Duration {
	return max(0, a.queue.Now().Sub(p.Created)-a.queue.Bus().Clock().StepSince(p.Created))
}

// warn logs an error, unless it says that the pod is gone or was changed meanwhile.
func (a *agent) warn(ctx context.Context, what, id string, err error) {
	if err = ignorePodChanged(err); err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, what, "pod", id, "err", err) //nolint:sloglint // the callers' texts are constants
	}
}

// quietInterval is the pause between two looks whether a worker has finished.
const quietInterval = 500 * time.Millisecond

// finalError is an error for which a pod ends before it ran: another try would meet it again.
type finalError struct{ error }

// start makes the pod run, if its record still says so. Its record says why it cannot; after
// any other error the next look tries again.
func (a *agent) start(ctx context.Context, id string) {
	p, err := a.registry.Pods.Get(ctx, id)
	if err == nil && (p.Status != pod.Running || !a.here(p)) {
		return
	}
	if err == nil {
		err = a.startPod(ctx, p)
	}
	_, final := errors.AsType[finalError](err)
	switch {
	case errors.Is(err, errNoGPU) && fleet(p): // the leader chooses others
		a.exit(ctx, p, pod.Leave, "it was not started: "+err.Error())
	case errors.Is(err, errNoGPU), final:
		a.exit(ctx, p, pod.Exit, "it could not be started: "+textOf(id, err))
	default:
		a.warn(ctx, "pod not started, trying again", id, err)
	}
}

func (a *agent) startPod(ctx context.Context, p pod.Pod) error {
	if !p.Drain.At.IsZero() {
		a.exit(ctx, p, pod.Leave, "it was drained, and is not started again")
		return nil
	}
	if lack := a.lacks(p.Spec); lack != "" {
		return finalError{errors.New(lack)}
	}
	if err := a.clearSleep(ctx, p); err != nil {
		return err
	}
	devices, err := a.claimGPUs(ctx, p)
	if err != nil {
		return err
	}
	env, leftAlone, err := a.environment(ctx, p)
	if err != nil {
		return err
	}
	volume, models, err := a.folders(ctx, p)
	if err != nil {
		return err
	}
	env = withModelCache(withGPUs(env, devices, p.Spec), a.driver.Name(), models)
	starts := a.startupOf(p, leftAlone)
	wanted, done := a.startContext(ctx, p.ID)
	defer done()
	err = a.driver.Start(wanted, driver.Start{
		PodID: p.ID, Endpoint: p.Endpoint, Life: p.Starts, Spec: p.Spec, Env: env, Volume: volume, ModelCache: models, GPUs: devices,
		Output: a.output(ctx, p, env), Entered: starts.enter, LeftAlone: starts.leave,
	})
	switch {
	case err == nil:
		starts.done(context.WithoutCancel(ctx)) // it runs, even if all stops now
	case ctx.Err() != nil:
		return err
	case wanted.Err() != nil:
		a.log.InfoContext(ctx, "start of a pod given up, its record is over", "pod", p.ID, "endpoint", p.Endpoint)
		a.revokeToken(ctx, p)
	case errors.Is(err, driver.ErrUnavailable):
		return err
	default:
		return finalError{err}
	}
	return nil
}

// startContext is the context of a start by the driver, which may fetch an image first. It
// ends with the record of the pod. done is to be called when the start is over.
func (a *agent) startContext(ctx context.Context, id string) (wanted context.Context, done func()) {
	wanted, cancel := context.WithCancel(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.starts[id] = cancel
	return wanted, func() {
		cancel()
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.starts, id)
	}
}

// cancelStarts ends the starts of pods that are not to run here any more. What is wanted
// may be old: the record decides, as it is now.
func (a *agent) cancelStarts(ctx context.Context, wanted map[string]bool) {
	a.mu.Lock()
	starts := maps.Clone(a.starts)
	a.mu.Unlock()
	for id, cancel := range starts {
		if wanted[id] {
			continue
		}
		p, err := a.registry.Pods.Get(ctx, id)
		if errors.Is(err, pod.ErrNotFound) || err == nil && (p.Status != pod.Running || !a.here(p)) {
			cancel()
		}
	}
}

// restart ends an earlier life of a pod that was stopped and started since, and
// starts it.
func (a *agent) restart(ctx context.Context, id string) {
	a.stops <- struct{}{}
	err := a.driver.Stop(ctx, id, a.cfg.Grace)
	<-a.stops
	if err != nil {
		a.warn(ctx, "pod not stopped, trying again", id, err)
		return
	}
	a.start(ctx, id)
}

// environment is all that the pod sees. A worker gets a new token with it. leftAlone
// is to be called if the pod was started with another one: as by another autoscaler of
// the same engine.
func (a *agent) environment(ctx context.Context, p pod.Pod) (env map[string]string, leftAlone func(context.Context), err error) {
	if p.Endpoint == "" {
		return described(p.Spec.Env, p, a.facts), func(context.Context) {}, nil
	}
	e, err := a.registry.Endpoints.Get(ctx, p.Endpoint)
	if err != nil {
		return nil, nil, fmt.Errorf("start pod %s: %w", p.ID, err)
	}
	token, undo, err := a.registry.Tokens.IssueForFleet(ctx, p.Endpoint, p.ID)
	if err != nil {
		return nil, nil, fmt.Errorf("start pod %s: %w", p.ID, err)
	}
	leftAlone = func(ctx context.Context) {
		a.warn(ctx, "token of a pod that runs not kept", p.ID, undo(ctx))
	}
	env = map[string]string{}
	for _, v := range pod.WorkerEnvironment(pod.Worker{
		BaseURL: a.cfg.GatewayURL, Endpoint: p.Endpoint, ID: p.ID, Token: token,
		PingInterval: min(pingInterval, e.Lease/3), Env: p.Spec.Env,
	}) {
		env[v.Name] = v.Value
	}
	return described(env, p, a.facts), leftAlone, nil
}

// folders are where the pod's network volume and the models of its machine are on the
// host, "" for none.
func (a *agent) folders(ctx context.Context, p pod.Pod) (volume, models string, err error) {
	if p.VolumeID != "" {
		v, err := a.registry.Volumes.Get(ctx, p.VolumeID)
		switch {
		case errors.Is(err, pod.ErrNotFound):
			return "", "", finalError{errors.New("its network volume is not there")}
		case err != nil:
			return "", "", err
		}
		volume = v.Path
	}
	if models, err = a.modelCache(p.Spec); err != nil {
		return "", "", finalError{err}
	}
	return volume, models, nil
}

// stopSurplus stops what runs here without a record that says so.
func (a *agent) stopSurplus(ctx context.Context, id string, i driver.Instance) {
	p, err := a.registry.Pods.Get(ctx, id)
	switch {
	case errors.Is(err, pod.ErrNotFound):
		p = pod.Pod{ID: id, Endpoint: i.Endpoint, Change: "nobody knows of it"}
	case err != nil:
		a.warn(ctx, "pod not looked at, trying again", id, err)
		return
	case p.Status == pod.Running && a.here(p):
		return // it is wanted after all; the list was old
	case i.Running && p.Status == pod.Exited && p.Change == vanished && p.Endpoint == "" && a.here(p):
		if !a.adopt(ctx, p, i) {
			return
		}
	}
	if i.Running {
		// Until it has ended, the leader gives its GPUs to no other pod, if it can have them back.
		a.warn(ctx, "GPU of a pod that ends not claimed again", id, ignoreNoGPU(a.reclaimGPUs(ctx, p, i)))
		a.log.InfoContext(ctx, "stopping pod", "pod", id, "endpoint", p.Endpoint, "reason", p.Change)
		if p.Endpoint != "" {
			if err := a.drainWorker(ctx, p); err != nil {
				a.warn(ctx, "worker not asked to drain, trying again", id, err)
				return
			}
		}
		if ctx.Err() != nil {
			return // it is ended with the others, if at all
		}
		a.stops <- struct{}{}
		ended := a.stop(ctx, p, a.cfg.Grace)
		<-a.stops
		if !ended { // the next look leads here again
			return
		}
	}
	a.revokeToken(ctx, p)
	a.warn(ctx, "what is left of an ended pod not removed, trying again", id, a.removeInstance(ctx, p))
}
