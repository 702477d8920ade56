package queue

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// Nudged calls each for every job of the endpoint whose record somebody else
// than its holder wrote while it was held, one after the other, until stop is
// called. It may miss some. Meanwhile it answers, for the jobs that Keep was
// called for within their lease, that their worker lives. It returns
// ErrUnavailable.
func (q *Queue) Nudged(e endpoint.Endpoint, each func(job.ID)) (stop func(), err error) {
	sub, err := q.nc.Subscribe(streams.Nudges(e.ID), func(m *nats.Msg) {
		id := streams.JobOf(m.Subject)
		if !isAsk(m) {
			each(id)
		} else if r, ok := q.kept.find(id); ok {
			q.answer(e.ID, id, holderAnswer{Attempt: r.attempt, Run: r.run})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("watch the jobs of %s: %w: %w", e.ID, ErrUnavailable, err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

// Nudge tells whoever holds the job, or speaks for its worker, to look at its
// record.
func (q *Queue) Nudge(e endpoint.Endpoint, id job.ID) { q.nudge(placeOf(e), id) }
