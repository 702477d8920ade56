package autoscaler

import (
	"context"
	"errors"
	"slices"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

// looked is a sample, and what it takes to apply a decision about it.
type looked struct {
	sample
	spec pod.Spec
	pods []pod.Pod // of the fleet, alive and gone
}

// sample reads what the decision about an endpoint needs.
func (l *leader) sample(ctx context.Context, v *view, e endpoint.Endpoint, m *mind) looked {
	in := looked{pods: v.fleets[e.ID]}
	in.machines = len(v.machines[pod.Driver(e.Fleet.Driver)])
	stats, err := l.count(ctx, v.now, e, m)
	if err != nil {
		in.unknown = "its jobs could not be counted"
		l.log.DebugContext(ctx, "jobs not counted", "endpoint", e.ID, "err", err)
		return in
	}
	in.queued, in.queuedLow = stats.Queued-stats.QueuedLow, stats.QueuedLow
	in.running, in.allRunning = stats.Running-stats.RunningLow, stats.Running
	if in.queued > 0 && e.ScalerType == endpoint.QueueDelay {
		if in.oldest, err = l.queue.OldestWait(ctx, e, job.Normal); err != nil {
			in.unknown = "it could not be seen how long its jobs wait"
			l.log.DebugContext(ctx, "oldest job not found", "endpoint", e.ID, "err", err)
			return in
		}
	}
	if in.orphans, err = l.orphans(ctx, v, e, m, stats); err != nil {
		in.unknown = "the jobs that were handed out could not be listed"
		l.log.DebugContext(ctx, "handed-out jobs not listed", "endpoint", e.ID, "err", err)
		return in
	}
	if external(e) {
		in.members, in.unknown = l.visitors(ctx, v, e.ID)
		return in
	}
	if in.spec, in.invalid, in.unknown = l.specOf(ctx, v, e); in.unknown != "" {
		return in
	}
	var last pod.Pod
	in.failures, last = streak(alike(in.pods, e, in.spec), v.now)
	in.lastFailure, in.failure = last.Changed, last.Change
	in.members, in.unknown = l.members(ctx, v, e, m, in)
	return in
}

// members are the workers of the fleet that are not gone. unknown says which
// of them could not be asked about.
func (l *leader) members(ctx context.Context, v *view, e endpoint.Endpoint, m *mind, in looked) (all []member, unknown string) {
	states := map[string]standing{}
	for _, p := range in.pods {
		if p.Status != pod.Running {
			continue
		}
		w, heard := v.worker(p)
		token, err := l.registry.Tokens.Find(ctx, e.ID, p.ID)
		if err != nil && !errors.Is(err, registry.ErrNotFound) {
			unknown = "it could not be seen which workers drain"
		}
		now := stateOf(w, heard)
		if token.Draining {
			now = draining
		}
		since := m.since(p.ID, now, v.now)
		states[p.ID] = standing{now, since}
		all = append(all, member{
			id: p.ID, state: now, since: since, rested: restedOf(w, since, v.now), jobs: len(w.Running), locked: p.Locked,
			stale: in.invalid == "" && (!same(p.Spec, in.spec) || string(p.Driver) != e.Fleet.Driver),
		})
	}
	m.states = states
	return all, unknown
}

// alike are the pods that were started from what the endpoint says now: how
// others ended tells nothing of the next.
func alike(pods []pod.Pod, e endpoint.Endpoint, spec pod.Spec) []pod.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p pod.Pod) bool {
		return !same(p.Spec, spec) || string(p.Driver) != e.Fleet.Driver
	})
}

// visitors are the workers that somebody else has started. unknown says which
// of them could not be asked about.
func (l *leader) visitors(ctx context.Context, v *view, endpointID string) (all []member, unknown string) {
	for _, w := range v.visitors[endpointID] {
		var token registry.Token
		if !w.Native { // those have none
			var err error
			if token, err = l.registry.Tokens.Find(ctx, endpointID, w.ID); err != nil && !errors.Is(err, registry.ErrNotFound) {
				unknown = "it could not be seen which workers drain"
			}
		}
		now := stateOf(w, true)
		if asked := v.drains[endpointID+"."+w.ID]; w.Draining || token.Draining || asked.Drains(w.Started) {
			now = draining
		}
		all = append(all, member{id: w.ID, state: now, jobs: len(w.Running)})
	}
	return all, unknown
}

// since is how long a worker has been in a state, as far as this leader knows.
func (m *mind) since(id string, now state, at time.Time) time.Time {
	if before, ok := m.states[id]; ok && before.state == now {
		return before.since
	}
	return at
}

// restedOf is how long a worker is known to have had no job, which it was first
// seen without at since. Short jobs come and go between two heartbeats. A native
// worker beats at once when it has had one; what another one did since its last
// ping is not known yet.
func restedOf(w registry.Worker, since, at time.Time) time.Duration {
	if !w.Native {
		at = w.Seen
	}
	rested := at.Sub(since)
	if w.Rested > 0 {
		rested = min(rested, at.Sub(w.Seen)+w.Rested)
	}
	return max(0, rested)
}

// stateOf is what a worker's heartbeat says.
func stateOf(w registry.Worker, heard bool) state {
	switch {
	case !heard || w.State == registry.WorkerInitializing:
		return starting
	case w.State == registry.WorkerUnhealthy:
		return unhealthy
	case len(w.Running) > 0 || w.State == registry.WorkerRunning:
		return busy
	}
	return idle
}
