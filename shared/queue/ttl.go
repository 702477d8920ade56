package queue

import (
	"context"
	"errors"
	"time"

	"flightline/shared/bus"
	"flightline/shared/chunks"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

// SetTTL sets the job's ttl, counted from its submission, in any status
// (docs/design/product.md#ttl). The same value again changes nothing; a value that is over
// already ends the job. A longer ttl moves a waiting job to the end of the
// queue, and makes the loss of a running job's worker FAILED, since the
// queue message may go before the job does. It returns job.ErrNotFound and
// bus.ErrUnavailable.
func (q *Queue) SetTTL(ctx context.Context, e endpoint.Endpoint, id job.ID, ttl time.Duration) (*job.Job, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	return ttlChange{q: q, at: record.LocationOf(e)}.set(ctx, id, ttl)
}

// ttlChange is a change of a job's ttl. The job may end, or be retried, meanwhile.
type ttlChange struct {
	q   *Queue
	at  record.Location
	end time.Time // the new expiry
}

func (c ttlChange) set(ctx context.Context, id job.ID, ttl time.Duration) (*job.Job, error) {
	for {
		r, err := c.q.current(ctx, c.at, id)
		if err != nil {
			return nil, err
		}
		c.end = r.Submitted.Add(ttl).Truncate(time.Millisecond) // as precise as a record
		if c.end.Equal(r.Expires) {
			if err := c.q.read.waitJobDurable(ctx, c.at, r); err != nil {
				return nil, err
			}
			return c.q.loaded(ctx, c.at, r)
		}
		changed, err := c.apply(ctx, r)
		if errors.Is(err, bus.ErrConflict) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// A retry that read the attempt before this write may have queued the
		// next one with the old ttl; a later one looks at this write (inherit).
		if retried, err := c.retriedMeanwhile(ctx, r); err != nil || retried {
			if err != nil {
				return nil, err
			}
			continue
		}
		if !c.q.Now().Before(c.end) {
			return nil, job.ErrNotFound
		}
		return c.q.loaded(ctx, c.at, changed)
	}
}

func (c ttlChange) retriedMeanwhile(ctx context.Context, r *record.Record) (bool, error) {
	if !r.Status.Retryable() {
		return false, nil
	}
	now, err := c.q.read.raw(ctx, c.at, r.ID)
	if err != nil {
		return false, err
	}
	return now.Attempt > r.Attempt, nil
}

// apply changes the expiry of what the job is now. It returns bus.ErrConflict if it
// no longer is.
func (c ttlChange) apply(ctx context.Context, r *record.Record) (*record.Record, error) {
	if c.end.After(r.Expires) {
		if err := chunks.KeepCursor(ctx, c.q.bus, &r.Job, c.end); err != nil {
			return nil, err
		}
	}
	switch {
	case r.Status == job.InQueue && c.end.After(r.QueueExpires):
		return c.requeue(ctx, r)
	case r.Status == job.InQueue:
		changed, err := c.q.move(ctx, c.at, r, job.Touch, func(n *record.Record) { n.Expires = c.end; dropPayload(n) })
		if err == nil && !c.q.Now().Before(c.end) {
			c.q.dropMessage(ctx, c.at, changed.ID, changed.Attempt) // it is over now
		}
		return changed, err
	case r.Status == job.InProgress:
		changed, err := c.applyRunning(ctx, r)
		if err == nil {
			c.q.nudge(c.at, r.ID)
		}
		return changed, err
	}
	return c.applyEnded(ctx, r)
}

// dropPayload drops what the queue message keeps.
func dropPayload(r *record.Record) { r.Input, r.InputRef, r.S3Config = nil, nil, nil }

// requeue publishes the queue message again with a longer age. The record
// says first that this is happening, and has what the message has: a worker who
// gets the old message meanwhile waits for the new one, and a change that fails
// between the two writes is finished by the next reader (finishRequeue).
func (c ttlChange) requeue(ctx context.Context, r *record.Record) (*record.Record, error) {
	longer, err := c.longerMessage(ctx, r)
	if err != nil {
		return nil, err
	}
	changed, err := c.q.move(ctx, c.at, r, job.Touch, func(n *record.Record) {
		n.Expires, n.QueueExpires, n.QueueSeq, n.Requeued = c.end, c.end, longer.QueueSeq, true
		n.Input, n.InputRef, n.S3Config = longer.Input, longer.InputRef, longer.S3Config
	})
	if err != nil {
		return nil, err
	}
	c.q.Reach(AfterRecord)
	return changed, c.q.finishRequeue(ctx, c.at, changed)
}

// finishRequeue publishes the longer queue message that the record r announces,
// unless it is in the queue already. It returns bus.ErrConflict if another message
// was published at the same time, and job.ErrNotFound if the message is gone and r does
// not have its input.
func (q *Queue) finishRequeue(ctx context.Context, at record.Location, r *record.Record) error {
	if r.Status != job.InQueue || !r.Requeued {
		return nil
	}
	again := *r
	msg, err := q.read.message(ctx, at, r.ID)
	switch {
	case err == nil && (msg.Attempt != r.Attempt || !requeueUnfinished(r, msg.Expires)):
		return nil
	case err == nil:
		again.QueueSeq = msg.QueueSeq
		keepInput(&again, msg)
	case !errors.Is(err, bus.ErrNoMessage):
		return err
	case r.Input == nil && r.InputRef == nil:
		return job.ErrNotFound
	default:
		again.QueueSeq = 0
	}
	again.Expires, again.Requeued = r.QueueExpires, false
	return q.enqueue(ctx, at, &again, again.QueueSeq)
}

// requeueUnfinished reports whether a queue message that expires then is older than
// the one that r announces.
func requeueUnfinished(r *record.Record, expires time.Time) bool {
	return r.Status == job.InQueue && r.Requeued && expires.Before(r.QueueExpires)
}

// applyRunning moves the expiry of a run. A longer one detaches the run from
// its queue message, whose own age cannot be changed while it is held.
func (c ttlChange) applyRunning(ctx context.Context, r *record.Record) (*record.Record, error) {
	if !c.end.After(r.QueueExpires) || r.Detached {
		return c.q.move(ctx, c.at, r, job.Touch, func(n *record.Record) { n.Expires = c.end })
	}
	longer, err := c.longerMessage(ctx, r)
	if err != nil {
		return nil, err
	}
	return c.q.move(ctx, c.at, r, job.Touch, func(n *record.Record) {
		n.Expires, n.Detached = c.end, true
		keepInput(n, longer)
	})
}

// longerMessage is the queue message of r with the new expiry, and an input beside it that
// lives as long. It returns bus.ErrConflict if the message is gone.
func (c ttlChange) longerMessage(ctx context.Context, r *record.Record) (*record.Record, error) {
	msg, err := c.q.read.message(ctx, c.at, r.ID)
	if errors.Is(err, bus.ErrNoMessage) {
		return nil, bus.ErrConflict
	}
	if err != nil {
		return nil, err
	}
	msg.Run, msg.Expires = r.Run, c.end
	msg.InputRef, err = c.q.payloads.carry(ctx, c.at, msg, streams.In, msg.InputRef)
	return msg, err
}

// detach lets a run go on without its queue message, which was replaced while
// it was being picked up; the replacement is removed.
func (q *Queue) detach(ctx context.Context, at record.Location, r, msg *record.Record) error {
	_, err := q.move(ctx, at, r, job.Touch, func(n *record.Record) {
		n.Detached = true
		keepInput(n, msg)
	})
	if err != nil {
		return err
	}
	q.dropDelivered(ctx, at, msg)
	q.nudge(at, r.ID)
	return nil
}

func (c ttlChange) applyEnded(ctx context.Context, r *record.Record) (*record.Record, error) {
	in, out := r.InputRef, r.OutputRef
	if c.end.After(r.RemovedAfter()) {
		longer := *r
		longer.Expires = c.end
		var err error
		in, err = c.q.payloads.carry(ctx, c.at, &longer, streams.In, r.InputRef)
		if errors.Is(err, record.ErrPayloadGone) && !r.Status.Retryable() {
			in, err = nil, nil // the webhook has its copy, and it was dropped
		}
		if err != nil {
			return nil, err
		}
		if out, err = c.q.payloads.carry(ctx, c.at, &longer, streams.Out, r.OutputRef); err != nil {
			return nil, err
		}
	}
	return c.q.move(ctx, c.at, r, job.Touch, func(n *record.Record) {
		n.Expires, n.InputRef, n.OutputRef = c.end, in, out
		n.RetainOnDisk = true // without it the end as it was written first could come back
	})
}

// carryOutput stores the output of a run that has ended once more if the ttl was made longer
// since it was stored until then.
func (l *Lease) carryOutput(ctx context.Context, until time.Time) {
	q, longer := l.consumer.q, *l.rec
	if longer.Expires = longer.RemovedAfter(); longer.OutputRef == nil || !longer.Expires.After(until) {
		return
	}
	ctx, cancel := bus.BoundedFor(ctx, 2*ExtraTime(longer.OutputRef.Size)) // it is read, too
	defer cancel()
	out, err := q.payloads.carry(ctx, l.consumer.at, &longer, streams.Out, longer.OutputRef)
	if err == nil {
		var r *record.Record
		if r, err = q.move(ctx, l.consumer.at, l.rec, job.Touch, func(n *record.Record) { n.OutputRef, n.RetainOnDisk = out, true }); err == nil {
			l.rec = r
		}
	}
	if err != nil && !errors.Is(err, bus.ErrConflict) {
		q.log.WarnContext(ctx, "output kept for the job's earlier ttl only", "job", l.Job.ID, "endpoint", l.Job.Endpoint, "until", until, "err", err)
	}
}
