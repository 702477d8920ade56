package recorder

import (
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/stats"
)

// eventsOf lists the events of the attempt up to the change, in order:
// queued, the start of each run, the end. A later change of the attempt gives
// the same events, and those that came since.
func eventsOf(c queue.RecordChange) []events.Event {
	j := c.Job
	base := events.Event{
		Endpoint: j.Endpoint, Job: j.ID, Attempt: j.Attempt, Mode: j.Mode, Class: j.Class,
		Submitted: j.Submitted, Queued: j.Queued, Expires: j.Expires,
	}
	queued := base
	queued.Kind, queued.At, queued.Status = events.Queued, j.Queued, job.InQueue
	queued.Retries = retries(j, 0)
	list := make([]events.Event, 0, j.Run+2)
	list = append(list, queued)
	for run := 1; run <= j.Run; run++ {
		e := base
		e.Kind, e.Run, e.Status = events.Started, run, job.InProgress
		e.At, e.Retries = list[len(list)-1].At, retries(j, run)
		if run <= len(c.Starts) && !c.Starts[run-1].IsZero() {
			e.At, e.Started = c.Starts[run-1], c.Starts[run-1]
		}
		if run == j.Run {
			e.Worker, e.Lost = j.Worker, j.Lost
		}
		list = append(list, e)
	}
	if !ended(c) {
		return list
	}
	end := base
	end.Kind, end.Run, end.At, end.Status = events.KindOf(j.Status), j.Run, j.Finished, j.Status
	end.Worker, end.Retries, end.Lost, end.Error = j.Worker, retries(j, j.Run), j.Lost, j.Error
	end.Cause = stats.Cause(j.Error)
	end.Started, end.Finished, end.RetainUntil = j.Started, j.Finished, j.RetainUntil
	return append(list, end)
}

// retries is Job.Retries as it was in the run.
func retries(j job.Job, run int) int {
	j.Run = run
	return j.Retries()
}

// ended reports whether the change shows an end that a client may have seen. An end
// that got to the disk only after the job had expired never was one (the
// server removes a message up to a quarter of a second late). What touches a
// record found its job unexpired.
func ended(c queue.RecordChange) bool {
	return c.Job.Status.Terminal() && (c.Touch || c.Written.Before(c.Job.Expires))
}
