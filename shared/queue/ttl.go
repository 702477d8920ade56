package queue

import (
	"context"
	"errors"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// SetTTL sets the job's ttl, counted from its submission, in any status
// (product.md 7). The same value again changes nothing; a value that is over
// already ends the job. A longer ttl moves a waiting job to the end of the
// queue, and makes the loss of a running job's worker FAILED, since the
// queue message may go before the job does. It returns job.ErrNotFound and
// ErrUnavailable.
func (q *Queue) SetTTL(ctx context.Context, e endpoint.Endpoint, id job.ID, ttl time.Duration) (*job.Job, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return q.setTTL(ctx, placeOf(e), id, ttl)
}

func (q *Queue) setTTL(ctx context.Context, at place, id job.ID, ttl time.Duration) (*job.Job, error) {
	for {
		r, err := q.latest(ctx, at, id)
		if err != nil {
			return nil, err
		}
		end := r.Submitted.Add(ttl).Truncate(time.Millisecond) // as precise as a record
		if end.Equal(r.Expires) {
			if err := q.accepted(ctx, at, r); err != nil {
				return nil, err
			}
			return q.loaded(ctx, at, r)
		}
		changed, err := q.setExpiry(ctx, at, r, end)
		if errors.Is(err, errConflict) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// A retry that read the attempt before this write may have queued the
		// next one with the old ttl; a later one looks at this write (inherit).
		if retried, err := q.retriedMeanwhile(ctx, at, r); err != nil || retried {
			if err != nil {
				return nil, err
			}
			continue
		}
		if !q.Now().Before(end) {
			return nil, job.ErrNotFound
		}
		return q.loaded(ctx, at, changed)
	}
}

func (q *Queue) retriedMeanwhile(ctx context.Context, at place, r *record) (bool, error) {
	if !retryable(r.Status) {
		return false, nil
	}
	now, err := q.newest(ctx, at, r.ID)
	if err != nil {
		return false, err
	}
	return now.Attempt > r.Attempt, nil
}

// setExpiry does it for what the job is now; errConflict if it no longer is.
func (q *Queue) setExpiry(ctx context.Context, at place, r *record, end time.Time) (*record, error) {
	switch {
	case r.Status == job.InQueue && end.After(r.queueExpires):
		return q.requeue(ctx, at, r, end)
	case r.Status == job.InQueue:
		changed, err := q.move(ctx, at, r, job.Touch, func(n *record) { n.Expires = end; n.withoutPayload() })
		if err == nil && !q.Now().Before(end) {
			q.dropMessage(ctx, at, changed.ID, changed.Attempt) // it is over now
		}
		return changed, err
	case r.Status == job.InProgress:
		changed, err := q.touchRunning(ctx, at, r, end)
		if err == nil {
			q.nudge(at, r.ID)
		}
		return changed, err
	}
	return q.touchEnded(ctx, at, r, end)
}

// withoutPayload drops what the queue message keeps.
func (r *record) withoutPayload() { r.input, r.inRef, r.s3 = nil, nil, nil }

// requeue publishes the queue message again with a longer age. The record
// says first that this is happening, and has what the message has: a worker who
// gets the old message meanwhile waits for the new one, and a change that fails
// between the two writes is finished by the next reader (finishRequeue).
func (q *Queue) requeue(ctx context.Context, at place, r *record, end time.Time) (*record, error) {
	msg, err := q.readMessage(ctx, at, r.ID)
	if errors.Is(err, errNoMessage) {
		return nil, errConflict
	}
	if err != nil {
		return nil, err
	}
	longer := *msg
	longer.Expires = end
	if longer.inRef, err = q.carry(ctx, at, &longer, streams.In, msg.inRef); err != nil {
		return nil, err
	}
	changed, err := q.move(ctx, at, r, job.Touch, func(n *record) {
		n.Expires, n.queueExpires, n.queueSeq, n.requeued = end, end, msg.queueSeq, true
		n.input, n.inRef, n.s3 = longer.input, longer.inRef, longer.s3
	})
	if err != nil {
		return nil, err
	}
	q.point(AfterRecord)
	return changed, q.finishRequeue(ctx, at, changed)
}

// finishRequeue publishes the longer queue message that the record r announces,
// unless it is in the queue already. It returns errConflict if another message
// was published at the same time, and job.ErrNotFound if the message is gone and
// r, written by an older version, does not have what it had.
func (q *Queue) finishRequeue(ctx context.Context, at place, r *record) error {
	if r.Status != job.InQueue || !r.requeued {
		return nil
	}
	again := *r
	msg, err := q.readMessage(ctx, at, r.ID)
	switch {
	case err == nil && (msg.Attempt != r.Attempt || !r.unfinished(msg.Expires)):
		return nil
	case err == nil:
		again.queueSeq = msg.queueSeq
		again.keepFor(msg)
	case !errors.Is(err, errNoMessage):
		return err
	case r.input == nil && r.inRef == nil:
		return job.ErrNotFound
	default:
		again.queueSeq = 0
	}
	again.Expires, again.requeued = r.queueExpires, false
	return q.enqueue(ctx, at, &again, again.queueSeq)
}

// unfinished reports whether a queue message that expires then is older than
// the one that r announces.
func (r *record) unfinished(expires time.Time) bool {
	return r.Status == job.InQueue && r.requeued && expires.Before(r.queueExpires)
}

// touchRunning moves the expiry of a run. A longer one detaches the run from
// its queue message, whose own age cannot be changed while it is held.
func (q *Queue) touchRunning(ctx context.Context, at place, r *record, end time.Time) (*record, error) {
	if !end.After(r.queueExpires) || r.detached {
		return q.move(ctx, at, r, job.Touch, func(n *record) { n.Expires = end })
	}
	msg, err := q.readMessage(ctx, at, r.ID)
	if errors.Is(err, errNoMessage) {
		return nil, errConflict
	}
	if err != nil {
		return nil, err
	}
	longer := *msg
	longer.Run, longer.Expires = r.Run, end
	if longer.inRef, err = q.carry(ctx, at, &longer, streams.In, msg.inRef); err != nil {
		return nil, err
	}
	return q.move(ctx, at, r, job.Touch, func(n *record) {
		n.Expires, n.detached = end, true
		n.keepFor(&longer)
	})
}

// detach lets a run go on without its queue message, which was replaced while
// it was being picked up; the replacement is removed.
func (q *Queue) detach(ctx context.Context, at place, r, msg *record) error {
	_, err := q.move(ctx, at, r, job.Touch, func(n *record) {
		n.detached = true
		n.keepFor(msg)
	})
	if err != nil {
		return err
	}
	q.dropDelivered(ctx, at, msg)
	q.nudge(at, r.ID)
	return nil
}

func (q *Queue) touchEnded(ctx context.Context, at place, r *record, end time.Time) (*record, error) {
	in, out := r.inRef, r.outRef
	if end.After(r.physical()) {
		longer := *r
		longer.Expires = end
		var err error
		in, err = q.carry(ctx, at, &longer, streams.In, r.inRef)
		if errors.Is(err, errPayload) && !retryable(r.Status) {
			in, err = nil, nil // the webhook has its copy, and it was dropped
		}
		if err != nil {
			return nil, err
		}
		if out, err = q.carry(ctx, at, &longer, streams.Out, r.outRef); err != nil {
			return nil, err
		}
	}
	return q.move(ctx, at, r, job.Touch, func(n *record) {
		n.Expires, n.inRef, n.outRef = end, in, out
		n.kept = true // without it the end as it was written first could come back
	})
}
