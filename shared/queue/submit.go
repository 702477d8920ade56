package queue

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/shared/retry"
	"flightline/streams"
)

// NewID makes up a job id: a UUID of version 7, with the prefix "sync-" for
// job.Sync. A pool of random bits (uuid.EnableRandPool) would be global to every
// importer, and saves 0.2 µs of a submission that takes hundreds.
func NewID(mode job.Mode) job.ID { return newID(mode, time.Now()) }

// NewID is the function NewID by the server's clock, as the times of what happens to the
// job: what knows the id alone looks for the job from then on.
func (q *Queue) NewID(mode job.Mode) job.ID { return newID(mode, q.Now()) }

func newID(mode job.Mode, at time.Time) job.ID {
	id := uuid.Must(uuid.NewV7())
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(max(0, at.UnixMilli())))
	copy(id[:6], ms[2:])
	if mode == job.Sync {
		return job.SyncPrefix + job.ID(id.String())
	}
	return job.ID(id.String())
}

// Submit accepts a job: when it returns, one durable publish has put the job
// into the queue, and it is never lost. An error means that the job was not
// accepted as far as this process knows, and with a *FullError or a *SpaceError it
// was not: the endpoint's queue, the quota of the caller's key, or the storage has
// no room for it. With bus.ErrUnavailable it may run all the same. It takes 4.5 s at most,
// and ExtraTime more for a large input.
func (q *Queue) Submit(ctx context.Context, e endpoint.Endpoint, id job.ID, mode job.Mode, r job.Request) (*job.Job, error) {
	ctx, cancel := bus.BoundedFor(ctx, ExtraTime(len(r.Input)))
	defer cancel()
	if err := q.cfg.HasSpace(); err != nil {
		return nil, err
	}
	if err := q.usage.admit(ctx, e, int64(len(r.Input)), r.Caller); err != nil {
		return nil, err
	}
	at, rec := record.LocationOf(e), newRecord(e, id, mode, r, q.Now())
	if err := q.payloads.place(ctx, at, rec, r.Input); err != nil {
		return nil, err
	}
	within, cancel := bus.Bounded(ctx)
	defer cancel()
	if err := q.enqueue(within, at, rec, 0); err != nil {
		return nil, err
	}
	j := rec.Job
	q.cfg.Observer.submitted(&j)
	return &j, nil
}

// newRecord returns the record of a job that is submitted now: the job's policy comes before the
// endpoint's setting (docs/design/product.md#precedence).
func newRecord(e endpoint.Endpoint, id job.ID, mode job.Mode, r job.Request, now time.Time) *record.Record {
	if now.Before(e.Created) { // two clocks: what is older belongs to an earlier endpoint of that id
		now = e.Created
	}
	rec := &record.Record{
		Job: job.Job{
			ID: id, Endpoint: e.ID, Mode: mode, Class: job.Normal, Attempt: 1,
			Submitted: now, Queued: now, ExecutionTimeout: e.ExecutionTimeout, Expires: now.Add(e.TTL), Webhook: r.Webhook, Trace: r.Trace,
		},
		Retention: e.Retention, Lease: e.Lease, S3Config: r.S3Config,
	}
	rec.Status = job.InQueue
	if mode == job.Sync {
		rec.Retention = e.SyncRetention
	}
	if r.Policy.ExecutionTimeout > 0 {
		rec.ExecutionTimeout = r.Policy.ExecutionTimeout
	}
	if r.Policy.TTL > 0 {
		rec.Expires = now.Add(r.Policy.TTL)
	}
	if r.Policy.LowPriority {
		rec.Class = job.LowPriority
	}
	return rec
}

// enqueue publishes r as the queue message of its attempt, replacing the one
// of sequence expect (0: none), and sets its sequence. The server removes it when
// the job expires.
func (q *Queue) enqueue(ctx context.Context, at record.Location, r *record.Record, expect uint64) error {
	now := q.Now()
	r.QueueExpires, r.Changed = r.Expires, now
	m, err := r.Message(streams.JobSubject(at.Endpoint, r.Class, r.ID), record.Decision)
	if err != nil {
		return err
	}
	m.Header.Set(jetstream.MsgTTLHeader, bus.MessageTTL(now, r.Expires))
	if r.QueueSeq, err = q.bus.Publish(ctx, streams.Jobs(at.Endpoint), m, expect); err != nil {
		return fmt.Errorf("queue job %s: %w", r.ID, err)
	}
	return nil
}

// submitRetryDelay is the pause before a submission that met another is tried again.
const submitRetryDelay = 50 * time.Millisecond

// SubmitIdempotent is Submit for a job that somebody may have submitted under this
// id already, with the same request: if it waits in the queue, queued is true
// and that is success. The caller has made sure that no client knows the job: a
// job that ran and was expired would run once more. It may be repeated.
func (q *Queue) SubmitIdempotent(ctx context.Context, e endpoint.Endpoint, id job.ID, mode job.Mode, r job.Request) (j *job.Job, queued bool, err error) {
	ctx, cancel := bus.BoundedFor(ctx, ExtraTime(len(r.Input)))
	defer cancel()
	for {
		j, err = q.Submit(ctx, e, id, mode, r)
		if !errors.Is(err, bus.ErrConflict) {
			return j, false, err
		}
		if j, err = q.DurableStatus(ctx, e, id); !errors.Is(err, job.ErrNotFound) {
			return j, err == nil, err
		}
		// The other's write is in flight, and may still fail.
		if err := retry.Sleep(ctx, submitRetryDelay); err != nil {
			return nil, false, fmt.Errorf("queue job %s again: %w: %w", id, bus.ErrUnavailable, err)
		}
	}
}
