package autoscaler

import (
	"cmp"
	"slices"
	"time"

	"flightline/shared/pod"
)

const (
	// firstBackoff is the pause after one failed start; it doubles with each,
	// up to longestBackoff.
	firstBackoff   = time.Second
	longestBackoff = 5 * time.Minute
	// proven is how long a worker must have run so that its end is no failed
	// start, and those before it are forgotten.
	proven = time.Minute
)

// vanished is what is said of a pod when the autoscaler of its machine ended
// without a word.
const vanished = "the autoscaler that ran it is gone"

// backoff is the pause after as many failures in a row.
func backoff(failures int) time.Duration {
	if failures <= 0 {
		return 0
	}
	return min(longestBackoff, firstBackoff<<min(failures-1, 20))
}

// streak counts the workers in a row that ended soon after their start, and
// returns the last of them. A worker that has run for long ends the row,
// whether it still does or not. One that was asked to end does not count, nor
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
		if !p.Started.IsZero() && p.Status == pod.Running && now.Sub(p.Started) >= proven {
			better = later(better, p.Started.Add(proven))
		}
	}
	for _, p := range ended {
		began := p.Started
		if began.IsZero() {
			began = p.Created
		}
		if p.Changed.Sub(began) >= proven || p.Changed.Before(better) {
			break
		}
		if failures++; failures == 1 {
			last = p
		}
	}
	return failures, last
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

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

// jobs is how many the members say they hold.
func jobs(all []member) int {
	n := 0
	for _, w := range all {
		n += w.jobs
	}
	return n
}
