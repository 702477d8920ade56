package queue

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/mutation"
	"flightline/shared/record"
	"flightline/streams"
)

// become is the only place that gives an attempt a new status, by the table in
// shared/job. It returns a *job.TransitionError if by is not possible.
func become(r *record.Record, by job.Trigger) error {
	next, err := r.Status.Next(by)
	if err != nil {
		return err
	}
	r.Status = next
	return nil
}

// move takes an attempt one step: it applies the trigger and change to a copy
// of from and writes it if from is still what is stored (from.Seq; 0: creates it). It is
// the one write path of records. It returns the record as written;
// bus.ErrConflict if somebody else wrote first, or the ttl has passed since it was
// decided: read and decide again.
func (q *Queue) move(ctx context.Context, at record.Location, from *record.Record, by job.Trigger, change func(*record.Record)) (*record.Record, error) {
	next := *from
	if err := become(&next, by); err != nil {
		return nil, err
	}
	now := q.Now()
	if by != job.Touch && !from.Status.Terminal() && !now.Before(from.Expires) {
		return nil, bus.ErrConflict
	}
	next.Changed = now
	if change != nil {
		change(&next)
	}
	next.RetainOnDisk = next.RetainOnDisk || next.Requeued || next.Detached
	switch {
	case !next.Status.Terminal():
	case !from.Status.Terminal():
		finishAttempt(&next, now)
	case next.EndSeq == 0:
		next.EndSeq = from.Seq
	}
	seq, err := q.write(ctx, at, &next, by, now)
	if err != nil {
		return nil, err
	}
	next.Seq, next.Server = seq, q.nc.ConnectedServerId()
	if next.Status.Terminal() && by != job.Touch {
		q.Reach(AfterTerminalWrite)
	}
	return &next, nil
}

// failLost is the change that fails a run whose worker was lost. Its progress is
// no output of a failure.
func failLost(r *record.Record, text string) {
	r.Lost++
	r.InlineOutput, r.Error = nil, text
}

// failLastLost is the change that fails an attempt whose run lost the last worker that the
// endpoint allows. msg is the queue message.
func failLastLost(r, msg *record.Record) {
	keepInput(r, msg)
	failLost(r, fmt.Sprintf("worker lost: this attempt was handed out %d times, and %d workers ended or fell silent while they ran it", r.Run, r.Lost+1))
}

// finishAttempt sets what ends with the attempt.
func finishAttempt(r *record.Record, now time.Time) {
	r.Finished, r.RetainUntil = now, now.Add(r.Retention)
	r.Deadline = time.Time{}
	r.Requeued, r.Detached, r.AckTimeout = false, false, 0
	r.ExternalPayload = r.ExternalPayload || r.InputRef != nil || r.OutputRef != nil
	if r.Status == job.Completed || r.Status == job.Cancelled {
		r.S3Config = nil // a secret that is not needed any more
		if r.Webhook == "" {
			r.Input, r.InputRef = nil, nil // no retry and no webhook will ask for it
		}
	}
	if r.Status != job.Completed && r.Status != job.Failed {
		r.InlineOutput, r.OutputRef = nil, nil
	}
	r.Output = r.InlineOutput
}

func (q *Queue) write(ctx context.Context, at record.Location, r *record.Record, by job.Trigger, now time.Time) (uint64, error) {
	kind := record.Decision
	if by == job.Touch {
		kind = record.Touch
	}
	m, err := r.Message(streams.RecordSubject(at.Partition, at.Endpoint, r.ID, r.Attempt), kind)
	if err != nil {
		return 0, err
	}
	keep := r.RemovedAfter().Add(streams.Margin)
	if mutation.ShortTTL && r.Status.Terminal() {
		keep = r.RetainUntil
	}
	m.Header.Set(jetstream.MsgTTLHeader, bus.MessageTTL(now, keep))
	if r.Status == job.InProgress {
		m.Header.Set(jetstream.ScheduleHeader, fmt.Sprintf("@every %ds", scheduleInterval(r, now)))
		m.Header.Set(jetstream.ScheduleTargetHeader, streams.DueSubject(at.Partition, at.Endpoint, r.ID, r.Attempt))
		m.Header.Set(jetstream.ScheduleTTLHeader, streams.DueTTL())
	}
	seq, err := q.bus.Publish(ctx, streams.Records(at.Partition), m, r.Seq)
	if err != nil {
		return 0, fmt.Errorf("%s job %s: %w", by, r.ID, err)
	}
	return seq, nil
}

// scheduleInterval is the period, in seconds, of the schedule that an IN_PROGRESS record
// carries: it fires after the deadline, and at least once a minute since a
// server that was killed begins to count again. A detached record has its
// holder's silence to be watched too.
func scheduleInterval(r *record.Record, now time.Time) int {
	const most = 60
	left := int(math.Ceil(r.CurrentDeadline().Sub(now).Seconds())) + 1
	if r.Detached {
		left = min(left, int(math.Ceil(r.Lease.Seconds())))
	}
	return max(1, min(left, most))
}
