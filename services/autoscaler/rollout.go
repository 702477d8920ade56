package autoscaler

import (
	"slices"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

// replace drains one worker that was started from what holds no longer: first those that
// start, which may never be ready, then an idle one, or a busy one if no idle one is left,
// which ends its jobs first. It waits until those that were drained before have left and
// their successors are ready, and while new workers fail. So there are never more workers
// than before, and never more than one fewer that is ready. Workers that are wanted and not
// started hold it up only if successors could not be started either: without a GPU for more
// workers, the old one leaves its own.
func replace(e endpoint.Endpoint, s sample, v decision, now time.Time) decision {
	if v.hold || v.acts() || e.Paused(now) || s.failures > 0 || s.machines == 0 || s.invalid != "" || len(v.memory.replaced) > 0 {
		return v
	}
	comes := func(w member) bool { return w.state == starting && (!w.stale || w.locked) }
	if slices.ContainsFunc(s.members, comes) || count(s.members, draining, unhealthy) > 0 {
		return v
	}
	old, found := outdated(s.members)
	if !found {
		return v
	}
	v.drain, v.memory.replaced = []string{old.id}, []string{old.id}
	v.reason, v.text = registry.ScalingReplace, "the endpoint has changed since a worker was started"
	return v
}

// outdated is the worker to replace first.
func outdated(members []member) (first member, found bool) {
	for _, want := range []state{starting, idle, busy} {
		for _, w := range members {
			if w.state == want && w.stale && !w.locked {
				return w, true
			}
		}
	}
	return first, false
}

// successors is the need n, or that for the successors of workers that were drained to
// be replaced, once those have left.
func successors(e endpoint.Endpoint, s sample, m memory, n need, alive int) need {
	want := min(alive+len(m.replaced), e.WorkersMax)
	if len(m.replaced) == 0 || countPresent(s, m.replaced) > 0 || want <= max(n.workers, e.WorkersMin) {
		return n
	}
	return need{want, registry.ScalingReplace, "the endpoint has changed since a worker was started, which has left"}
}

// unreplaced are the workers of m.replaced, as long as successors for them may be started.
func unreplaced(e endpoint.Endpoint, s sample, m memory, alive int, now time.Time) []string {
	if e.Paused(now) || alive >= e.WorkersMax && countPresent(s, m.replaced) == 0 {
		return nil
	}
	return m.replaced
}

// leavingOf are the workers that are to be gone and are still heard of: their agent
// has not stopped them yet, or a moment ago.
func leavingOf(v *view, pods []pod.Pod) []string {
	var ids []string
	for _, p := range pods {
		if _, heard := v.worker(p); heard && p.Status != pod.Running {
			ids = append(ids, p.ID)
		}
	}
	return ids
}
