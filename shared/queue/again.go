package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
)

// againAfter is the pause before a submission that met another is tried again.
const againAfter = 50 * time.Millisecond

// SubmitAgain is Submit for a job that somebody may have submitted under this
// id already, with the same request: if it waits in the queue, queued is true
// and that is success. The caller has made sure that nobody knows the job, for
// one that ran and was forgotten would run once more. It bears repeating.
func (q *Queue) SubmitAgain(ctx context.Context, e endpoint.Endpoint, id job.ID, mode job.Mode, r job.Request) (j *job.Job, queued bool, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for {
		j, err = q.Submit(ctx, e, id, mode, r)
		if !errors.Is(err, errConflict) {
			return j, false, err
		}
		if j, err = q.Accepted(ctx, e, id); !errors.Is(err, job.ErrNotFound) {
			return j, err == nil, err
		}
		// The other's write is in flight, and may still fail.
		select {
		case <-time.After(againAfter):
		case <-ctx.Done():
			return nil, false, fmt.Errorf("queue job %s again: %w: %w", id, ErrUnavailable, ctx.Err())
		}
	}
}
