package autoscaler

import (
	"fmt"
	"time"

	"flightline/shared/registry"
)

const (
	// refreshTimeout is how long a worker that says that it restarts itself may take to end.
	// RunPod's SDK ends if its configuration has refresh_worker, and goes on if what a handler
	// returns has it: the platform is to replace the worker then.
	refreshTimeout = 5 * time.Second
	// staleTimeout is for how long a handler may go on with a job that timed out, was
	// cancelled or lost. Its worker may take no other job for as long.
	staleTimeout = time.Minute
)

// staleJob is a job that a worker says it runs, and does not hold.
type staleJob struct{ worker, job string }

// staleFor returns for how long a worker has gone on with a job that it does not hold, and
// notes in next since when it goes on with each.
func (m *endpointState) staleFor(id string, w registry.Worker, next map[staleJob]time.Time, now time.Time) (longest time.Duration) {
	for _, j := range w.Stale {
		key := staleJob{id, j}
		since, found := m.stale[key]
		if !found {
			since = now
		}
		next[key], longest = since, max(longest, now.Sub(since))
	}
	return longest
}

// leaves says why a worker that has this token, and has gone on with a job for staleFor
// that it does not hold, is to be replaced; "" if it is not.
func leaves(token registry.Token, staleFor time.Duration, now time.Time) string {
	switch {
	case !token.Refreshed.IsZero() && now.Sub(token.Refreshed) >= refreshTimeout: // a start makes a new token
		return "it asked for a restart (refresh_worker), and went on"
	case staleFor >= staleTimeout:
		return fmt.Sprintf("its handler went on for %s with a job that timed out, was cancelled or lost", staleTimeout)
	}
	return ""
}
