package queue

import (
	"slices"
	"time"
)

// The server's clock may be set while jobs run. Deadlines are server time, so a
// step of an hour would end every run at once, or let each go on for an hour
// more. A process sees a step because the server's time no longer goes on from
// what it measured, and counts deadlines that were reckoned before it by its own
// clock, which nobody sets. A ttl is the server's affair: it moves with the step.

const (
	// minStep is what the server's clock has to move at once by to count as set.
	// Less is drift, or the difference between two servers.
	minStep = time.Second
	// stepLag is how much later than this process another may notice a step, and
	// still write times of before.
	stepLag = 4 * time.Second
	// maxSteps bounds the steps that are remembered, the last ones.
	maxSteps = 64
)

// step is a change of the server's clock.
type step struct {
	at time.Time     // what it showed after it
	by time.Duration // how far it was set, forward if positive
}

// before reports whether the server's clock showed t before the step, given that
// it shows now, or did until a later step. A clock that was set back shows a time
// twice: what it has shown again counts as after the step, so that a deadline
// comes late by the step at most, and never early.
func (s step) before(t, now time.Time) bool {
	if s.by < 0 {
		return t.After(now.Add(stepLag)) || t.Before(s.at.Add(-stepLag))
	}
	return t.Before(s.at.Add(-s.by).Add(min(stepLag, s.by/2)))
}

// stepped is how far the server's clock, which shows now, was set since it
// showed t.
func stepped(steps []step, t, now time.Time) (by time.Duration) {
	for _, s := range slices.Backward(steps) {
		if !s.before(t, now) {
			break
		}
		by += s.by
		now = s.at.Add(-s.by)
	}
	return by
}

// stepped is how far the server's clock was set since it showed t, as far as
// this process has seen it. A nil clock has seen nothing.
func (c *clock) stepped(t time.Time) time.Duration {
	if c == nil {
		return 0
	}
	a := c.anchor.Load()
	if a == nil || len(a.steps) == 0 {
		return 0
	}
	return stepped(a.steps, t, c.now())
}

// deadline is when the run is past its time, as the server's clock shows it now.
func (r *record) deadline() time.Time {
	if r.Deadline.IsZero() {
		return time.Time{}
	}
	return r.Deadline.Add(r.clock.stepped(r.Started))
}

// Overdue reports whether the run that holds the job is past its deadline.
func (r *record) Overdue(now time.Time) bool {
	held := r.Job
	held.Deadline = r.deadline()
	return held.Overdue(now)
}
