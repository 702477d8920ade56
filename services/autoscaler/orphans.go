package autoscaler

import (
	"context"
	"slices"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/mutation"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/registry"
)

const (
	// unnamedTimeout is how long no heartbeat may name a job that was handed out
	// before it asks for another worker: a heartbeat interval and the time that a
	// loaded machine adds.
	unnamedTimeout = registry.BeatEvery + 3*time.Second
	// orphansInterval is the pause between two looks at what was handed out.
	orphansInterval = 2 * time.Second
	// watchTimeout is the pause between two looks after which it is not known
	// what workers named in between, as after an outage.
	watchTimeout = externalInterval + unnamedTimeout
)

// orphans are jobs that were handed out and that no living worker names: their
// worker was lost, or gave them back, or never picked them up.
type orphans struct {
	count int
	// waited is how long the first of them could have been taken over: a job is
	// handed out again at the latest when its lease is over.
	waited time.Duration
}

// findOrphans finds the orphans among the jobs that were handed out. since has
// those that no worker named at the look before, by when that was first so;
// next is the same for the next look. A job becomes an orphan only after
// timeout: what a heartbeat says is some seconds old.
func findOrphans(out []job.ID, named map[job.ID]bool, timeout time.Duration, since map[job.ID]time.Time, lease time.Duration, now time.Time) (found orphans, next map[job.ID]time.Time) {
	next = map[job.ID]time.Time{}
	for _, id := range out {
		if named[id] || mutation.NoOrphans {
			continue
		}
		unnamed := lasting(id, since, next, now)
		if unnamed < timeout {
			continue
		}
		found.count++
		found.waited = max(found.waited, unnamed-lease)
	}
	return found, next
}

// jobsHeldBy are the jobs that living workers hold, of fleets and of owners.
func jobsHeldBy(workers []registry.Worker) map[job.ID]bool {
	jobs := map[job.ID]bool{}
	for _, w := range workers {
		for _, id := range w.Running {
			jobs[job.ID(id)] = true
		}
	}
	return jobs
}

// lastWorkerEnded reports whether none of the endpoint's workers lives, and one of its fleet
// ended a moment ago: nobody can name a job then, nor what that worker gave back as it ended.
func lastWorkerEnded(workers []registry.Worker, pods []pod.Pod, now time.Time) bool {
	return len(workers) == 0 && slices.ContainsFunc(pods, func(p pod.Pod) bool {
		return p.Status != pod.Running && now.Sub(p.Changed).Abs() < unnamedTimeout // it is far ahead if the clock was set back
	})
}

// handedJobs is what the leader remembers of an endpoint's jobs that were handed out.
type handedJobs struct {
	jobs    []job.ID
	listed  time.Time
	looked  time.Time
	unnamed map[job.ID]time.Time
}

// orphans finds the orphans of normal priority. The jobs are listed only while
// more are handed out than workers name, or one was not named before.
func (l *leader) orphans(ctx context.Context, v *view, e endpoint.Endpoint, m *endpointState, stats queue.Stats) (orphans, error) {
	h := &m.handed
	none := stats.Running == stats.RunningLow || e.WorkersMax == 0 || e.ScalerType != endpoint.QueueDelay
	if v.now.Sub(h.looked) > watchTimeout { // then it is not known what lasted
		*h, m.stale = handedJobs{}, nil
	}
	if none {
		*h = handedJobs{}
	}
	if h.looked = v.now; none {
		return orphans{}, nil
	}
	held := jobsHeldBy(v.workersOf[e.ID])
	if stats.Running <= len(held) && len(h.unnamed) == 0 {
		return orphans{}, nil
	}
	if v.now.Sub(h.listed) >= orphansInterval {
		jobs, err := l.queue.Lists.HandedOut(ctx, e, job.Normal)
		if err != nil {
			return orphans{}, err
		}
		h.jobs, h.listed = jobs, v.now
	}
	var found orphans
	timeout := unnamedTimeout
	if lastWorkerEnded(v.workersOf[e.ID], v.fleets[e.ID], v.now) {
		timeout = 0
	}
	found, h.unnamed = findOrphans(h.jobs, held, timeout, h.unnamed, e.Lease, v.now)
	return found, nil
}
