package queue

import (
	"context"
	"errors"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// Retry queues a FAILED or TIMED_OUT job again, with its input, under its own
// ttl, as the next attempt. If somebody else's retry came first, that is
// success too. It returns a *job.TransitionError in any other status, and
// job.ErrNotFound once the job expired.
//
// The attempt carries trace, the caller's trace context or "", as its Trace; the
// submission's stays with it as Origin.
func (q *Queue) Retry(ctx context.Context, e endpoint.Endpoint, id job.ID, trace string) (*job.Job, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	at, wanted := placeOf(e), 0
	for {
		r, err := q.latest(ctx, at, id)
		if err != nil {
			return nil, err
		}
		if wanted > 0 && r.Attempt >= wanted { // the attempt that this call wanted exists
			return &r.Job, q.accepted(ctx, at, r)
		}
		next, err := q.nextAttempt(r)
		if err != nil {
			return nil, err
		}
		if err := q.hasSpace(); err != nil {
			return nil, err
		}
		wanted = next.Attempt
		next.follow(trace)
		if err := q.makeRoom(ctx, at, r); err != nil {
			return nil, err
		}
		if err = q.enqueue(ctx, at, next, 0); err == nil {
			return q.inherit(ctx, at, r, next)
		}
		if !errors.Is(err, errConflict) {
			return nil, err
		}
	}
}

// inherit gives the queued attempt the ttl that the one before was given after
// it was read: whoever sets a ttl and whoever retries both look for the other
// once they have written, so that one of them sees it.
func (q *Queue) inherit(ctx context.Context, at place, r, next *record) (*job.Job, error) {
	now, err := q.readRecord(ctx, at, r.ID, r.Attempt)
	switch {
	case errors.Is(err, errNoMessage):
		return &next.Job, nil
	case err != nil:
		return nil, err
	case now.Expires.Equal(r.Expires):
		return &next.Job, nil
	}
	return q.setTTL(ctx, at, r.ID, now.Expires.Sub(r.Submitted))
}

// nextAttempt is what follows r, if a retry may.
func (q *Queue) nextAttempt(r *record) (*record, error) {
	next := *r
	if err := next.become(job.Retry); err != nil {
		return nil, err
	}
	if r.input == nil && r.inRef == nil { // its message was gone when the run was ended
		return nil, &job.TransitionError{From: r.Status, By: job.Retry}
	}
	next.Attempt++
	next.Earlier += r.Run
	next.Run, next.Lost = 0, 0
	next.Queued = q.Now()
	next.Started, next.Finished, next.Deadline, next.RetainUntil = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	next.Worker, next.holder, next.ack, next.Error = "", "", "", ""
	next.output, next.Output, next.outRef = nil, nil, nil
	next.begun, next.emitted, next.beside, next.kept = nil, false, false, false
	next.queueSeq, next.queueServer, next.seq = 0, "", 0
	return &next, nil
}

// follow makes trace the one of the attempt, unless there is none.
func (r *record) follow(trace string) {
	if trace == "" {
		return
	}
	if r.Origin == "" {
		r.Origin = r.Trace
	}
	r.Trace = trace
}

// makeRoom removes the failed attempt's queue message if it is still there. It
// is not replaced: what gives way to a newer message comes back when that one
// is gone and the server is killed (ghost.go).
func (q *Queue) makeRoom(ctx context.Context, at place, r *record) error {
	waiting, err := q.readMessage(ctx, at, r.ID)
	switch {
	case errors.Is(err, errNoMessage):
		return nil
	case err != nil:
		return err
	case waiting.Attempt > r.Attempt:
		return nil // another retry: the compare-and-set will tell
	}
	return q.remove(ctx, streams.Jobs(at.endpoint), waiting.queueSeq)
}
