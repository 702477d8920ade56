package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// leaving is for how long a completion that is done may still be in the queue:
// longer than its removal takes, with the service and the server at work.
const leaving = 2 * time.Second

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
// became of its webhook; one that is still to be tried is as good. It
// returns job.ErrNotFound if the job is no longer kept, has not ended, has no
// webhook, or is of an earlier endpoint of that id, and ErrUnavailable.
func (q *Queue) AnnounceAgain(ctx context.Context, e endpoint.Endpoint, id job.ID) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	at := placeOf(e)
	r, err := q.latest(ctx, at, id)
	if err != nil {
		return err
	}
	if r.Webhook == "" || !r.Status.Terminal() || OfEarlier(e, &r.Job) {
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
	if replay == "" {
		err = q.queueCompletion(ctx, m, time.Time{})
	} else {
		_, err = q.queueAgain(ctx, m, time.Now().Add(leaving))
	}
	if err != nil && !errors.Is(err, errConflict) {
		return fmt.Errorf("announce job %s: %w", r.ID, err)
	}
	return nil
}

// queueCompletion puts one into the work queue, errConflict if one of the same
// attempt lies there at the time until, and until then: what was delivered or
// kept stays there for a moment after the log or the other stream has it.
func (q *Queue) queueCompletion(ctx context.Context, m *nats.Msg, until time.Time) error {
	for {
		_, err := q.publish(ctx, streams.Webhooks, m, nuid.Next(), 0)
		if !errors.Is(err, errConflict) || !time.Now().Before(until) {
			return err
		}
		select {
		case <-time.After(againAfter):
		case <-ctx.Done():
			return err
		}
	}
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
