package queue

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// NewID makes up a job id: a UUID of version 7, with the prefix "sync-" for
// job.Sync. A pool of random bits (uuid.EnableRandPool) would be global to every
// importer, and saves 0.2 µs of a submission that takes hundreds.
func NewID(mode job.Mode) job.ID {
	id := job.ID(uuid.Must(uuid.NewV7()).String())
	if mode == job.Sync {
		return job.SyncPrefix + id
	}
	return id
}

// Submit accepts a job: when it returns, one durable publish has put the job
// into the queue, and it is never lost. An error means that the job was not
// accepted as far as this process knows, and with a *FullError or a *SpaceError it
// was not: the endpoint's queue, the quota of the caller's key, or the storage has
// no room for it. With ErrUnavailable it may run all the same.
func (q *Queue) Submit(ctx context.Context, e endpoint.Endpoint, id job.ID, mode job.Mode, r job.Request) (*job.Job, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := q.hasSpace(); err != nil {
		return nil, err
	}
	if err := q.admit(ctx, e, int64(len(r.Input)), r.Caller); err != nil {
		return nil, err
	}
	at, rec := placeOf(e), q.newRecord(e, id, mode, r)
	if err := q.placeInput(ctx, at, rec, r.Input); err != nil {
		return nil, err
	}
	if err := q.enqueue(ctx, at, rec, 0); err != nil {
		return nil, err
	}
	j := rec.Job
	q.submitted(&j)
	return &j, nil
}

// newRecord applies the precedence of product.md 17: the job's policy, then
// the endpoint's setting.
func (q *Queue) newRecord(e endpoint.Endpoint, id job.ID, mode job.Mode, r job.Request) *record {
	now := q.Now()
	if now.Before(e.Created) { // two clocks: what is older belongs to an earlier endpoint of that id
		now = e.Created
	}
	rec := &record{
		Job: job.Job{
			ID: id, Endpoint: e.ID, Mode: mode, Class: job.Normal, Attempt: 1,
			Submitted: now, Queued: now, ExecutionTimeout: e.ExecutionTimeout, Expires: now.Add(e.TTL), Webhook: r.Webhook, Trace: r.Trace,
		},
		keep: e.Retention, lease: e.Lease, s3: r.S3Config,
	}
	rec.restoreStatus(job.InQueue)
	if mode == job.Sync {
		rec.keep = e.SyncRetention
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
// of sequence expect (0: there is none). The server removes it when the job
// expires.
func (q *Queue) enqueue(ctx context.Context, at place, r *record, expect uint64) error {
	now := q.Now()
	r.queueExpires, r.changed = r.Expires, now
	m, err := r.message(streams.JobSubject(at.endpoint, r.Class, r.ID), decision)
	if err != nil {
		return err
	}
	m.Header.Set(jetstream.MsgTTLHeader, ttlHeader(now, r.Expires))
	if _, err := q.publish(ctx, streams.Jobs(at.endpoint), m, nuid.Next(), expect); err != nil {
		return fmt.Errorf("queue job %s: %w", r.ID, err)
	}
	return nil
}
