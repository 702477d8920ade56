package gateway

import (
	"sync"
	"time"

	"flightline/shared/job"
)

// namedJobs are the jobs that workers said in their last pings that they run, with what
// they took and without what they ended since. What a worker posts has the job's id and
// neither its attempt nor its run: a worker that got a job while it still runs an earlier
// run of it would end the new run with the outcome of the old one. So it does not get it
// (docs/adr/0017-gateway.md).
type namedJobs struct {
	mu    sync.Mutex
	of    map[string]namedByPing // by endpoint and worker
	swept time.Time
}

type namedByPing struct {
	until time.Time
	jobs  map[job.ID]bool
}

const (
	// namedTimeout is how long a ping is remembered: a worker sends three in that time.
	namedTimeout = 30 * time.Second
	// namedSweepInterval is the least pause between two removals of what has expired.
	namedSweepInterval = 10 * time.Second
)

func newNamedJobs() *namedJobs { return &namedJobs{of: map[string]namedByPing{}} }

// set notes what a ping names, for a lease at most: after that the worker has lost its jobs.
func (n *namedJobs) set(key string, ids []job.ID, now time.Time, lease time.Duration) {
	jobs := make(map[job.ID]bool, len(ids))
	for _, id := range ids {
		jobs[id] = true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of[key] = namedByPing{now.Add(min(lease, namedTimeout)), jobs}
	if now.Sub(n.swept) < namedSweepInterval {
		return
	}
	n.swept = now
	for k, p := range n.of {
		if !now.Before(p.until) {
			delete(n.of, k)
		}
	}
}

// add notes that the worker is handed a job, if a ping of it is remembered.
func (n *namedJobs) add(key string, id job.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if jobs := n.of[key].jobs; jobs != nil {
		jobs[id] = true
	}
}

// remove notes that the worker does not run the job any more: it has posted its result, or
// was not handed it after all.
func (n *namedJobs) remove(key string, id job.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.of[key].jobs, id)
}

// has reports whether the worker still runs the job, if a ping of it is remembered.
func (n *namedJobs) has(key string, id job.ID, now time.Time) (runs, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.of[key]
	known = now.Before(p.until)
	return p.jobs[id] && known, known
}

// count returns how many jobs the worker has, if a ping of it is remembered.
func (n *namedJobs) count(key string, now time.Time) (jobs int, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.of[key]
	return len(p.jobs), now.Before(p.until)
}
