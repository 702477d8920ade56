package autoscaler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

const (
	// settleTime is how much later than its draining a worker must have been heard of
	// without jobs: a gateway that does not know of it yet hands it none by then.
	settleTime = registry.MaxStaleness + 500*time.Millisecond
	// silentDrained is when a drained worker is stopped that was never heard of.
	silentDrained = 20 * time.Second
	// newEndpointTime is how long an endpoint may lack what is made after it, as its
	// queue, before a decision says that it could not be counted.
	newEndpointTime = 10 * time.Second
	// maxTextLength bounds the text of a decision.
	maxTextLength = 500
)

// recordDecision writes the decision if it is another one than the last, or starts or
// drains a worker.
func (l *leader) recordDecision(ctx context.Context, v *view, e endpoint.Endpoint, m *endpointState, s sample, out decision) error {
	if out.reason == "" { // things go on
		out.reason, out.text = m.last.Reason, m.last.Text
		if out.reason == "" || obstacle(out.reason) || out.wanted != m.last.Wanted {
			out.reason, out.text = registry.ScalingSteady, counted(out.wanted, "worker")+" needed"
		}
	}
	news := out.reason == registry.ScalingNoGPU && bounded(out.text) != m.last.Text && v.now.Sub(m.last.At) >= gpuTextInterval
	if !out.acts() && !news && out.wanted == m.last.Wanted && out.reason == m.last.Reason && v.now.Sub(m.last.At) < repeatInterval {
		return nil
	}
	if out.hold && m.last.At.IsZero() && v.now.Sub(e.Created) < newEndpointTime {
		return nil
	}
	d := registry.Decision{
		Endpoint: e.ID, At: v.now.UTC(), Wanted: out.wanted, Current: countAlive(s.members),
		Starting: count(s.members, starting), Idle: count(s.members, idle), Running: count(s.members, busy),
		Unhealthy: count(s.members, unhealthy), Draining: count(s.members, draining),
		Queued: s.queued, QueuedLow: s.queuedLow, InProgress: s.running, OldestWait: s.oldest,
		Reason: out.reason, Text: bounded(out.text), Hold: out.hold, ScalerType: e.ScalerType, ScalerValue: e.ScalerValue,
		WorkersMin: e.WorkersMin, WorkersMax: e.WorkersMax,
	}
	if err := l.registry.Scaling.Append(ctx, d); err != nil {
		return err
	}
	l.log.InfoContext(ctx, "fleet decided", "endpoint", e.ID, "wanted", d.Wanted, "current", d.Current, "reason", d.Reason)
	m.last = d
	return nil
}

// obstacle reports whether a reason says what is in the way.
func obstacle(reason string) bool {
	switch reason {
	case registry.ScalingBackoff, registry.ScalingFailing, registry.ScalingPaused, registry.ScalingNoMachine, registry.ScalingNoGPU, registry.ScalingInvalid, registry.ScalingUnknown, registry.ScalingLeaving:
		return true
	}
	return false
}

func bounded(text string) string { return shortened(text, maxTextLength) }

// shortened is the text with at most so many characters.
func shortened(text string, most int) string {
	if r := []rune(text); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return text
}

// errPodChanged ends an update of a pod whose record is no longer the one that was judged:
// another agent has it, or it was stopped or started again. It is no failure.
var errPodChanged = errors.New("the pod was changed meanwhile")

// ignorePodChanged passes over a pod that was changed, locked or removed meanwhile: the next
// look judges it as it is then.
func ignorePodChanged(err error) error {
	if errors.Is(err, errPodChanged) || errors.Is(err, pod.ErrLocked) || errors.Is(err, pod.ErrNotFound) {
		return nil
	}
	return err
}

// changePod stores what change makes of a pod that runs. It returns errPodChanged if change
// returns false, or the pod does not run any more.
func (s *Service) changePod(ctx context.Context, id string, change func(*pod.Pod) bool) error {
	_, err := s.registry.Pods.Update(ctx, id, func(p pod.Pod) (pod.Pod, error) {
		if p.Status != pod.Running || !change(&p) {
			return p, errPodChanged
		}
		return p, nil
	})
	return err
}

// errEndpointChanged ends an update of an endpoint whose record is no longer the one that
// was judged.
var errEndpointChanged = errors.New("the endpoint was changed meanwhile")

// updateEndpoint writes what change makes of the endpoint's record, and returns the
// record. If the endpoint was deleted or made again, or if change finds that another record
// was judged, written is false. That is no failure: the next round judges the new record.
func (l *leader) updateEndpoint(ctx context.Context, e endpoint.Endpoint, change func(*endpoint.Endpoint) (same bool)) (now endpoint.Endpoint, written bool, err error) {
	now, err = l.registry.Endpoints.Update(ctx, e.ID, func(x endpoint.Endpoint) (endpoint.Endpoint, error) {
		if !x.Created.Equal(e.Created) || !change(&x) {
			return x, errEndpointChanged
		}
		return x, nil
	})
	switch {
	case errors.Is(err, errEndpointChanged) || errors.Is(err, endpoint.ErrNotFound):
		return e, false, nil
	case err != nil:
		return e, false, fmt.Errorf("write endpoint %s: %w", e.ID, err)
	}
	return now, true, nil
}

// apply makes the records say what was decided. All of it may run twice.
func (l *leader) apply(ctx context.Context, v *view, e endpoint.Endpoint, m *endpointState, in fleetSample, out decision) error {
	if out.hold || e.Fleet.External() {
		return nil
	}
	var errs []error
	for _, id := range out.drain {
		errs = append(errs, l.drain(ctx, e, id, out.text))
	}
	for _, w := range in.members {
		if w.fault != "" && !w.locked && w.state != draining {
			errs = append(errs, l.drain(ctx, e, w.id, w.fault))
		}
	}
	errs = append(errs, l.applySleep(ctx, e, in, out))
	for _, w := range in.members {
		if w.state != draining {
			continue
		}
		p := v.workers[e.ID+"."+w.id]
		if p.Native && !p.Draining {
			errs = append(errs, l.requestDrain(ctx, w.id, cmp.Or(m.last.Text, "by request"))) // what drained it may not have asked for it
		}
		if !w.locked && drained(l.registry.Workers.Last(e.ID, w.id), w.since, v.now) {
			errs = append(errs, l.remove(ctx, w.id, "drained and stopped: "+cmp.Or(v.pod(e.ID, w.id).Drain.Why, m.last.Text, "by request")))
		}
	}
	errs = append(errs, l.createPods(ctx, v, e, in, out), l.beatForStarting(ctx, v, e, in))
	return errors.Join(errs...)
}

// drain lets the worker get no more jobs. A worker without a token was
// never started, or cannot be asked.
func (s *Service) drain(ctx context.Context, e endpoint.Endpoint, id, why string) error {
	_, err := s.registry.Pods.Drain(ctx, id, bounded(why), s.queue.Now())
	switch {
	case errors.Is(err, pod.ErrLocked): // since we looked
		return nil
	case err != nil && !errors.Is(err, pod.ErrNotFound):
		return err
	}
	_, err = s.registry.Tokens.Drain(ctx, e.ID, id)
	if errors.Is(err, registry.ErrNotFound) {
		return s.remove(ctx, id, why)
	}
	return err
}

// drained reports whether a worker that has been draining since then can be
// stopped: it was heard of after the last poll that it could have had open,
// or says that it takes no more, and holds no job. While it is silent it may hold some, for
// as long as a worker that does not drain.
func drained(last registry.Holder, since, now time.Time) bool {
	w := last.Worker
	switch {
	case last.Unknown: // whether it lives, as after an outage
		return false
	case w.State == "" || w.State == registry.WorkerInitializing:
		return now.Sub(since) >= silentDrained
	case last.Silent():
		return last.Ago >= silenceTimeout
	}
	return len(w.Running) == 0 && (w.Draining || !w.Native && w.Seen.After(since.Add(settleTime)))
}

// remove says that the pod should be gone; its agent stops it.
func (s *Service) remove(ctx context.Context, id, why string) error {
	_, err := s.registry.Pods.Move(ctx, id, pod.Remove, why, s.queue.Now(), nil)
	return ignorePodChanged(err)
}

// createPods writes the records of new workers; agents start what they say.
func (l *leader) createPods(ctx context.Context, v *view, e endpoint.Endpoint, in fleetSample, out decision) error {
	if out.start == 0 {
		return nil
	}
	d, placed := pod.Driver(in.from.Fleet.Driver), in.placed
	if placed == nil {
		machines := otherMachines(v.machines[d], in.failedOn)
		missing, err := l.missingModels(ctx, machines, in.spec.ModelCache)
		if err != nil {
			return err
		}
		placed = spread(machines, v.load(), missing, out.start)
	}
	for i, at := range freePlaces(e.ID, in.pods, out.start) {
		now := l.queue.Now().UTC()
		to := placed[i]
		err := l.registry.Pods.Create(ctx, pod.Pod{
			ID: at.id(e.ID), Name: at.id(e.ID), Status: pod.Running, Endpoint: e.ID, EndpointVersion: in.from.ReleaseVersion(),
			Driver: d, Spec: in.spec, TemplateID: in.from.Fleet.TemplateID, MachineID: to.Machine, Devices: to.UUIDs, MissingModels: to.MissingModels,
			Created: now, Changed: now, Change: bounded("started: " + out.text),
		})
		if err != nil && !errors.Is(err, registry.ErrExists) { // else another leader was faster
			return err
		}
	}
	return nil
}

// beatForStarting lets workers that start be counted as such until they speak. A worker
// that was ready is silent, and does not start.
func (l *leader) beatForStarting(ctx context.Context, v *view, e endpoint.Endpoint, in fleetSample) error {
	for _, p := range in.pods {
		w, heard := v.worker(p)
		phase, _ := p.Phase()
		if p.Status != pod.Running || phase == pod.Ready || heard && (w.State != registry.WorkerInitializing || v.now.Sub(w.Seen) < registry.BeatEvery) {
			continue
		}
		if err := l.registry.Workers.BeatForStarting(ctx, registry.Worker{ID: p.ID, Endpoint: e.ID, Started: p.Created}); err != nil {
			return err
		}
	}
	return nil
}
