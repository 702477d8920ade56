package queue

import (
	"cmp"
	"context"
	"errors"
	"time"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

// Retry queues a FAILED or TIMED_OUT job again, with its input, under its own
// ttl, as the next attempt. A job that waits after a retry is returned as it is: the
// caller may repeat a retry that had no answer. It returns a *job.TransitionError in
// any other status, and job.ErrNotFound once the job expired.
//
// The attempt carries trace, the caller's trace context or "", as its Trace; the
// submission's stays with it as Origin.
func (q *Queue) Retry(ctx context.Context, e endpoint.Endpoint, id job.ID, trace string) (*job.Job, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	at, wanted := record.LocationOf(e), 0
	for {
		r, err := q.current(ctx, at, id)
		if err != nil {
			return nil, err
		}
		waits := r.Attempt > 1 && r.Status == job.InQueue
		if waits || wanted > 0 && r.Attempt >= wanted { // the attempt that this call wanted exists
			return &r.Job, q.read.waitJobDurable(ctx, at, r)
		}
		next, err := nextAttempt(r, q.Now())
		if err != nil {
			return nil, err
		}
		// The message that would run the job again is about to go.
		if err := q.read.waitRecordDurable(ctx, at, r); err != nil {
			return nil, err
		}
		if err := q.cfg.HasSpace(); err != nil {
			return nil, err
		}
		wanted = next.Attempt
		followTrace(next, trace)
		if err := q.makeRoom(ctx, at, r); err != nil {
			return nil, err
		}
		if err = q.enqueue(ctx, at, next, 0); err == nil {
			return q.inherit(ctx, at, r, next)
		}
		if !errors.Is(err, bus.ErrConflict) {
			return nil, err
		}
	}
}

// inherit gives the queued attempt the ttl that the one before was given after
// it was read: a change of the ttl and a retry both look for the other
// after they have written, so that one of them sees it.
func (q *Queue) inherit(ctx context.Context, at record.Location, r, next *record.Record) (*job.Job, error) {
	now, err := q.read.record(ctx, at, r.ID, r.Attempt)
	switch {
	case errors.Is(err, bus.ErrNoMessage):
		return &next.Job, nil
	case err != nil:
		return nil, err
	case now.Expires.Equal(r.Expires):
		return &next.Job, nil
	}
	return ttlChange{q: q, at: at}.set(ctx, r.ID, now.Expires.Sub(r.Submitted))
}

// nextAttempt is what follows r, if a retry may.
func nextAttempt(r *record.Record, now time.Time) (*record.Record, error) {
	next := *r
	if err := become(&next, job.Retry); err != nil {
		return nil, err
	}
	if r.Input == nil && r.InputRef == nil { // its message was gone when the run was ended
		return nil, &job.TransitionError{From: r.Status, By: job.Retry}
	}
	next.Attempt++
	next.Earlier += r.Run
	next.Run, next.Lost, next.Undelivered, next.EndSeq = 0, 0, 0, 0
	next.Queued = now
	next.Started, next.Finished, next.Deadline, next.RetainUntil = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	next.Worker, next.Holder, next.AckSubject, next.Error = "", "", "", ""
	next.InlineOutput, next.Output, next.OutputRef = nil, nil, nil
	next.StartTimes, next.Emitted, next.ExternalPayload, next.RetainOnDisk = nil, false, false, false
	next.QueueSeq, next.QueueServer, next.Seq = 0, "", 0
	return &next, nil
}

// followTrace makes trace that of the attempt, unless it is empty.
func followTrace(r *record.Record, trace string) {
	if trace == "" {
		return
	}
	r.Origin = cmp.Or(r.Origin, r.Trace)
	r.Trace = trace
}

// makeRoom removes the failed attempt's queue message if it is still there. It
// is not replaced: what gives way to a newer message comes back when that one
// is gone and the server is killed (read.go).
func (q *Queue) makeRoom(ctx context.Context, at record.Location, r *record.Record) error {
	waiting, err := q.read.message(ctx, at, r.ID)
	switch {
	case errors.Is(err, bus.ErrNoMessage):
		return nil
	case err != nil:
		return err
	case waiting.Attempt > r.Attempt:
		return nil // another retry: the compare-and-set decides
	}
	return q.bus.Remove(ctx, streams.Jobs(at.Endpoint), waiting.QueueSeq)
}
