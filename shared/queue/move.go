package queue

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"flightline/shared/job"
	"flightline/streams"
)

// become is the only place that gives an attempt a new status, by the table in
// shared/job. It returns a *job.TransitionError if by is not possible.
func (r *record) become(by job.Trigger) error {
	next, err := r.Status.Next(by)
	if err != nil {
		return err
	}
	r.restoreStatus(next)
	return nil
}

// restoreStatus sets the status that was stored, or that the table led to.
func (r *record) restoreStatus(s job.Status) { r.Status = s }

// move takes an attempt one step: it applies the trigger and change to a copy
// of from and writes it where from still lies (from.seq; 0: creates it). It is
// the one write path of records. It returns the record as written;
// errConflict if somebody else wrote first: read and decide again.
func (q *Queue) move(ctx context.Context, at place, from *record, by job.Trigger, change func(*record)) (*record, error) {
	next := *from
	if err := next.become(by); err != nil {
		return nil, err
	}
	now := q.Now()
	next.changed = now
	if change != nil {
		change(&next)
	}
	next.kept = next.kept || next.requeued || next.detached
	if next.Status.Terminal() && !from.Status.Terminal() {
		next.finish(now)
	}
	seq, err := q.write(ctx, at, &next, by, now)
	if err != nil {
		return nil, err
	}
	next.seq, next.server = seq, q.nc.ConnectedServerId()
	if next.Status.Terminal() && by != job.Touch {
		q.point(AfterTerminalWrite)
	}
	return &next, nil
}

// finish sets what ends with the attempt.
func (r *record) finish(now time.Time) {
	r.Finished, r.RetainUntil = now, now.Add(r.keep)
	r.Deadline = time.Time{}
	r.requeued, r.detached, r.confirm = false, false, 0
	r.beside = r.beside || r.inRef != nil || r.outRef != nil
	if r.Status == job.Completed || r.Status == job.Cancelled {
		r.s3 = nil // a secret that nobody needs any more
		if r.Webhook == "" {
			r.input, r.inRef = nil, nil // no retry and no webhook will ask for it
		}
	}
	if r.Status != job.Completed {
		r.output, r.outRef = nil, nil
	}
	r.Output = r.output
}

func (q *Queue) write(ctx context.Context, at place, r *record, by job.Trigger, now time.Time) (uint64, error) {
	kind := decision
	if by == job.Touch {
		kind = touch
	}
	m, err := r.message(streams.RecordSubject(at.partition, at.endpoint, r.ID, r.Attempt), kind)
	if err != nil {
		return 0, err
	}
	keep := r.physical().Add(streams.Margin)
	if plantShortTTL && r.Status.Terminal() {
		keep = r.RetainUntil
	}
	m.Header.Set(jetstream.MsgTTLHeader, ttlHeader(now, keep))
	if r.Status == job.InProgress {
		m.Header.Set(jetstream.ScheduleHeader, fmt.Sprintf("@every %ds", r.alarm(now)))
		m.Header.Set(jetstream.ScheduleTargetHeader, streams.DueSubject(at.partition, at.endpoint, r.ID, r.Attempt))
		m.Header.Set(jetstream.ScheduleTTLHeader, streams.DueTTL())
	}
	seq, err := q.publish(ctx, streams.Records(at.partition), m, nuid.Next(), r.seq)
	if err != nil {
		return 0, fmt.Errorf("%s job %s: %w", by, r.ID, err)
	}
	return seq, nil
}

// alarm is the period, in seconds, of the schedule that an IN_PROGRESS record
// carries: it fires after the deadline, and at least once a minute since a
// server that was killed begins to count anew. A detached record has its
// holder's silence to be watched too.
func (r *record) alarm(now time.Time) int {
	const most = 60
	left := int(math.Ceil(r.deadline().Sub(now).Seconds())) + 1
	if r.detached {
		left = min(left, int(math.Ceil(r.lease.Seconds())))
	}
	return max(1, min(left, most))
}
