package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/shared/retry"
	"flightline/shared/telemetry"
	"flightline/streams"
)

// Deadlines ends runs whose deadline has passed though their holder does not
// say so, until ctx ends. Every api instance runs it; they share the work. It
// also answers workers that ask for how long JetStream has served. A firing that
// finds nothing to do is dropped: the schedule fires again until the record
// changes.
func (q *Queue) Deadlines(ctx context.Context, partitions int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return answerAvailability(ctx, q.bus) })
	for p := range max(1, partitions) {
		g.Go(func() error { return deadlines{q, p}.run(ctx) })
	}
	return g.Wait()
}

// deadlines ends what is overdue in one partition.
type deadlines struct {
	q         *Queue
	partition int
}

func (d deadlines) run(ctx context.Context) error {
	const pause = 500 * time.Millisecond
	outage := telemetry.NewOutageLog()
	for ctx.Err() == nil {
		if err := d.consume(ctx); err != nil && ctx.Err() == nil {
			outage.Warn(ctx, d.q.log, "deadlines are not watched, trying again", slog.Int("partition", d.partition), slog.Any("err", err))
		}
		_ = retry.Sleep(ctx, pause) // the loop sees the end of ctx
	}
	return nil
}

func (d deadlines) consume(ctx context.Context) error {
	within, cancel := bus.Bounded(ctx)
	defer cancel()
	consumer, err := d.q.js.Consumer(within, streams.Records(d.partition), streams.DueConsumer)
	if err != nil {
		return fmt.Errorf("bind consumer %s: %w", streams.DueConsumer, err)
	}
	const atOnce = 64
	g := &errgroup.Group{}
	g.SetLimit(atOnce)
	untilGone, gone := bus.ConsumerGone()
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		g.Go(func() error { d.fire(ctx, m); return nil })
	}, jetstream.PullMaxMessages(atOnce), untilGone)
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
	case err := <-gone:
		return err
	}
}

// fire handles one firing.
func (d deadlines) fire(ctx context.Context, m jetstream.Msg) {
	ep, id, attempt, err := streams.ParseDue(m.Subject())
	if err != nil {
		d.q.log.ErrorContext(ctx, "timer dropped", "err", err)
		_ = m.Term()
		return
	}
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	at := record.Location{Endpoint: ep, Partition: d.partition}
	r, err := d.q.read.record(ctx, at, id, attempt)
	if err == nil {
		err = d.overdue(ctx, at, r)
	}
	if errors.Is(err, bus.ErrUnavailable) && !errors.Is(err, bus.ErrMissing) {
		_ = m.NakWithDelay(time.Second)
		return
	}
	_ = m.Ack() // also on conflict, or if the queue is missing: the schedule fires again while the record says so
}

// overdue ends a run that is past its deadline, or whose holder alone kept it
// and fell silent.
func (d deadlines) overdue(ctx context.Context, at record.Location, r *record.Record) (err error) {
	now := d.q.Now()
	switch {
	case r.Status != job.InProgress || !now.Before(r.Expires): // nothing to end
	case r.Overdue(now):
		_, err = d.q.timeOut(ctx, at, r)
	case r.Detached && now.Sub(r.Changed) > r.Lease && d.q.bus.Availability().Age() > r.Lease:
		if alive, _, err := askHolder(ctx, d.q.bus, at, r, r.Lease); err != nil || alive {
			return err
		}
		_, err = d.q.end(ctx, at, r, job.Fail, func(n *record.Record) {
			failLost(n, "worker lost: it fell silent after the job's ttl was made longer")
		})
	}
	return err
}

// timeOut ends a run on behalf of its holder.
func (q *Queue) timeOut(ctx context.Context, at record.Location, r *record.Record) (*record.Record, error) {
	return q.end(ctx, at, r, job.TimeOut, func(n *record.Record) { n.Error = job.ErrTextTimedOut })
}

// end writes an outcome that the holder did not, keeps the input for a retry,
// nudges the holder, and removes the queue message.
func (q *Queue) end(ctx context.Context, at record.Location, r *record.Record, by job.Trigger, change func(*record.Record)) (*record.Record, error) {
	msg, err := q.read.message(ctx, at, r.ID)
	if err != nil && !errors.Is(err, bus.ErrNoMessage) {
		return nil, err
	}
	if msg == nil || msg.Attempt > r.Attempt {
		if gone, err := q.removeResurrected(ctx, at, r); err != nil || gone {
			return nil, cmp.Or(err, job.ErrNotFound)
		}
	}
	ended, err := q.move(ctx, at, r, by, func(n *record.Record) {
		if msg != nil && msg.Attempt == n.Attempt {
			keepInput(n, msg)
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
