package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nuid"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// Announce queues the end of an attempt for its webhook, with the input and
// the output, or copies of its own if they lie beside the record: delivery may
// take longer than the retention. It does nothing for an attempt without a
// webhook, one that has not ended, and one that was announced and not yet
// delivered. It returns ErrUnavailable.
func (q *Queue) Announce(ctx context.Context, f Fact) error {
	if f.Job.Webhook == "" || !f.Job.Status.Terminal() {
		return nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	at := place{f.Job.Endpoint, f.Partition}
	r, err := q.readRecord(ctx, at, f.Job.ID, f.Job.Attempt)
	if errors.Is(err, errNoMessage) {
		return nil // only what was announced is forgotten, or the ttl ended it
	}
	if err != nil {
		return err
	}
	return q.announce(ctx, at, r, "")
}

// AnnounceAgain queues the end of a job's latest attempt once more, whatever
// became of its webhook. It returns job.ErrNotFound if the job is no longer
// kept, has not ended, or has no webhook, and ErrUnavailable.
func (q *Queue) AnnounceAgain(ctx context.Context, e endpoint.Endpoint, id job.ID) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	at := placeOf(e)
	r, err := q.latest(ctx, at, id)
	if err != nil {
		return err
	}
	if r.Webhook == "" || !r.Status.Terminal() {
		return job.ErrNotFound
	}
	return q.announce(ctx, at, r, nuid.Next())
}

// announce writes the message; replay is "" the first time.
func (q *Queue) announce(ctx context.Context, at place, r *record, replay string) error {
	if err := q.keepPayloads(ctx, at, r); err != nil {
		return fmt.Errorf("announce job %s: %w", r.ID, err)
	}
	r.s3 = nil // a secret of the worker's
	m, err := r.message(streams.WebhookSubject(at.endpoint, r.ID, r.Attempt), decision)
	if err != nil {
		return err
	}
	shorten(m, r)
	if replay != "" {
		m.Header.Set(replayHeader, replay)
	}
	if _, err = q.publish(ctx, streams.Webhooks, m, nuid.Next(), 0); err != nil && !errors.Is(err, errConflict) {
		return fmt.Errorf("announce job %s: %w", r.ID, err)
	}
	return nil
}

// keepPayloads replaces r's references by those of copies.
func (q *Queue) keepPayloads(ctx context.Context, at place, r *record) error {
	until := q.Now().Add(streams.WebhooksAge)
	for side, ref := range map[streams.Side]**payloadRef{streams.In: &r.inRef, streams.Out: &r.outRef} {
		if *ref == nil {
			continue
		}
		data, err := q.loadPayload(ctx, at, *ref)
		if errors.Is(err, errPayload) && side == streams.In && !retryable(r.Status) {
			*ref = nil // it was announced before, and the input dropped since
			continue
		}
		if err != nil {
			return err
		}
		subject := streams.KeptSubject(at.partition, at.endpoint, r.ID, r.Attempt, side, nuid.Next())
		if *ref, err = q.storeParts(ctx, at, subject, data, until); err != nil {
			return err
		}
	}
	return nil
}
