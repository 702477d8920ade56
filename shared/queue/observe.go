package queue

import (
	"errors"

	"flightline/shared/job"
)

// Observer hears what this process did, in the goroutine that did it: its
// functions must be quick and safe for concurrent use. One that is nil is not
// called.
type Observer struct {
	// Submitted: a job was accepted.
	Submitted func(endpoint string, mode job.Mode)
	// Stale: the outcome of a run came when the run no longer held its job, and
	// was dropped.
	Stale func(endpoint string)
	// Unanswered: JetStream did not answer a request.
	Unanswered func()
	// Unwritten: a write to the stream was not acknowledged.
	Unwritten func(stream string)
}

func (q *Queue) submitted(j *job.Job) {
	if q.cfg.Observer.Submitted != nil {
		q.cfg.Observer.Submitted(j.Endpoint, j.Mode)
	}
}

func (q *Queue) unanswered() {
	if q.cfg.Observer.Unanswered != nil {
		q.cfg.Observer.Unanswered()
	}
}

func (q *Queue) unwritten(stream string) {
	if q.cfg.Observer.Unwritten != nil {
		q.cfg.Observer.Unwritten(stream)
	}
}

// judged tells the observer what became of a worker's outcome.
func (l *Lease) judged(j *job.Job, err error) (*job.Job, error) {
	if err != nil && errors.Is(err, ErrLost) && l.t.q.cfg.Observer.Stale != nil {
		l.t.q.cfg.Observer.Stale(l.t.at.endpoint)
	}
	return j, err
}
