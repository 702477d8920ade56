package autoscaler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

// withSleep is the state of a worker whose heartbeat says now. A worker with a job is awake
// whatever it was asked. A worker that sleeps and is to wake counts as starting.
func withSleep(now state, p pod.Pod, w registry.Worker) state {
	switch {
	case now == busy:
	case p.Sleep.Sleeps():
		return sleeping
	case w.State == registry.WorkerSleeping:
		return starting
	}
	return now
}

// sleepInstead lets workers sleep that were idle for long enough, where they can and the
// endpoint says so, in place of stopping them.
func sleepInstead(e endpoint.Endpoint, s sample, v decision) decision {
	if e.SleepTimeout == 0 {
		return v
	}
	idle := v.drain
	v.drain = nil
	for _, id := range idle {
		if slices.ContainsFunc(s.members, func(w member) bool { return w.id == id && w.sleeps && !w.stale }) {
			v.sleep = append(v.sleep, id)
		} else {
			v.drain = append(v.drain, id)
		}
	}
	if len(v.sleep) > 0 {
		v.text += fmt.Sprintf(", put to sleep: %d", len(v.sleep))
	}
	return v
}

// wakeOrGrow wakes workers that sleep, those first that fell asleep last, and starts what
// is missing then. Those whose GPUs others have are asked to wake for what workersMax leaves
// no room: they do once the GPUs are theirs again.
func wakeOrGrow(e endpoint.Endpoint, s sample, v decision, n need, missing int, now time.Time) decision {
	var ready, waiting []member
	for _, w := range pick(s.members, sleeping) {
		switch {
		case !w.mayWake() || e.Paused(now):
		case w.taken:
			waiting = append(waiting, w)
		default:
			ready = append(ready, w)
		}
	}
	ready = lastAsleep(ready, missing)
	waiting = lastAsleep(waiting, missing-len(ready)-roomToStart(e, s))
	for _, w := range append(ready, waiting...) {
		v.wake = append(v.wake, w.id)
	}
	v.wanted += len(v.wake)
	if missing > len(v.wake) {
		v = grow(e, s, v, n, missing-len(v.wake), now)
	} else {
		v.reason, v.text = n.why(e, v.wanted)
	}
	if len(v.wake) > 0 {
		v.memory.grew, v.memory.replaced = now, nil
		v.text += fmt.Sprintf("; workers that sleep and are woken: %d", len(v.wake))
	}
	return v
}

// mayWake reports whether the worker that sleeps is still wanted: an outdated one is stopped,
// unless it is locked.
func (w member) mayWake() bool { return !w.stale || w.locked }

// lastAsleep are as many of the workers, those that fell asleep last.
func lastAsleep(all []member, most int) []member {
	slices.SortFunc(all, func(a, b member) int { return cmp.Or(b.since.Compare(a.since), cmp.Compare(a.id, b.id)) })
	return all[:max(0, min(most, len(all)))]
}

// roomToStart is how many workers workersMax allows besides those that there are, also those
// that go or sleep.
func roomToStart(e endpoint.Endpoint, s sample) int { return max(0, e.WorkersMax-len(s.members)) }

// retireSleepers are the workers to stop that have slept for long enough, that were started
// from what holds no longer, or that are too many with those that are awake; and why.
func retireSleepers(e endpoint.Endpoint, s sample, v decision, now time.Time) map[string]string {
	if v.hold || e.Fleet.External() {
		return nil
	}
	rest := slices.DeleteFunc(pick(s.members, sleeping), func(w member) bool { return w.locked || slices.Contains(v.wake, w.id) })
	slices.SortFunc(rest, func(a, b member) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.id, b.id)) })
	over := count(s.members, starting, idle, busy, sleeping) + v.start - len(v.drain) - e.WorkersMax
	retire := map[string]string{}
	for _, w := range rest {
		var why string
		switch {
		case w.stale:
			why = "the endpoint has changed since it was started"
		case now.Sub(w.since) >= e.SleepTimeout:
			why = fmt.Sprintf("it slept for %s", e.SleepTimeout)
		case len(retire) < over:
			why = fmt.Sprintf("workersMax is %d, those that sleep included", e.WorkersMax)
		default:
			continue
		}
		retire[w.id] = why
	}
	return retire
}

// applySleep makes the records say which workers are to sleep and to wake.
func (l *leader) applySleep(ctx context.Context, e endpoint.Endpoint, in fleetSample, out decision) error {
	var errs []error
	for _, id := range out.sleep {
		errs = append(errs, l.askSleep(ctx, e, id))
	}
	for _, id := range out.wake {
		errs = append(errs, l.askWake(ctx, id))
	}
	for _, w := range in.members {
		if w.state == busy && w.asked { // it took a job before it fell asleep
			errs = append(errs, l.askWake(ctx, w.id))
		}
	}
	for id, why := range out.retire {
		errs = append(errs, l.drain(ctx, e, id, why))
	}
	return errors.Join(errs...)
}

// askSleep asks a worker that is awake to sleep. Asking again changes nothing.
func (l *leader) askSleep(ctx context.Context, e endpoint.Endpoint, id string) error {
	return ignorePodChanged(l.changePod(ctx, id, func(p *pod.Pod) bool {
		if p.Locked || !p.Drain.At.IsZero() || !p.Sleep.At.IsZero() {
			return false
		}
		p.Sleep.At, p.Sleep.GPUFreed = l.queue.Now().UTC(), freedGPU(e, p.Spec)
		return true
	}))
}

// askWake asks a worker that is to sleep to wake. Asking again changes nothing.
func (l *leader) askWake(ctx context.Context, id string) error {
	return ignorePodChanged(l.changePod(ctx, id, func(p *pod.Pod) bool {
		if !p.Sleep.Sleeps() {
			return false
		}
		p.Sleep.Wake = l.queue.Now().UTC()
		return true
	}))
}

// followSleep begins to show a worker that runs here what its pod's record asks of it, and
// to note what became of that. It is called again until the record says that the worker is
// awake, so nothing of it is lost with an autoscaler.
func (a *agent) followSleep(ctx context.Context, p pod.Pod) {
	if state, _ := p.Sleep.State(); state == "" || !p.Sleep.Asleep.IsZero() && p.Sleep.Sleeps() {
		return
	}
	a.begin(p.ID, func() { a.warn(ctx, "sleep of a worker not looked after, trying again", p.ID, a.tendSleep(ctx, p.ID)) })
}

// tendSleep is one step of followSleep.
func (a *agent) tendSleep(ctx context.Context, id string) error {
	p, err := a.registry.Pods.Get(ctx, id)
	if err != nil || p.Status != pod.Running {
		return err
	}
	if ok, err := a.regainGPUs(ctx, p); err != nil || !ok {
		return err
	}
	if err := a.registry.Pods.ShowSleep(ctx, p, a.queue.Now()); err != nil {
		return err
	}
	w := a.registry.Workers.Last(p.Endpoint, p.ID).Worker
	if !sleepOver(p, w) && !fellAsleep(p, w) {
		return nil
	}
	if fellAsleep(p, w) {
		if err := a.shrinkGPUs(ctx, p); err != nil {
			return err
		}
	}
	return a.changePod(ctx, id, func(x *pod.Pod) bool {
		switch {
		case x.Sleep.At != p.Sleep.At || x.Sleep.Wake != p.Sleep.Wake: // it was asked for something else
			return false
		case p.Sleep.Sleeps():
			x.Sleep.Asleep = w.Seen.UTC()
		default:
			x.Sleep = x.Sleep.Awake(w.Seen)
		}
		return true
	})
}

// fellAsleep reports whether the worker was seen to sleep since it was asked to.
func fellAsleep(p pod.Pod, w registry.Worker) bool {
	return p.Sleep.Sleeps() && w.State == registry.WorkerSleeping && w.Seen.After(p.Sleep.At)
}

// sleepOver reports whether the worker was seen awake since it was asked to wake.
func sleepOver(p pod.Pod, w registry.Worker) bool {
	awake := w.State == registry.WorkerIdle || w.State == registry.WorkerRunning
	return p.Sleep.Wakes() && awake && w.Seen.After(p.Sleep.Wake)
}

// overslept reports whether a worker was asked to wake, and has not for pod.WakeTimeout.
func overslept(p pod.Pod, w registry.Worker, now time.Time) bool {
	return p.Sleep.Wakes() && !sleepOver(p, w) && now.Sub(p.Sleep.Wake) >= pod.WakeTimeout
}
