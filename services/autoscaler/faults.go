package autoscaler

import (
	"fmt"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/registry"
)

const (
	// refreshTimeout is how long a worker that says that it restarts itself may take to end.
	// RunPod's SDK ends if its configuration has refresh_worker, and goes on if what a handler
	// returns has it: the platform is to replace the worker then.
	refreshTimeout = 5 * time.Second
	// staleTimeout is for how long a handler may go on with a job that timed out, was
	// cancelled or lost, and an idle worker leave a job that waits. Neither may take another
	// job: the one's handler holds its event loop, the other's stands still or has ended.
	staleTimeout = time.Minute
)

// staleJob is a job that a worker says it runs, and does not hold; or idleWhileJobsWait.
type staleJob struct{ worker, job string }

// idleWhileJobsWait stands in a staleJob for the jobs that wait while the worker is idle.
const idleWhileJobsWait = ""

// staleFor returns for how long a worker has gone on with a job that it does not hold, and
// notes in next since when it goes on with each.
func (m *endpointState) staleFor(id string, w registry.Worker, next map[staleJob]time.Time, now time.Time) (longest time.Duration) {
	for _, j := range w.Stale {
		longest = max(longest, lasting(staleJob{id, j}, m.stale, next, now))
	}
	return longest
}

// ignoresFor returns for how long a worker has had no job while jobs waited that any may
// take at once, and notes in next since when.
func (m *endpointState) ignoresFor(x member, jobsLeft bool, next map[staleJob]time.Time, now time.Time) time.Duration {
	if x.state != idle || !jobsLeft {
		return 0
	}
	return min(x.rested, lasting(staleJob{x.id, idleWhileJobsWait}, m.stale, next, now))
}

// jobsAreLeft reports whether a job waits for so long that an idle worker ignores it.
func jobsAreLeft(e endpoint.Endpoint, in sample, now time.Time) bool {
	return !e.Paused(now) && max(in.oldest, in.orphans.waited) > unnamedTimeout
}

// faultOf says why a worker that has this token, has gone on with a job for staleFor
// that it does not hold, and has ignored those that wait for ignoresFor, is to be replaced;
// "" if it is not.
func faultOf(token registry.Token, staleFor, ignoresFor time.Duration, now time.Time) string {
	switch {
	case !token.Refreshed.IsZero() && now.Sub(token.Refreshed) >= refreshTimeout: // a start makes a new token
		return "it asked for a restart (refresh_worker), and went on"
	case staleFor >= staleTimeout:
		return fmt.Sprintf("its handler went on for %s with a job that timed out, was cancelled or lost", staleTimeout)
	case ignoresFor >= staleTimeout:
		return fmt.Sprintf("it was idle for %s while a job waited, and did not ask for it", staleTimeout)
	}
	return ""
}
