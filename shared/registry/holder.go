package registry

import (
	"fmt"
	"slices"
	"time"

	"flightline/shared/job"
)

const (
	// unnamedTimeout is how long a worker that lives may run a job that no heartbeat
	// of it names: an HTTP worker pings every 10 s.
	unnamedTimeout = 12 * time.Second
	// silenceTimeout is how long after its last heartbeat a worker counts as gone.
	silenceTimeout = 3 * BeatEvery
)

// Holder is what memory has of the worker that a job's record names.
type Holder struct {
	// Worker is its last heartbeat, up to an hour old; the zero value without one.
	Worker Worker
	// Ago is how long ago that was, by this machine's clock.
	Ago time.Duration
	// Unknown means that memory cannot say whether the worker lives: it may be out of
	// date, or follows heartbeats for no longer than they are kept, as after an outage
	// in which they expired.
	Unknown bool
}

// Holder returns what memory has of the worker that runs the job.
func (w *Workers) Holder(j *job.Job) Holder { return w.Last(j.Endpoint, j.Worker) }

// Last returns what memory has of a worker.
func (w *Workers) Last(endpointID, id string) Holder {
	last, found, vouched := w.cache.get(workerKey(endpointID, id))
	h := Holder{Unknown: !vouched}
	if found {
		h.Worker, h.Ago = last.value, time.Since(last.received)
		h.Worker.Seen = last.written
	}
	h.Unknown = h.Unknown || h.Silent() && w.cache.age() < w.ttl
	return h
}

// CountLost returns how many of these jobs, which are IN_PROGRESS, have lost their
// worker at the time now.
func (w *Workers) CountLost(held []job.Job, now time.Time) (lost int) {
	for i := range held {
		if w.Holder(&held[i]).Lost(&held[i], now) != "" {
			lost++
		}
	}
	return lost
}

// Silent reports whether the worker counts as gone.
func (h Holder) Silent() bool {
	return !h.Unknown && (h.Worker.Seen.IsZero() || h.Ago >= silenceTimeout)
}

// Lost says why the job, which is IN_PROGRESS, has lost its worker at the time now; ""
// if it has not, or if that is not known.
func (h Holder) Lost(j *job.Job, now time.Time) string {
	names := slices.Contains(h.Worker.Running, string(j.ID))
	switch {
	case h.Unknown, names && !h.Silent():
		return ""
	case j.Execution(now) < unnamedTimeout:
		return "" // it may not have spoken since
	case h.Worker.Seen.IsZero():
		return fmt.Sprintf("worker %s sends no heartbeats", j.Worker)
	case h.Silent():
		return fmt.Sprintf("worker %s was last heard of %s ago", j.Worker, h.Ago.Round(time.Second))
	case h.Worker.Seen.Sub(j.Started) < unnamedTimeout:
		return ""
	}
	return fmt.Sprintf("worker %s lives, and its heartbeat of %s ago does not name the job", j.Worker, h.Ago.Round(time.Second))
}
