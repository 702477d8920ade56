package autoscaler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/registry"
)

// sample is what is known of an endpoint now.
type sample struct {
	// unknown says which number is not, "" if all are.
	unknown string
	// queued and running leave out low priority, allRunning does not.
	queued, queuedLow, running, allRunning int
	oldest                                 time.Duration
	// elsewhere are jobs that living workers hold which are no members.
	elsewhere int
	// orphans are some of running, and counted for queue delay only.
	orphans orphans
	members []member
	// leaving are workers whose pods are to be gone, and that are still heard of.
	leaving []string
	// failures are the workers in a row that ended soon after their start.
	failures    int
	lastFailure time.Time
	failure     string // what the last one said
	failedOn    string // its machine
	// failing are the last jobs, if more workers would be started for those that wait.
	failing sameFailure
	// canaries bounds how many are started now, as canaries; 0 for any number of others.
	canaries int
	// machines can start workers for this endpoint.
	machines int
	// invalid says why none can be started from the endpoint.
	invalid string
}

// memory is what a decision leaves for the next.
type memory struct {
	wanted int
	// grew is when the wanted number last rose, high when it was last needed.
	grew, high time.Time
	// replaced are workers that were drained for a successor which was not started yet.
	replaced []string
}

// decision is a decision.
type decision struct {
	wanted int
	start  int
	drain  []string // the workers to stop, once they are drained
	sleep  []string // the workers to put to sleep
	wake   []string // the workers to wake
	// retire are the sleeping workers to stop, and why.
	retire map[string]string
	// reason is "" while things go on as they were.
	reason, text string
	hold         bool
	memory       memory
}

// acts reports whether the decision changes what workers are to do.
func (v decision) acts() bool {
	return v.start > 0 || len(v.drain) > 0 || len(v.sleep) > 0 || len(v.wake) > 0
}

// decide says how many workers the endpoint should have, and how to get there.
//
// Busy workers are never stopped. The number falls only idleTimeout after it
// last rose, so that within that time it changes its direction once at most.
func decide(e endpoint.Endpoint, s sample, m memory, now time.Time) decision {
	alive := countAlive(s.members)
	switch {
	case s.unknown != "":
		return decision{wanted: m.wanted, hold: true, memory: m, reason: registry.ScalingUnknown, text: "nothing is started or stopped: " + s.unknown}
	case e.Fleet.External():
		return decideExternal(e, s, m, now)
	}
	n := needed(e, s, m, alive, leavers(s, m.replaced), now)
	v := decision{wanted: alive, memory: memory{wanted: alive, grew: m.grew, high: m.high, replaced: unreplaced(e, s, m, alive, now)}}
	n = successors(e, s, v.memory, n, alive)
	target := min(max(n.workers, e.WorkersMin), e.WorkersMax)
	switch {
	case target > alive:
		v = wakeOrGrow(e, s, v, n, target-alive, now)
	case target < alive:
		v = shrink(e, s, v, target, now)
	}
	v.explainPause(e, now)
	v = dropBad(e, s, replace(e, s, v, now))
	v.memory.wanted = v.wanted
	return v
}

// need is a number of workers, and why.
type need struct {
	workers      int
	reason, text string
}

// why says why there are to be so many workers: the jobs need them, or workersMin does.
func (n need) why(e endpoint.Endpoint, wanted int) (reason, text string) {
	if n.workers < wanted || n.reason == "" {
		return registry.ScalingMinimum, fmt.Sprintf("workersMin is %d", e.WorkersMin)
	}
	return n.reason, n.text
}

// needed is how many workers the queue asks for, when there are alive ones, and leavers are
// replaced and have not left. It is unbounded, and no less than what low-priority jobs keep
// busy only by chance: they are not counted. Jobs that wait for long ask for as many as if
// the leavers stayed. Those of a paused endpoint ask for none.
func needed(e endpoint.Endpoint, s sample, m memory, alive int, leavers []member, now time.Time) need {
	if e.Paused(now) {
		return need{workers: count(s.members, busy)}
	}
	if e.ScalerType == endpoint.RequestCount {
		running := s.runningHere()
		n := (s.queued + running + e.ScalerValue - 1) / e.ScalerValue
		return need{n, registry.ScalingRequests, fmt.Sprintf("%s and %d run, %d for each worker", jobsWait(s.queued), running, e.ScalerValue)}
	}
	limit := time.Duration(e.ScalerValue) * time.Second
	working, waiting := count(s.members, busy), s.queued+s.orphans.count
	oldest := max(s.oldest, s.orphans.waited)
	switch {
	case waiting == 0:
		return need{workers: working}
	case alive+len(leavers) > 0 && oldest > limit && now.Sub(m.grew) >= limit:
		// No more than what waits can use, twice as many as there are at most.
		there := alive + len(leavers)
		more := min(there, working+withJobs(leavers)+waiting-there)
		return need{
			there + max(0, more), registry.ScalingDelay,
			fmt.Sprintf("a job has waited for %s, longer than %s", oldest.Round(time.Second), limit),
		}
	case alive == 0 && countAlive(s.members) > 0: // those of an owner, who was asked for none
		return need{1, registry.ScalingFromZero, s.waiting()}
	case alive == 0:
		return need{1, registry.ScalingFromZero, s.waiting() + "; there is no worker"}
	}
	return need{workers: alive}
}

// runningHere is how many of the running jobs ask for a worker: those that no worker of an
// owner holds. Which of those have low priority is not known, so that as many as run count.
func (s sample) runningHere() int {
	low := s.allRunning - s.running
	return max(0, s.running-max(0, s.elsewhere-low))
}

// waiting says which jobs ask for a worker.
func (s sample) waiting() string {
	switch s.orphans.count {
	case 0:
		return jobsWait(s.queued)
	case 1:
		return jobsWait(s.queued) + " and 1 has lost its worker"
	}
	return fmt.Sprintf("%s and %d have lost their worker", jobsWait(s.queued), s.orphans.count)
}

func jobsWait(n int) string {
	if n == 1 {
		return "1 job waits"
	}
	return fmt.Sprintf("%d jobs wait", n)
}

// grow starts workers, unless something is in the way.
func grow(e endpoint.Endpoint, s sample, v decision, n need, missing int, now time.Time) decision {
	if e.Paused(now) {
		v.reason, v.text = registry.ScalingPaused, pauseText(e)
		return v
	}
	v.wanted += missing
	v.reason, v.text = n.why(e, v.wanted)
	held := countPresent(s, v.memory.replaced)
	room := max(0, min(roomToStart(e, s), missing-held))
	v.start = room
	wait := startBackoff.Delay(s.failures)
	switch {
	case s.invalid != "":
		v.start, v.reason, v.text = 0, registry.ScalingInvalid, s.invalid
	case s.machines == 0:
		v.start, v.reason = 0, registry.ScalingNoMachine
		v.text = fmt.Sprintf("no autoscaler with the driver %[1]s runs: none was started with %[1]s in --drivers", e.Fleet.Driver)
	case room == 0 && held > 0:
		v.start, v.reason = 0, registry.ScalingLeaving
		v.text = fmt.Sprintf("%d that are replaced must have left before others are started", held)
	case room == 0:
		v.start, v.reason = 0, registry.ScalingLeaving
		v.text = fmt.Sprintf("workersMax is %d, and %d that drain or sleep must have left before more are started", e.WorkersMax, count(s.members, draining, unhealthy, sleeping)-len(v.wake))
	case s.failures > 0 && now.Sub(s.lastFailure).Abs() < wait: // it is far ahead if the clock was set back
		v.start, v.reason = 0, registry.ScalingBackoff
		v.text = fmt.Sprintf("%s, the next is started %s after the last: %s", failedText(s.failures), wait, s.failure)
	case s.failures > 0:
		// One tries whether it is better now.
		v.start = max(0, min(v.start, 1-count(s.members, starting)))
		if v.start == 0 {
			v.reason = registry.ScalingBackoff
			v.text = fmt.Sprintf("%s, one is tried: %s", failedText(s.failures), s.failure)
		}
	}
	v = boundFailing(e, s, v, n)
	if s.canaries > 0 {
		v.start = min(v.start, s.canaries)
	}
	if v.start > 0 {
		v.memory.grew, v.memory.replaced = now, nil
	}
	return v
}

// shrink stops workers that were idle for long enough, or puts them to sleep, down to target.
// Above workersMax those that start go first: they hold no job, and may load for long.
func shrink(e endpoint.Endpoint, s sample, v decision, target int, now time.Time) decision {
	over := max(0, v.wanted-e.WorkersMax) // as many may go at once
	settled := now.Sub(v.memory.grew) >= e.IdleTimeout
	// A worker that took a job since it last spoke looks idle.
	unseen := max(0, s.allRunning-jobs(s.members)-s.elsewhere)
	resting := slices.DeleteFunc(pick(s.members, idle), func(w member) bool { return w.locked })
	slices.SortFunc(resting, func(a, b member) int {
		return cmp.Or(lastCanaries(a, b), cmp.Compare(b.rested, a.rested), cmp.Compare(b.id, a.id))
	})
	for _, w := range pick(s.members, starting) {
		if !w.locked && len(v.drain) < over {
			v.drain = append(v.drain, w.id)
		}
	}
	most := min(v.wanted-target, len(v.drain)+len(resting)-unseen)
	bound := len(v.drain) > 0
	for _, w := range resting {
		long := settled && w.rested >= e.IdleTimeout
		if len(v.drain) >= most || !long && len(v.drain) >= over {
			break
		}
		bound = bound || !long
		v.drain = append(v.drain, w.id)
	}
	if len(v.drain) == 0 {
		return v
	}
	v.wanted -= len(v.drain)
	v.memory.replaced = nil // fewer are needed
	v.reason, v.text = registry.ScalingIdle, fmt.Sprintf("%d idle for %s", len(v.drain), e.IdleTimeout)
	if bound {
		v.reason, v.text = registry.ScalingBound, fmt.Sprintf("workersMax is %d", e.WorkersMax)
		return v
	}
	return sleepInstead(e, s, v)
}

// explainPause says that the endpoint is paused, where there is no other reason.
func (v *decision) explainPause(e endpoint.Endpoint, now time.Time) {
	if v.reason == "" && e.Paused(now) {
		v.reason, v.text = registry.ScalingPaused, pauseText(e)
	}
}

// countUsed is how many of the workers have a job, or had one within that time: between two
// looks short jobs come and go.
func countUsed(all []member, within time.Duration) int {
	return len(slices.DeleteFunc(pick(all, idle, busy), func(w member) bool { return w.state == idle && w.rested >= within }))
}

// decideExternal says how many workers somebody else should run.
func decideExternal(e endpoint.Endpoint, s sample, m memory, now time.Time) decision {
	v := decision{memory: m}
	n := needed(e, s, m, m.wanted, nil, now)
	target := min(max(n.workers, e.WorkersMin, min(m.wanted, countUsed(s.members, e.IdleTimeout))), e.WorkersMax)
	v.reason, v.text = n.reason, n.text
	switch {
	case target > m.wanted && e.Paused(now):
		target, v.reason, v.text = m.wanted, registry.ScalingPaused, pauseText(e)
	case target > m.wanted:
		v.memory.grew, v.memory.high = now, now
		if n.workers < target {
			v.reason, v.text = registry.ScalingMinimum, fmt.Sprintf("workersMin is %d", e.WorkersMin)
		}
	case target == m.wanted:
		v.memory.high = now
		v.reason, v.text = "", ""
	case m.wanted > e.WorkersMax:
		target, v.reason, v.text = e.WorkersMax, registry.ScalingBound, fmt.Sprintf("workersMax is %d", e.WorkersMax)
	case now.Sub(m.high) < e.IdleTimeout || now.Sub(m.grew) < e.IdleTimeout:
		target, v.reason, v.text = m.wanted, "", ""
	default:
		v.reason, v.text = registry.ScalingIdle, fmt.Sprintf("fewer were needed for %s", e.IdleTimeout)
	}
	v.explainPause(e, now)
	v.wanted, v.memory.wanted = target, target
	return v
}
