package queue

import (
	"context"
	"errors"
	"time"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
)

// Cancel ends a job that waits or runs; a running handler learns of it at once. A
// job that is CANCELLED already is returned as it is; if it ended
// otherwise Cancel returns a *job.TransitionError. Others: job.ErrNotFound,
// bus.ErrUnavailable.
func (q *Queue) Cancel(ctx context.Context, e endpoint.Endpoint, id job.ID) (*job.Job, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	at := record.LocationOf(e)
	for {
		r, err := q.current(ctx, at, id)
		if err != nil {
			return nil, err
		}
		if err := q.read.waitRecordDurable(ctx, at, r); err != nil {
			return nil, err
		}
		if r.Status == job.Cancelled {
			q.dropMessage(ctx, at, id, r.Attempt) // an earlier call whose answer was lost left it
			return &r.Job, nil
		}
		ended, err := q.cancel(ctx, at, r)
		if errors.Is(err, bus.ErrConflict) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &ended.Job, nil
	}
}

// cancel writes the record, then nudges the holder and removes the message. If
// the record cannot be written because somebody else did, bus.ErrConflict.
func (q *Queue) cancel(ctx context.Context, at record.Location, r *record.Record) (*record.Record, error) {
	msg := r
	if r.Seq != 0 && r.Webhook != "" { // its webhook shows the input, which the queue message has
		waiting, err := q.read.message(ctx, at, r.ID)
		switch {
		case err == nil && waiting.Attempt == r.Attempt:
			msg = waiting
		case errors.Is(err, bus.ErrUnavailable):
			return nil, err
		}
	}
	ended, err := q.move(ctx, at, r, job.Cancel, func(n *record.Record) {
		keepInput(n, msg)
		if r.Status == job.InQueue { // its last run, if it had one, was given back
			rememberStart(n, n.Started)
			n.Started = time.Time{}
		}
	})
	if err != nil {
		return nil, err
	}
	if r.Status == job.InProgress {
		q.nudge(at, r.ID)
	}
	if r.Seq == 0 && r.Server == q.nc.ConnectedServerId() { // r is the queue message
		q.deleteMessage(ctx, at, r.QueueSeq)
	} else {
		q.dropMessage(ctx, at, ended.ID, ended.Attempt)
	}
	return ended, nil
}
