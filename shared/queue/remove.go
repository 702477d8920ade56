package queue

import (
	"context"
	"errors"
	"fmt"

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
