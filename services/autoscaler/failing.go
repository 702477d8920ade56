package autoscaler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/retry"
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

// startBackoff is the pause after failed starts in a row.
var startBackoff = retry.Backoff{First: time.Second, Max: 5 * time.Minute}

// proven is how long a worker must have run, besides having been ready, so that its end is
// no failed start, and those before it are forgotten.
const proven = time.Minute

// provenAt is when the worker is proven if it goes on, in its last start; the zero time if
// it was not started, or not ready yet. A model may take minutes to load, and fail then.
// A worker that restarts itself after each job may never run for so long: its job proves it.
func provenAt(p pod.Pod) time.Time {
	switch at := p.Started.Add(proven); {
	case !p.Refreshed.IsZero():
		return p.Refreshed
	case p.Started.IsZero():
		return time.Time{}
	case p.Phases.Begun().IsZero(): // how its start went was not noted
		return at
	case p.Phases.Ready.IsZero():
		return time.Time{}
	default:
		return job.Later(at, p.Phases.Ready)
	}
}

// vanished is the last change of a pod when the autoscaler of its machine ended
// without a word.
const vanished = "the autoscaler that ran it is gone"

// streak counts the workers in a row that ended soon after their start or before they were
// ready, and returns the last of them. A worker that is proven ends the row,
// whether it still runs or not, and so does a drained worker that had been ready: most end
// so within a minute, as idle. A worker that was asked to end does not count, nor
// one whose machine vanished.
func streak(pods []pod.Pod, now time.Time) (failures int, last pod.Pod) {
	ended := slices.DeleteFunc(slices.Clone(pods), func(p pod.Pod) bool {
		return !p.Failed() || p.Change == vanished
	})
	slices.SortFunc(ended, func(a, b pod.Pod) int {
		return cmp.Or(b.Changed.Compare(a.Changed), cmp.Compare(b.ID, a.ID))
	})
	var better time.Time // the last time that one was proven
	for _, p := range pods {
		switch at := provenAt(p); {
		case p.Status == pod.Running && !now.Before(at), p.Change == endedWithUs && !p.Changed.Before(at):
			better = job.Later(better, at)
		case p.Status != pod.Running:
			better = job.Later(better, workedAt(p, now))
		}
	}
	for _, p := range ended {
		at := provenAt(p)
		if !at.IsZero() && !p.Changed.Before(at) || p.Changed.Before(better) {
			break
		}
		if failures++; failures == 1 {
			last = p
		}
	}
	return failures, last
}

// failedText says that workers failed at their start, so many since one did not.
func failedText(n int) string {
	if n == 1 {
		return "a worker failed"
	}
	return fmt.Sprintf("workers failed %d times in a row", n)
}
