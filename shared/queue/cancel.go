package queue

import (
	"context"
	"errors"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// Cancel ends a job that waits or runs; a running handler is told at once. A
// job that is CANCELLED already is returned as it is; for one that ended
// otherwise it returns a *job.TransitionError. Others: job.ErrNotFound,
// ErrUnavailable.
func (q *Queue) Cancel(ctx context.Context, e endpoint.Endpoint, id job.ID) (*job.Job, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	at := placeOf(e)
	for {
		r, err := q.latest(ctx, at, id)
		if err != nil {
			return nil, err
		}
		if r.Status == job.Cancelled {
			return &r.Job, q.seen(ctx, at, r)
		}
		ended, err := q.cancel(ctx, at, r)
		if errors.Is(err, errConflict) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &ended.Job, nil
	}
}

// cancel writes the record, then tells the holder and removes the message. If
// the record cannot be written because somebody else did, errConflict.
func (q *Queue) cancel(ctx context.Context, at place, r *record) (*record, error) {
	ended, err := q.move(ctx, at, r, job.Cancel, nil)
	if err != nil {
		return nil, err
	}
	if r.Status == job.InProgress {
		q.nudge(at, r.ID)
	}
	if r.seq == 0 && r.server == q.nc.ConnectedServerId() { // r is the queue message
		q.deleteSeq(ctx, streams.Jobs(at.endpoint), r.queueSeq)
	} else {
		q.dropMessage(ctx, at, ended.ID, ended.Attempt)
	}
	return ended, nil
}
