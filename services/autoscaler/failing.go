package autoscaler

import (
	"context"
	"fmt"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/stats"
)

const (
	// minSameFailures is how many jobs in a row must have failed for one cause so that no
	// more workers are started for the jobs that wait.
	minSameFailures = 5
	// sameFailureWindow is how far back they count, sameFailureInterval the pause between
	// two looks.
	sameFailureWindow, sameFailureInterval = 10 * time.Minute, 5 * time.Second
	// failuresPage is how many events are read at once to count failures in a row.
	failuresPage = 100
)

// sameFailure is that the last jobs of an endpoint failed for one cause. The zero value
// is that none did.
type sameFailure struct {
	jobs, workers int
	cause         string // of the latest
}

// everywhere reports whether enough jobs failed, and on more than one of the workers,
// as far as there are more.
func (f sameFailure) everywhere(alive int) bool {
	return f.jobs >= minSameFailures && f.workers >= min(2, max(1, alive))
}

// sameFailureOf counts the failures of the latest cause since a job ended otherwise, in
// events that come the last one first.
func sameFailureOf(latest []events.Event) sameFailure {
	var f sameFailure
	fingerprint, workers := "", map[string]bool{}
	for _, e := range latest {
		if !e.Status.Terminal() || e.Kind == events.Cancelled {
			continue
		}
		found := stats.Fingerprint(e.Cause)
		if e.Kind != events.Failed || found == "" || fingerprint != "" && found != fingerprint {
			break
		}
		if fingerprint == "" {
			fingerprint, f.cause = found, e.Cause
		}
		f.jobs++
		workers[e.Worker] = true
	}
	f.workers = len(workers)
	return f
}

// lookAtFailures reads how the endpoint's last jobs ended. What cannot be read holds up
// no start.
func (l *leader) lookAtFailures(ctx context.Context, e endpoint.Endpoint, m *endpointState, now time.Time) sameFailure {
	if now.Sub(m.failuresRead) < sameFailureInterval {
		return m.failures
	}
	f, err := l.failuresInRow(ctx, e.ID, job.Later(e.Created, now.Add(-sameFailureWindow)), minSameFailures, 1)
	if err != nil {
		l.log.DebugContext(ctx, "ends of jobs not read", "endpoint", e.ID, "err", err)
		f = sameFailure{}
	}
	m.failuresRead, m.failures = now, f
	return f
}

// failuresInRow counts the last jobs of an endpoint that failed for one cause since then. It
// reads pages until there are enough, and so many at most.
func (l *leader) failuresInRow(ctx context.Context, endpointID string, since time.Time, enough, pages int) (f sameFailure, err error) {
	var latest []events.Event
	past := events.Past{Since: since, Most: failuresPage}
	for range pages {
		page, next, err := l.events.Before(ctx, endpointID, past)
		if err != nil {
			return f, err
		}
		for _, x := range page {
			if x.Status.Terminal() && x.Kind != events.Cancelled && x.At.After(since) {
				latest = append(latest, x)
			}
		}
		f = sameFailureOf(latest)
		if f.jobs < len(latest) || f.jobs >= enough || next == 0 {
			break
		}
		past.Before = next
	}
	return f, nil
}

// boundFailing starts no more workers than workersMin, and one at least, while the jobs
// fail on all of them: more would fail as many jobs sooner. Those that take the places of
// replaced ones are started all the same: they may be the remedy.
func boundFailing(e endpoint.Endpoint, s sample, v decision, n need) decision {
	alive := countAlive(s.members)
	byJobs := n.reason == registry.ScalingDelay || n.reason == registry.ScalingRequests
	if v.start == 0 || !byJobs || !s.failing.everywhere(alive) {
		return v
	}
	successors := len(v.memory.replaced) - countPresent(s, v.memory.replaced)
	v.start = min(v.start, max(successors, max(1, e.WorkersMin)-alive))
	if v.start == 0 {
		v.reason = registry.ScalingFailing
		v.text = fmt.Sprintf("the last %s failed on %s for one cause, more workers are started when a job succeeds: %s", counted(s.failing.jobs, "job"), counted(s.failing.workers, "worker"), s.failing.cause)
	}
	return v
}
