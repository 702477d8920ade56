package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/shared/job"
	"flightline/streams"
)

// Deadlines ends runs whose deadline has passed though their holder does not
// say so, until ctx ends. Every api instance runs it; they share the work. It
// also answers workers that ask for how long JetStream has served. A firing that finds nothing to do is dropped: the schedule fires again until
// the record changes.
func (q *Queue) Deadlines(ctx context.Context, partitions int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return q.answerAvailability(ctx) })
	for p := range max(1, partitions) {
		g.Go(func() error { return q.deadlinesOf(ctx, p) })
	}
	return g.Wait()
}

func (q *Queue) deadlinesOf(ctx context.Context, p int) error {
	const pause = 500 * time.Millisecond
	for ctx.Err() == nil {
		if err := q.consumeDue(ctx, p); err != nil && ctx.Err() == nil {
			q.log.WarnContext(ctx, "deadlines are not watched, trying again", "partition", p, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

func (q *Queue) consumeDue(ctx context.Context, p int) error {
	within, cancel := bounded(ctx)
	defer cancel()
	consumer, err := q.js.Consumer(within, streams.Records(p), streams.DueConsumer)
	if err != nil {
		return fmt.Errorf("bind consumer %s: %w", streams.DueConsumer, err)
	}
	const atOnce = 64
	g := &errgroup.Group{}
	g.SetLimit(atOnce)
	failed := make(chan error, 1)
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		g.Go(func() error { q.due(ctx, p, m); return nil })
	}, jetstream.PullMaxMessages(atOnce), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		if errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrConsumerNotFound) {
			select {
			case failed <- err:
			default:
			}
		}
	}))
	if err != nil {
		return fmt.Errorf("consume %s: %w", streams.DueConsumer, err)
	}
	defer func() {
		consuming.Stop()
		<-consuming.Closed()
		_ = g.Wait() // its functions return nil
	}()
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// due handles one firing.
func (q *Queue) due(ctx context.Context, p int, m jetstream.Msg) {
	ep, id, attempt, err := streams.ParseDue(m.Subject())
	if err != nil {
		q.log.ErrorContext(ctx, "timer dropped", "error", err)
		_ = m.Term()
		return
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	at := place{ep, p}
	r, err := q.readRecord(ctx, at, id, attempt)
	if err == nil {
		_, err = q.overdue(ctx, at, r)
	}
	if errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrMissing) {
		_ = m.NakWithDelay(time.Second)
		return
	}
	_ = m.Ack() // also on conflict, or if the queue is missing: the schedule fires again while the record says so
}

// overdue ends a run that is past its deadline, or whose holder alone kept it
// and fell silent. It returns nil if there is nothing to end.
func (q *Queue) overdue(ctx context.Context, at place, r *record) (*record, error) {
	now := q.Now()
	switch {
	case r.Status != job.InProgress || !now.Before(r.Expires):
		return nil, nil //nolint:nilnil // nothing to end
	case r.Overdue(now):
		return q.timeOut(ctx, at, r)
	case r.detached && now.Sub(r.changed) > r.lease && q.service.age() > r.lease:
		if alive, _, err := q.askHolder(ctx, at, r); err != nil || alive {
			return nil, err
		}
		return q.end(ctx, at, r, job.Fail, func(n *record) {
			n.Lost++
			n.Error = "worker lost: it fell silent after the job's ttl was made longer"
		})
	}
	return nil, nil //nolint:nilnil // nothing to end
}

// timeOut ends a run on behalf of its holder.
func (q *Queue) timeOut(ctx context.Context, at place, r *record) (*record, error) {
	return q.end(ctx, at, r, job.TimeOut, func(n *record) { n.Error = job.ErrTextTimedOut })
}

// end writes an outcome that the holder did not, keeps the input for a retry,
// tells the holder, and removes the queue message.
func (q *Queue) end(ctx context.Context, at place, r *record, by job.Trigger, change func(*record)) (*record, error) {
	msg, err := q.readMessage(ctx, at, r.ID)
	if err != nil && !errors.Is(err, errNoMessage) {
		return nil, err
	}
	if msg == nil || msg.Attempt > r.Attempt {
		if gone, err := q.ghost(ctx, at, r); err != nil || gone {
			return nil, cmp.Or(err, job.ErrNotFound)
		}
	}
	ended, err := q.move(ctx, at, r, by, func(n *record) {
		if msg != nil && msg.Attempt == n.Attempt {
			n.keepFor(msg)
		}
		change(n)
	})
	if err != nil {
		return nil, err
	}
	q.nudge(at, r.ID)
	q.dropMessage(ctx, at, r.ID, r.Attempt)
	return ended, nil
}
