package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// DeleteEndpoint cancels every job that waits or runs, so that its caller
// learns what happened, and removes the endpoint's queue. Nobody may submit any
// more when it is called. It may be repeated.
func (q *Queue) DeleteEndpoint(ctx context.Context, e endpoint.Endpoint) error {
	if _, err := q.js.Stream(ctx, streams.Jobs(e.ID)); err != nil {
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return fmt.Errorf("delete queue of %s: %w", e.ID, foreign(err))
	}
	if _, err := q.Purge(ctx, e); err != nil {
		return err
	}
	if err := q.cancelRunning(ctx, e); err != nil {
		return err
	}
	if err := q.js.DeleteStream(ctx, streams.Jobs(e.ID)); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("delete queue of %s: %w", e.ID, foreign(err))
	}
	return nil
}

// DropWebhooks removes what is kept of an endpoint's webhooks: those that nobody
// tries to deliver, the copies of their payloads, and the log of deliveries. It
// may be repeated, and returns ErrUnavailable.
func (q *Queue) DropWebhooks(ctx context.Context, e endpoint.Endpoint) error {
	for _, of := range []struct{ stream, filter string }{
		{streams.Undelivered, streams.UndeliveredFilter(e.ID, "")},
		{streams.Payloads(e.Partition), streams.KeptFilter(e.Partition, e.ID)},
		{streams.Deliveries, streams.DeliveryFilter(e.ID, "")},
	} {
		within, cancel := bounded(ctx)
		err := q.purgeAll(within, of.stream, of.filter)
		cancel()
		if err != nil {
			return fmt.Errorf("drop webhooks of %s: %w", e.ID, err)
		}
	}
	return nil
}

// OfEarlier reports whether a job was accepted by an endpoint of the same id
// that was deleted before e was made. Submit gives e no job that is older than
// e itself, whatever the clocks say.
func OfEarlier(e endpoint.Endpoint, j *job.Job) bool {
	made := e.Created.Truncate(time.Millisecond) // as precise as a job's times
	return j.Submitted.Before(made) && j.Queued.Before(made)
}

// cancelRunning cancels what is left in the queue after a purge: jobs that are
// handed out.
func (q *Queue) cancelRunning(ctx context.Context, e endpoint.Endpoint) error {
	const atOnce = 256
	for from := uint64(1); ; {
		within, cancel := bounded(ctx)
		left, err := untilAnswered(within, func() ([]*nats.Msg, error) {
			return q.batchGet(within, streams.Jobs(e.ID), streams.AllJobs(e.ID), from, atOnce)
		})
		cancel()
		if err != nil || len(left) == 0 {
			return err
		}
		for _, m := range left {
			subject := m.Header.Get(jetstream.SubjectHeader)
			id := streams.JobOf(subject)
			if _, err := q.Cancel(ctx, e, id); err != nil && !errors.Is(err, job.ErrConflict) && !errors.Is(err, job.ErrNotFound) {
				return fmt.Errorf("cancel job %s: %w", id, err)
			}
		}
		var last uint64
		if _, err := fmt.Sscan(left[len(left)-1].Header.Get(jetstream.SequenceHeader), &last); err != nil {
			return fmt.Errorf("read queue of %s: %w", e.ID, err)
		}
		from = last + 1
	}
}
