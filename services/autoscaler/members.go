package autoscaler

import (
	"slices"
	"time"
)

// state is what a worker of the fleet does.
type state int

const (
	// starting workers have not been heard of yet.
	starting state = iota
	idle
	busy
	// unhealthy workers said so; they are about to be ended.
	unhealthy
	// draining workers get no more jobs.
	draining
	// sleeping workers take no jobs until they are woken; those that wake are starting.
	sleeping
)

// member is a worker of the fleet.
type member struct {
	id    string
	state state
	since time.Time // in this state
	// rested is how long an idle one is known to have had no job.
	rested time.Duration
	jobs   int // that it says it holds
	// stale means that it was started from what the endpoint no longer says.
	stale bool
	// locked ones are neither drained nor stopped.
	locked bool
	// fault says why it is to be replaced though it was started from what holds, "" if it is not.
	fault string
	// sleeps means that it can be put to sleep, asked that it was asked to.
	sleeps, asked bool
	// frees is what it gives back of each of its GPUs while it sleeps, in hundredths: 0 if it
	// cannot sleep or keeps all. small ones have done so; taken ones cannot wake now, since
	// others have what they gave back.
	frees        int
	small, taken bool
	// canary ones try a new version, bad ones have a version that was rolled back.
	canary, bad bool
}

// pick returns the members in one of the states, in their order.
func pick(all []member, states ...state) []member {
	var some []member
	for _, w := range all {
		if slices.Contains(states, w.state) {
			some = append(some, w)
		}
	}
	return some
}

func count(all []member, states ...state) int { return len(pick(all, states...)) }

// alive reports whether the worker takes jobs, or will once it has started.
func (w member) alive() bool { return w.state == starting || w.state == idle || w.state == busy }

func countAlive(all []member) int { return count(all, starting, idle, busy) }

// jobs is how many the members say they hold.
func jobs(all []member) int {
	n := 0
	for _, w := range all {
		n += w.jobs
	}
	return n
}

// withJobs is how many of the workers hold jobs.
func withJobs(all []member) int {
	return len(slices.DeleteFunc(slices.Clone(all), func(w member) bool { return w.jobs == 0 }))
}

// leavers are the replaced workers that have not left, but for those that still look alive.
func leavers(s sample, replaced []string) []member {
	return slices.DeleteFunc(pick(s.members, draining, unhealthy), func(w member) bool { return !slices.Contains(replaced, w.id) })
}

// countPresent is how many of the workers have not left.
func countPresent(s sample, ids []string) int {
	n := 0
	for _, id := range ids {
		if slices.Contains(s.leaving, id) || slices.ContainsFunc(s.members, func(w member) bool { return w.id == id }) {
			n++
		}
	}
	return n
}
