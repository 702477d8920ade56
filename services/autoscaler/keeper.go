package autoscaler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

const (
	// absentFor is how long a machine must have been gone, after its instance
	// expired, and a worker that its owner started.
	absentFor = 5 * time.Second
	// silentFor is how long a worker of a fleet may be silent while its machine
	// is there.
	silentFor = time.Minute
	// rememberedFor is how long a pod that is gone can be read.
	rememberedFor = 24 * time.Hour
	// mostRemembered bounds them, for each endpoint.
	mostRemembered = 1000
)

// keeper makes the records of pods true whose workers, machines or endpoints
// are gone.
type keeper struct {
	*Service
	// absent is since when a pod was not heard of, and nothing excused it.
	absent map[string]time.Time
	// heard are the pods that were heard of in this term.
	heard map[string]bool
	began time.Time
}

func newKeeper(s *Service) *keeper {
	return &keeper{Service: s, absent: map[string]time.Time{}, heard: map[string]bool{}, began: s.queue.Now()}
}

// forgetTimes begins anew to count how long pods are silent.
func (k *keeper) forgetTimes() { clear(k.absent) }

// finding is what should happen to a pod.
type finding struct {
	by  pod.Trigger // "" for nothing
	why string
}

// keep looks at all pods.
func (k *keeper) keep(ctx context.Context, v *view) {
	known := map[string]endpoint.Endpoint{}
	for _, e := range v.endpoints {
		known[e.ID] = e
	}
	there := map[string]bool{}
	for _, p := range v.pods {
		there[p.ID] = true
		if p.Status == pod.Running && p.Endpoint == "" {
			k.lone(ctx, v, p)
		}
		if p.Status != pod.Running || p.Endpoint == "" {
			continue
		}
		e, exists := known[p.Endpoint]
		if !exists && !k.deleted(ctx, p.Endpoint) {
			continue
		}
		found := k.examine(v, p, e, exists)
		if found.by == "" {
			continue
		}
		k.correct(ctx, v, p, found)
	}
	for id := range k.absent {
		if !there[id] {
			delete(k.absent, id)
		}
	}
	for id := range k.heard {
		if !there[id] {
			delete(k.heard, id)
		}
	}
	k.forget(ctx, v)
	k.renew(ctx, v)
}

// renew keeps the records of pods that run, and the tokens of fleets' workers, from
// expiring. Those of pods that nobody looks after expire.
func (k *keeper) renew(ctx context.Context, v *view) {
	runs := make(map[string]bool, len(v.pods))
	for _, p := range v.pods {
		runs[p.Endpoint+"."+p.ID] = p.Status == pod.Running
	}
	err := k.registry.Tokens.Renew(ctx, func(endpointID, worker string) bool { return runs[endpointID+"."+worker] })
	if err = errors.Join(err, k.registry.Pods.Renew(ctx)); err != nil && ctx.Err() == nil {
		k.log.WarnContext(ctx, "records of pods not renewed, trying again", "err", err)
	}
}

// correct lets the finding happen to the pod. A locked one is not removed.
func (k *keeper) correct(ctx context.Context, v *view, p pod.Pod, found finding) {
	_, err := k.registry.Pods.At(p.Endpoint).Move(ctx, p.ID, found.by, found.why, v.now, nil)
	switch {
	case errors.Is(err, pod.ErrLocked):
	case err != nil && !errors.Is(err, pod.ErrNotFound):
		k.log.WarnContext(ctx, "record of a pod not corrected, trying again", "pod", p.ID, "err", err)
	default:
		k.log.InfoContext(ctx, "pod is gone", "pod", p.ID, "endpoint", p.Endpoint, "reason", found.why)
		k.wake()
	}
}

// lone looks after a pod that works for no endpoint: its machine may be gone,
// or there may be none to run it.
func (k *keeper) lone(ctx context.Context, v *view, p pod.Pod) {
	switch {
	case p.Driver == "" || p.Driver == pod.External:
	case p.MachineID != "":
		if found := k.examineLone(v, p); found.by != "" {
			k.correct(ctx, v, p, found)
		}
	case len(v.machines[p.Driver]) == 0 && p.Change != waitsFor(p.Driver):
		_, err := k.registry.Pods.Update(ctx, p.ID, func(x pod.Pod) (pod.Pod, error) {
			if x.Status == pod.Running && x.MachineID == "" {
				x.Changed, x.Change = v.now.UTC(), waitsFor(x.Driver)
			}
			return x, nil
		})
		if err != nil {
			k.log.DebugContext(ctx, "pod that waits not told so, trying again", "pod", p.ID, "err", err)
		}
	}
}

// examineLone says what should happen to a pod of a driver and no endpoint.
func (k *keeper) examineLone(v *view, p pod.Pod) finding {
	if slices.Contains(v.machines[p.Driver], p.MachineID) {
		delete(k.absent, p.ID)
		return finding{}
	}
	return k.silent(v, p, absentFor, finding{pod.Exit, vanished})
}

// waitsFor is what is said of a pod that no machine can run.
func waitsFor(d pod.Driver) string {
	return fmt.Sprintf("it waits: no autoscaler with the driver %s runs", d)
}

// deleted reports whether there is no such endpoint: memory may lack one that
// is new.
func (k *keeper) deleted(ctx context.Context, endpointID string) bool {
	e, err := k.registry.Endpoints.Find(ctx, endpointID)
	return errors.Is(err, endpoint.ErrNotFound) || err == nil && e.Deleting
}

// examine says what should happen to a pod that should run.
func (k *keeper) examine(v *view, p pod.Pod, e endpoint.Endpoint, exists bool) finding {
	w, heard := v.worker(p)
	heard = heard && w.State != registry.WorkerInitializing
	if heard {
		k.heard[p.ID] = true
	}
	gone := !slices.Contains(v.machines[p.Driver], p.MachineID)
	switch {
	case fleet(p) && !exists:
		return finding{pod.Remove, "its endpoint was deleted"}
	case fleet(p) && external(e):
		return finding{pod.Remove, "its endpoint has no driver any more"}
	case fleet(p) && heard && w.State == registry.WorkerUnhealthy:
		return finding{pod.Exit, "it said that it is unhealthy"}
	case heard:
		delete(k.absent, p.ID)
		return finding{}
	case !fleet(p):
		return k.silent(v, p, absentFor, finding{ownersEnd(exists), "its worker fell silent"})
	case gone:
		return k.silent(v, p, absentFor, finding{pod.Exit, vanished})
	case k.heard[p.ID]:
		return k.silent(v, p, silentFor, finding{pod.Exit, fmt.Sprintf("it was not heard of for %s", silentFor)})
	}
	delete(k.absent, p.ID)
	if v.now.Sub(later(k.began, later(p.Created, p.Started))) >= k.cfg.Startup {
		return finding{pod.Exit, fmt.Sprintf("it was not ready after %s", k.cfg.Startup)}
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
func (k *keeper) silent(v *view, p pod.Pod, most time.Duration, found finding) finding {
	since, counted := k.absent[p.ID]
	if !counted {
		k.absent[p.ID] = v.now
		return finding{}
	}
	if v.now.Sub(since) < most {
		return finding{}
	}
	delete(k.absent, p.ID)
	return found
}

// forget removes the records of workers that are gone for a day, and of pods
// that were removed.
func (k *keeper) forget(ctx context.Context, v *view) {
	ended := slices.DeleteFunc(slices.Clone(v.pods), func(p pod.Pod) bool {
		return p.Status == pod.Running || p.Status == pod.Exited && p.Endpoint == ""
	})
	slices.SortFunc(ended, func(a, b pod.Pod) int { return cmp.Or(b.Changed.Compare(a.Changed), cmp.Compare(a.ID, b.ID)) })
	kept := map[string]int{}
	for _, p := range ended {
		if kept[p.Endpoint]++; kept[p.Endpoint] <= mostRemembered && v.now.Sub(p.Changed) < rememberedFor {
			continue
		}
		if err := k.registry.Pods.Forget(ctx, p); err != nil {
			k.log.Log(ctx, slog.LevelDebug, "pod not forgotten, trying again", "pod", p.ID, "err", err)
			return
		}
	}
}
