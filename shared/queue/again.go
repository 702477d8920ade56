package queue

import (
	"context"
	"errors"

	"flightline/shared/endpoint"
	"flightline/shared/job"
)

// SubmitAgain is Submit for a job that somebody may have submitted under this
// id already, with the same request: if it waits in the queue, queued is true
// and that is success. The caller has made sure that nobody knows the job, for
// one that ran and was forgotten would run once more. It bears repeating.
func (q *Queue) SubmitAgain(ctx context.Context, e endpoint.Endpoint, id job.ID, mode job.Mode, r job.Request) (j *job.Job, queued bool, err error) {
	j, err = q.Submit(ctx, e, id, mode, r)
	if !errors.Is(err, errConflict) {
		return j, false, err
	}
	j, err = q.Status(ctx, e, id)
	return j, err == nil, err
}
