package autoscaler

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"flightline/services/autoscaler/driver"
	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/retry"
)

const (
	// closeTimeout bounds what is to be written when the driver's pods end, and
	// the end of those that do not work.
	closeTimeout = 3 * time.Second
	// lastPart of the time for jobs is left when a worker that was only given no
	// more of them is asked to end.
	lastPart = 5
)

// endedWithUs is the last change of a pod that ended with its autoscaler.
const endedWithUs = "its autoscaler was stopped"

// close ends the driver's pods, if they are to end with us, and says so. What
// goes by is what runs: a worker that was removed may still have jobs.
func (a *agent) close(ctx context.Context) {
	ending, ok := a.driver.(driver.Closer)
	if !ok {
		return
	}
	look, done := context.WithTimeout(ctx, closeTimeout)
	running, err := a.driver.List(look)
	done()
	a.warn(ctx, "pods not listed, they end at once", a.machine, err)
	var ends sync.WaitGroup
	for _, i := range running {
		if i.Running {
			ends.Go(func() { a.endPod(ctx, i) })
		}
	}
	ends.Wait()
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	err = ending.Close(ctx)
	if err == nil { // they have ended, and claim nothing any more
		for id := range a.claimsByPod() {
			a.releaseClaims(ctx, id)
		}
	}
	left, listErr := a.podsHere(ctx)
	a.warn(ctx, "pods not ended", a.machine, cmp.Or(err, listErr))
	for _, p := range left {
		a.noteClosed(ctx, p)
	}
}

// endPod ends a pod that runs. A worker has Closing to end its jobs, also if its record
// cannot be read. A pod that works for no endpoint is ended at once, and that noted: others
// soon take it for gone.
func (a *agent) endPod(ctx context.Context, i driver.Instance) {
	id, until := i.PodID, time.Now().Add(a.cfg.Closing)
	look, done := context.WithTimeout(ctx, closeTimeout)
	p, err := a.registry.Pods.Get(look, id)
	done()
	if err != nil {
		a.warn(ctx, "record of a pod not read, it is taken for RUNNING", id, err)
		p = pod.Pod{ID: id, Endpoint: i.Endpoint, Status: pod.Running, Phases: pod.Phases{Ready: i.Started}}
	}
	var ended bool
	if p.Endpoint != "" {
		ended = a.finish(ctx, p, until)
	} else {
		ended = a.stop(ctx, p, closeTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	switch {
	case !ended:
	case p.Status != pod.Running:
		a.revokeToken(ctx, p)
		a.warn(ctx, "what is left of an ended pod not removed", id, a.removeInstance(ctx, p))
	case p.Endpoint == "" && a.here(p):
		a.noteClosed(ctx, p)
	}
}

// noteClosed notes the end of a pod that ended with us. Others are started where a
// fleet's are needed.
func (a *agent) noteClosed(ctx context.Context, p pod.Pod) {
	by := pod.Exit
	if fleet(p) && !p.Locked {
		by = pod.Remove
	}
	_, err := a.registry.Pods.Move(ctx, p.ID, by, endedWithUs, a.queue.Now(), nil)
	if errors.Is(err, pod.ErrLocked) { // since we looked
		_, err = a.registry.Pods.Move(ctx, p.ID, pod.Exit, endedWithUs, a.queue.Now(), nil)
	}
	a.warn(ctx, "end of a pod not noted", p.ID, err)
	a.revokeToken(ctx, p)
}

// podsHere are the pods that should run here.
func (a *agent) podsHere(ctx context.Context) ([]pod.Pod, error) {
	pods, err := a.registry.Pods.Known(ctx)
	var mine []pod.Pod
	for _, p := range pods.All {
		if p.Status == pod.Running && a.here(p) {
			mine = append(mine, p)
		}
	}
	return mine, err
}

// here reports whether the pod is this driver's.
func (a *agent) here(p pod.Pod) bool {
	return p.MachineID == a.machine && p.Driver == a.driver.Name()
}

// finish lets a worker end its jobs until then, and ends it. A worker that speaks
// NATS, or says that it has no job while its endpoint has none, is asked to end at once:
// it ends what it has first. Any other worker over HTTP is given no more, and asked to end
// when it has none. What it does not end is given back. It reports whether the
// worker has ended.
func (a *agent) finish(ctx context.Context, p pod.Pod, until time.Time) bool {
	quiet, stop := context.WithDeadline(ctx, until.Add(-a.cfg.Closing/lastPart))
	if a.closeIfBusy(quiet, p) {
		a.awaitQuiet(quiet, p, a.queue.Now())
	}
	stop()
	return a.stop(ctx, p, time.Until(until))
}

// errUnheard means that a worker was not heard of since an outage.
var errUnheard = errors.New("it is not known whether the worker has jobs")

// closeIfBusy says that a worker gets no more jobs, and reports whether it speaks HTTP and has
// some, or may have been handed one since its last heartbeat. It tries again until ctx ends
// while that is not known, or a worker that has some could be given more.
func (a *agent) closeIfBusy(ctx context.Context, p pod.Pod) (busy bool) {
	try := func() error {
		_, notClosed := a.registry.Tokens.Drain(ctx, p.Endpoint, p.ID)
		w, heard, err := a.lastHeartbeat(ctx, p)
		has := len(w.Running) > 0
		if err == nil && heard && !w.Native && !has {
			has, err = a.hasJobs(ctx, p.Endpoint)
		}
		busy = has && !w.Native && !errors.Is(notClosed, registry.ErrNotFound)
		phase, _ := p.Phase()
		switch {
		case err != nil:
			return err
		case busy:
			return notClosed
		case !heard && phase == pod.Ready && a.registry.Workers.Last(p.Endpoint, p.ID).Unknown:
			return errUnheard
		}
		return nil
	}
	err := retry.Do(ctx, retry.Every(quietInterval), func(error) bool { return a.isRunning(ctx, p.ID) }, try)
	a.warn(context.WithoutCancel(ctx), "worker not asked to drain before its end", p.ID, err)
	return busy
}

// hasJobs reports whether the endpoint has a job that waits or was handed out.
func (a *agent) hasJobs(ctx context.Context, endpointID string) (bool, error) {
	empty, err := a.queue.Counts.IsEmpty(ctx, endpoint.Endpoint{ID: endpointID})
	if errors.Is(err, bus.ErrNoMessage) || errors.Is(err, bus.ErrMissing) { // it was deleted
		return false, nil
	}
	return err == nil && !empty, err
}

// stop ends a worker. The jobs that it still had are noted in its record, so that a gateway
// can give them back: no worker was lost, unless this one failed. It may have
// taken some while it ended, so its last heartbeat counts; a worker that spoke before and
// is no longer heard of was silent for long, unless it took its leave.
func (a *agent) stop(ctx context.Context, p pod.Pod, grace time.Duration) bool {
	before, _, _ := a.lastHeartbeat(ctx, p)
	if err := a.driver.Stop(ctx, p.ID, max(0, grace)); err != nil {
		a.warn(ctx, "pod not stopped", p.ID, err)
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	w, heard, err := a.lastHeartbeat(ctx, p)
	if err != nil || !heard && !before.Native {
		w = before
	}
	_, err = a.registry.Pods.Update(ctx, p.ID, func(p pod.Pod) (pod.Pod, error) {
		if !noteHeld(&p, w, a.queue.Now()) {
			return p, errPodChanged // nothing is to be written
		}
		return p, nil
	})
	a.warn(ctx, "jobs of a pod not noted, their leases end", p.ID, err)
	return true
}

// lastHeartbeat is what the worker said last.
func (a *agent) lastHeartbeat(ctx context.Context, p pod.Pod) (w registry.Worker, heard bool, err error) {
	if p.Endpoint == "" {
		return w, false, nil
	}
	workers, err := a.registry.Workers.List(ctx, p.Endpoint)
	for _, x := range workers {
		if x.ID == p.ID {
			return x, true, err
		}
	}
	return w, false, err
}

// drainWorker lets a worker end its jobs, for DrainTime at most. It returns an error if
// the worker could not be asked to drain: it may hold jobs, and is to be asked again.
func (a *agent) drainWorker(ctx context.Context, p pod.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.DrainTime)
	defer cancel()
	since, err := a.closeToJobs(ctx, p)
	switch {
	case errors.Is(err, registry.ErrNotFound): // without a token it gets no job
		return nil
	case err != nil && ctx.Err() == nil:
		return err
	}
	a.awaitQuiet(ctx, p, since)
	return nil
}

// closeToJobs says that a worker gets no more jobs, and since when. The worker is asked
// to drain in any case: the process that drained its token may not have done that.
func (a *agent) closeToJobs(ctx context.Context, p pod.Pod) (since time.Time, err error) {
	token, err := a.registry.Tokens.Find(ctx, p.Endpoint, p.ID)
	if err != nil {
		return since, err
	}
	now := a.queue.Now()
	// Of a pod without a record there may be a new one by now, which is not to drain.
	if !p.Created.IsZero() {
		if err := a.requestDrain(ctx, p.ID, p.Change); err != nil {
			return since, err
		}
	}
	if token.Draining {
		return token.Written, nil
	}
	_, err = a.registry.Tokens.Drain(ctx, p.Endpoint, p.ID)
	return now, err
}

// awaitQuiet waits until a worker, which has been draining since then, has no job, or is
// gone. After an outage it is not known for a while whether a worker is.
func (a *agent) awaitQuiet(ctx context.Context, p pod.Pod, since time.Time) {
	for ctx.Err() == nil {
		last := a.registry.Workers.Last(p.Endpoint, p.ID)
		never := last.Silent() && last.Worker.Seen.IsZero()
		if never || drained(last, since, a.queue.Now()) || !a.isRunning(ctx, p.ID) {
			return
		}
		_ = retry.Sleep(ctx, quietInterval) // the loop ends with ctx
	}
}

// isRunning reports whether the driver has the pod, and it has not ended. All that
// wait for workers share its answers.
func (a *agent) isRunning(ctx context.Context, id string) bool {
	a.asking.Lock()
	defer a.asking.Unlock()
	if time.Since(a.asked) >= quietInterval/2 {
		within, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		running, err := a.driver.List(within)
		if err != nil {
			return true
		}
		a.running, a.asked = map[string]bool{}, time.Now()
		for _, i := range running {
			a.running[i.PodID] = i.Running
		}
	}
	return a.running[id]
}

// requestDrain asks a worker that speaks NATS to take no more jobs, and to leave: it
// reads that in its pod's record, within a heartbeat. A worker that speaks HTTP
// learns it by its token. A locked pod is asked nothing.
func (s *Service) requestDrain(ctx context.Context, id, why string) error {
	_, err := s.registry.Pods.Drain(ctx, id, bounded(why), s.queue.Now())
	return ignorePodChanged(err)
}
