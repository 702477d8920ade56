package autoscaler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

const (
	// absenceTimeout is how long a machine must have been gone, after its instance
	// expired, and a worker that its owner started.
	absenceTimeout = 5 * time.Second
	// silenceTimeout is how long a worker of a fleet may be silent while its machine
	// is there.
	silenceTimeout = time.Minute
	// pullTimeout is how long it may take to fetch an image: longer than a driver tries.
	pullTimeout = time.Hour
	// endedPodTTL is how long a pod that is gone can be read.
	endedPodTTL = 24 * time.Hour
	// maxEndedPods bounds them, for each endpoint: each takes 1.2 KB of every process.
	maxEndedPods = 200
)

// reconciler makes the records of pods true whose workers, machines or endpoints
// are gone.
type reconciler struct {
	*Service
	// absent are the pods that this look does not hear of, with nothing to excuse it, by since
	// when; before are those of the look before.
	absent, before map[string]time.Time
	// heard are the pods that were heard of in this term, by which of their starts.
	heard map[string]time.Time
	began time.Time
}

func newReconciler(s *Service) *reconciler {
	return &reconciler{Service: s, heard: map[string]time.Time{}, began: s.queue.Now()}
}

// forgetTimes begins again to count how long pods are silent.
func (r *reconciler) forgetTimes() { r.absent = nil }

// begin begins a look.
func (r *reconciler) begin() { r.before, r.absent = r.absent, map[string]time.Time{} }

// finding is what should happen to a pod.
type finding struct {
	by  pod.Trigger // "" for nothing
	why string
}

// reconcile looks at all pods.
func (r *reconciler) reconcile(ctx context.Context, v *view) {
	r.begin()
	there := map[string]bool{}
	for _, p := range v.pods {
		there[p.ID] = true
		if p.Status == pod.Running && p.Endpoint == "" {
			r.examineStandalone(ctx, v, p)
		}
		if p.Status != pod.Running || p.Endpoint == "" {
			continue
		}
		e, exists := v.endpoint(p.Endpoint)
		if !exists && !r.deleted(ctx, p.Endpoint) {
			continue
		}
		exists = exists && !r.isOfFormer(ctx, p, e)
		found := r.examine(v, p, exists)
		switch {
		case found.by != "":
			r.correct(ctx, v, p, found)
		case exists && fleet(p) && e.Fleet.External():
			r.letGo(ctx, v, e, p)
		}
	}
	maps.DeleteFunc(r.heard, func(id string, _ time.Time) bool { return !there[id] })
	r.removeOldRecords(ctx, v)
	r.renew(ctx, v)
}

// renew keeps the records of pods that run, and the tokens of fleets' workers, from
// expiring. Those of pods that nobody looks after expire.
func (r *reconciler) renew(ctx context.Context, v *view) {
	runs := map[string]bool{}
	for _, p := range v.pods {
		if p.Status == pod.Running {
			runs[p.Endpoint+"."+p.ID] = true
		}
	}
	err := r.registry.Tokens.Renew(ctx, func(endpointID, worker string) bool { return runs[endpointID+"."+worker] })
	if err = errors.Join(err, r.registry.Pods.Renew(ctx)); err != nil && ctx.Err() == nil {
		r.log.WarnContext(ctx, "records of pods not renewed, trying again", "err", err)
	}
}

// correct lets the finding happen to the pod. A locked one is not removed.
func (r *reconciler) correct(ctx context.Context, v *view, p pod.Pod, found finding) {
	_, err := r.registry.Pods.At(p.Endpoint).Move(ctx, p.ID, found.by, found.why, v.now, nil)
	switch {
	case errors.Is(err, pod.ErrLocked):
	case err != nil && !errors.Is(err, pod.ErrNotFound):
		r.log.WarnContext(ctx, "record of a pod not corrected, trying again", "pod", p.ID, "err", err)
	default:
		r.log.InfoContext(ctx, "pod is gone", "pod", p.ID, "endpoint", p.Endpoint, "reason", found.why)
	}
}

// letGo ends a worker whose endpoint has no driver any more, once its jobs have ended.
func (r *reconciler) letGo(ctx context.Context, v *view, e endpoint.Endpoint, p pod.Pod) {
	const why = "its endpoint has no driver any more"
	token, err := r.registry.Tokens.Find(ctx, e.ID, p.ID)
	switch {
	case err != nil && !errors.Is(err, registry.ErrNotFound):
	case !token.Draining:
		err = r.drain(ctx, e, p.ID, why)
	case drained(r.registry.Workers.Last(e.ID, p.ID), token.Written, v.now):
		err = r.remove(ctx, p.ID, why)
	}
	if err != nil && ctx.Err() == nil {
		r.log.WarnContext(ctx, "worker of an endpoint without a driver not ended, trying again", "pod", p.ID, "err", err)
	}
}

// examineStandalone looks after a pod that works for no endpoint: its machine may be gone,
// or there may be none to run it.
func (r *reconciler) examineStandalone(ctx context.Context, v *view, p pod.Pod) {
	switch {
	case p.Driver == "":
	case slices.Contains(v.machines[p.Driver], p.MachineID):
	case p.MachineID != "":
		if found := r.silent(v, p, absenceTimeout, finding{pod.Exit, vanished}); found.by != "" {
			r.correct(ctx, v, p, found)
		}
	case len(v.machines[p.Driver]) == 0 && p.Change != waitsFor(p.Driver):
		err := r.changePod(ctx, p.ID, func(x *pod.Pod) bool {
			if x.MachineID != "" {
				return false
			}
			x.Changed, x.Change = v.now.UTC(), waitsFor(x.Driver)
			return true
		})
		if ignorePodChanged(err) != nil {
			r.log.DebugContext(ctx, "that a pod waits not noted, trying again", "pod", p.ID, "err", err)
		}
	}
}

// waitsFor is the last change of a pod that no machine can run.
func waitsFor(d pod.Driver) string {
	return fmt.Sprintf("it waits: no autoscaler with the driver %s runs", d)
}

// deleted reports whether there is no such endpoint: memory may lack a
// new one.
func (r *reconciler) deleted(ctx context.Context, endpointID string) bool {
	e, err := r.registry.Endpoints.Find(ctx, endpointID)
	return errors.Is(err, endpoint.ErrNotFound) || err == nil && e.Deleting
}

// isOfFormer reports whether a worker of a fleet was started for an endpoint that was
// deleted before e was made under its id: the token that let it in went with that one.
func (r *reconciler) isOfFormer(ctx context.Context, p pod.Pod, e endpoint.Endpoint) bool {
	if !fleet(p) || p.Started.IsZero() || !p.Created.Before(e.Created) {
		return false
	}
	_, err := r.registry.Tokens.Find(ctx, e.ID, p.ID)
	return errors.Is(err, registry.ErrNotFound)
}

// examine says what should happen to a pod that should run.
func (r *reconciler) examine(v *view, p pod.Pod, exists bool) finding {
	w, heard := v.worker(p)
	heard = heard && w.State != registry.WorkerInitializing
	if heard && !w.Seen.Before(p.Started) { // else that was an earlier start, as of a worker that restarts itself
		r.heard[p.ID] = p.Started
	}
	start, spoke := r.heard[p.ID]
	phase, since := p.Phase()
	gone := !slices.Contains(v.machines[p.Driver], p.MachineID)
	switch {
	case fleet(p) && !exists:
		return finding{pod.Remove, "its endpoint was deleted"}
	case fleet(p) && overslept(p, w, v.now):
		return r.silent(v, p, absenceTimeout, finding{pod.Exit, fmt.Sprintf("it did not wake within %s", pod.WakeTimeout)})
	case fleet(p) && heard && w.State == registry.WorkerUnhealthy:
		return finding{pod.Exit, "it said that it is unhealthy"}
	case heard:
		return finding{}
	case !fleet(p):
		return r.silent(v, p, absenceTimeout, finding{ownersEnd(exists), "its worker fell silent"})
	case gone:
		return r.silent(v, p, absenceTimeout, finding{pod.Exit, vanished})
	case phase == pod.Pulling && v.now.Sub(since) < pullTimeout:
		return finding{}
	case phase == pod.Ready, spoke && start.Equal(p.Started): // by its record, also of an earlier term
		return r.silent(v, p, silenceTimeout, finding{pod.Exit, fmt.Sprintf("it was not heard of for %s", silenceTimeout)})
	}
	startup := cmp.Or(p.Spec.InitTimeout(), r.cfg.Startup)
	if v.now.Sub(job.Later(job.Later(r.began, p.Created), job.Later(p.Started, since))) >= startup {
		return finding{pod.Exit, fmt.Sprintf("it asked for no job within %s of its start (RUNPOD_INIT_TIMEOUT); a worker does, by RunPod's SDK, the Go SDK or 'flightline worker'", startup)}
	}
	return finding{}
}

// ownersEnd is what happens to the pod of a worker that its owner started: if
// the endpoint is gone it was removed with that.
func ownersEnd(exists bool) pod.Trigger {
	if exists {
		return pod.Exit
	}
	return pod.Remove
}

// silent is the finding, once nothing was heard of the pod for that long.
func (r *reconciler) silent(v *view, p pod.Pod, most time.Duration, found finding) finding {
	if lasting(p.ID, r.before, r.absent, v.now) < most {
		return finding{}
	}
	return found
}

// removeOldRecords removes the records of workers that are gone for a day, and of pods
// that were removed.
func (r *reconciler) removeOldRecords(ctx context.Context, v *view) {
	var ended []*pod.Pod
	for i := range v.pods {
		if p := &v.pods[i]; p.Status != pod.Running && (p.Status != pod.Exited || p.Endpoint != "") {
			ended = append(ended, p)
		}
	}
	slices.SortFunc(ended, func(a, b *pod.Pod) int { return cmp.Or(b.Changed.Compare(a.Changed), cmp.Compare(a.ID, b.ID)) })
	kept := map[string]int{}
	for _, p := range ended {
		if kept[p.Endpoint]++; kept[p.Endpoint] <= maxEndedPods && v.now.Sub(p.Changed) < endedPodTTL {
			continue
		}
		if err := r.registry.Pods.Forget(ctx, *p); err != nil {
			r.log.DebugContext(ctx, "record of a pod not removed, trying again", "pod", p.ID, "err", err)
			return
		}
	}
}
