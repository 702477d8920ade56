package autoscaler

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

const (
	// minCanaryJobs is how many jobs must have ended on each version until a canary is
	// promoted; the last maxCanaryJobs of each are compared.
	minCanaryJobs, maxCanaryJobs = 20, 200
	// canaryTimeout is how long a canary lasts at most, from its first worker or the end of
	// the last pause on.
	canaryTimeout = time.Hour
	// maxFailureRise is by how much the share of jobs that fail may rise.
	maxFailureRise = 0.1
	// maxSlowdown is how many times as long the median job may take, if it takes more than
	// minSlowdown longer.
	maxSlowdown, minSlowdown = 1.5, 100 * time.Millisecond
	// maxFailedCanaries is how many workers of the new version may fail, unless as many of
	// the former do.
	maxFailedCanaries = 3
	// canaryInterval is the pause between two looks at the ends of jobs, canaryPage how many
	// events are read at once, maxCanaryPages how often.
	canaryInterval             = 5 * time.Second
	canaryPage, maxCanaryPages = 100, 20
)

// tally is how jobs and workers of one version ended.
type tally struct {
	jobs, failed int
	times        []time.Duration // of those that were completed
	crashes      int             // workers that failed
	crash        string          // how the last one ended
}

func (t *tally) add(e events.Event) {
	if t.jobs >= maxCanaryJobs {
		return
	}
	t.jobs++
	if e.Kind != events.Completed {
		t.failed++
		return
	}
	t.times = append(t.times, e.Finished.Sub(e.Started))
}

func (t *tally) median() time.Duration {
	if len(t.times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t.times))
	return sorted[len(sorted)/2]
}

// judgeCanary says how a canary ends, and why; "" while it goes on. Few jobs are enough to
// roll it back: as soon as more have failed than may of minCanaryJobs. When its time is
// over it is judged by the jobs there are; the time begins again when a pause ends.
func judgeCanary(e endpoint.Endpoint, canary, former tally, now time.Time) (state, why string) {
	c := e.Canary
	fast, slow := former.median(), canary.median()
	allowed := maxFailureRise
	if former.jobs > 0 {
		allowed += float64(former.failed) / float64(former.jobs)
	}
	timed := min(len(canary.times), len(former.times)) >= minCanaryJobs/2
	enough := min(canary.jobs, former.jobs) >= minCanaryJobs
	late := !c.Began.IsZero() && now.Sub(job.Later(c.Began, e.PausedUntil)) >= canaryTimeout
	judged := max(canary.jobs, minCanaryJobs)
	if late {
		judged = canary.jobs
	}
	counts := fmt.Sprintf("%d of %d jobs failed on version %d, %d of %d on version %d", canary.failed, canary.jobs, c.Version, former.failed, former.jobs, c.FormerVersion)
	switch {
	case canary.crashes >= maxFailedCanaries && canary.crashes > former.crashes, late && canary.jobs == 0 && canary.crashes > 0:
		return endpoint.CanaryRolledBack, bounded(fmt.Sprintf("%s of version %d failed, %d of version %d: %s", counted(canary.crashes, "worker"), c.Version, former.crashes, c.FormerVersion, canary.crash))
	case float64(canary.failed) > allowed*float64(judged):
		return endpoint.CanaryRolledBack, counts
	case (enough || late) && timed && float64(slow) > maxSlowdown*float64(fast) && slow-fast > minSlowdown:
		return endpoint.CanaryRolledBack, fmt.Sprintf("the median job took %s on version %d, %s on version %d", slow.Round(time.Millisecond), c.Version, fast.Round(time.Millisecond), c.FormerVersion)
	case enough || late:
		return endpoint.CanaryPromoted, counts
	}
	return "", ""
}

// canaryShare is how many of so many workers are canaries: at least one.
func canaryShare(percent, workers int) int {
	return max(1, (workers*percent+99)/100)
}

// version is which version a worker was started from.
type version int

const (
	otherVersion version = iota // neither of both
	formerVersion
	canaryVersion
)

// planCanary marks the members while a canary lasts: those of neither version are
// replaced, then as many of the former one as canaries are missing. Those that are replaced
// count among all until their successors are there: else a successor of the former version
// would start for each whose place makes the share one more. It returns how many workers are
// to start as canaries; if that is 0, others start.
func planCanary(percent int, members []member, versions []version, replaced []string) (missing int) {
	var canaries, formers, others int
	going := len(replaced)
	for i, w := range members {
		if !w.alive() && (w.state != sleeping || versions[i] != canaryVersion) {
			continue
		}
		if slices.Contains(replaced, w.id) {
			going-- // it looks alive still
		}
		switch versions[i] {
		case canaryVersion:
			canaries++
		case formerVersion:
			formers++
		case otherVersion:
			others++
		}
	}
	share := canaryShare(percent, canaries+formers+others+going)
	missing = max(0, share-canaries)
	for i := range members {
		w := &members[i]
		w.canary = versions[i] == canaryVersion && canaries <= share
		w.stale = versions[i] == otherVersion || versions[i] == formerVersion && w.state != sleeping && others == 0 && missing > 0
	}
	return missing
}

// lastCanaries orders workers that may be stopped: canaries are kept the longest.
func lastCanaries(a, b member) int {
	switch {
	case a.canary == b.canary:
		return 0
	case a.canary:
		return 1
	}
	return -1
}

// sampleCanary completes the sample of an endpoint whose new version is tried, or was
// rolled back. unknown says what could not be read.
func (l *leader) sampleCanary(ctx context.Context, v *view, e endpoint.Endpoint, m *endpointState, in *fleetSample) (unknown string) {
	if e.Canary.State == endpoint.CanaryRolledBack {
		for i := range in.members {
			w := &in.members[i]
			w.bad = w.stale && v.pod(e.ID, w.id).EndpointVersion == e.Canary.Version
		}
	}
	if !e.Canary.Lasts() {
		return ""
	}
	former := e.Former()
	spec, invalid, unknown := l.specOf(ctx, v, former)
	if unknown != "" {
		return unknown
	}
	versions := make([]version, len(in.members))
	for i, w := range in.members {
		switch p := v.pod(e.ID, w.id); {
		case madeFrom(p, in.spec, e.Fleet.Driver):
			versions[i] = canaryVersion
		case madeFrom(p, spec, former.Fleet.Driver):
			versions[i] = formerVersion
		}
	}
	in.canaries = planCanary(e.CanaryPercent, in.members, versions, m.memory.replaced)
	if in.canaries == 0 {
		in.from, in.spec, in.invalid = former, spec, invalid
		in.machines = len(v.machines[pod.Driver(former.Fleet.Driver)])
	}
	return ""
}

// dropBad drains all workers of a version that was rolled back, at once: each further job
// on one may fail. Their successors start when they have left.
func dropBad(e endpoint.Endpoint, s sample, v decision) decision {
	var bad []string
	for _, w := range s.members {
		if w.bad && !w.locked && w.alive() && !slices.Contains(v.drain, w.id) {
			bad = append(bad, w.id)
		}
	}
	if len(bad) == 0 {
		return v
	}
	v.drain = append(v.drain, bad...)
	v.memory.replaced = append(slices.Clone(v.memory.replaced), bad...)
	v.reason, v.text = registry.ScalingReplace, bounded(fmt.Sprintf("version %d was rolled back to version %d: %s", e.Canary.Version, e.Canary.FormerVersion, e.Canary.Text))
	return v
}

// watchCanary ends the canary of an endpoint when that is due, and returns the endpoint
// as it is then. The log and the pods decide, and the record of the endpoint is written
// once: the next leader finds all that this one knew.
func (l *leader) watchCanary(ctx context.Context, v *view, e endpoint.Endpoint, m *endpointState) (endpoint.Endpoint, error) {
	c := e.Canary
	if !c.Lasts() || v.now.Sub(m.canaryRead) < canaryInterval {
		return e, nil
	}
	m.canaryRead = v.now
	at := v.now.UTC().Truncate(time.Millisecond)
	if e.CanaryPercent == 0 {
		return l.updateCanary(ctx, e, func(x endpoint.Endpoint) endpoint.Endpoint {
			return x.Promote("the rollout was changed to replace", at)
		})
	}
	if c.Began.IsZero() {
		if !slices.ContainsFunc(v.fleets[e.ID], func(p pod.Pod) bool { return p.EndpointVersion == c.Version }) {
			return e, nil
		}
		return l.updateCanary(ctx, e, func(x endpoint.Endpoint) endpoint.Endpoint {
			x.Canary.Began = at
			return x
		})
	}
	canary, former, err := l.tallies(ctx, e, v.fleets[e.ID])
	if err != nil {
		l.log.DebugContext(ctx, "ends of jobs not read", "endpoint", e.ID, "err", err)
		return e, nil
	}
	state, why := judgeCanary(e, canary, former, v.now)
	var end func(endpoint.Endpoint, string, time.Time) endpoint.Endpoint
	level := slog.LevelInfo
	switch state {
	case endpoint.CanaryPromoted:
		end = endpoint.Endpoint.Promote
	case endpoint.CanaryRolledBack:
		end, level = endpoint.Endpoint.RollBack, slog.LevelWarn
	default:
		return e, nil
	}
	now, err := l.updateCanary(ctx, e, func(x endpoint.Endpoint) endpoint.Endpoint { return end(x, why, at) })
	if err == nil && !now.Canary.Lasts() {
		l.log.Log(ctx, level, "canary ended", "endpoint", e.ID, "version", c.Version, "state", state, "reason", why)
	}
	return now, err
}

// updateCanary writes what change makes of the endpoint, unless its canary is another one.
func (l *leader) updateCanary(ctx context.Context, e endpoint.Endpoint, change func(endpoint.Endpoint) endpoint.Endpoint) (endpoint.Endpoint, error) {
	now, _, err := l.updateEndpoint(ctx, e, func(x *endpoint.Endpoint) (same bool) {
		if !x.Canary.Lasts() || x.Canary.Version != e.Canary.Version {
			return false
		}
		*x = change(*x)
		return true
	})
	return now, err
}

// tallies reads how the last jobs of both versions ended, and counts the workers that
// failed since the canary began.
func (l *leader) tallies(ctx context.Context, e endpoint.Endpoint, pods []pod.Pod) (canary, former tally, err error) {
	of := map[string]*tally{}
	for _, p := range pods {
		t := &former
		switch p.EndpointVersion {
		case e.Canary.Version:
			t = &canary
		case e.Canary.FormerVersion:
		default:
			continue
		}
		of[p.ID] = t
		if p.Failed() && p.Change != vanished && !p.Changed.Before(e.Canary.Began) {
			t.crashes, t.crash = t.crashes+1, p.Change
		}
	}
	past := events.Past{Kinds: []events.Kind{events.Completed, events.Failed, events.TimedOut}, Since: e.Created, Most: canaryPage}
	for range maxCanaryPages {
		page, next, err := l.events.Before(ctx, e.ID, past)
		if err != nil {
			return canary, former, err
		}
		begun := true
		for _, x := range page {
			begun = x.At.After(e.Canary.Began)
			if t := of[x.Worker]; t != nil {
				t.add(x)
			}
		}
		if next == 0 || former.jobs >= minCanaryJobs && (!begun || canary.jobs >= minCanaryJobs) {
			break
		}
		past.Before = next
	}
	return canary, former, nil
}
