package queue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

// maxPurgeJobs is how many jobs a purge has in flight, maxPurgeBytes how large they are together
// with their inputs: more might not come in time on a slow line.
const maxPurgeJobs, maxPurgeBytes = 256, 1 << 20

// Purge turns every job that waits into CANCELLED and returns how many it did;
// a running job is never touched, a job submitted meanwhile may stay. Workers may take
// jobs at the same time: the record of each decides whose it is, so the count is exact.
// Once begun it goes on although ctx is cancelled. It returns bus.ErrUnavailable with
// the number so far.
func (q *Queue) Purge(ctx context.Context, e endpoint.Endpoint) (int, error) {
	p := &purge{q: q, at: record.LocationOf(e)}
	err := p.run(context.WithoutCancel(ctx))
	if err != nil {
		err = fmt.Errorf("purge %s: %w", e.ID, err)
	}
	return int(p.cancelled.Load()), err
}

// purge cancels what waits in a queue.
type purge struct {
	q         *Queue
	at        record.Location
	cancelled atomic.Int64
}

// run looks at each queue message that is there when it begins: also at those that count
// as handed out, as after a nak with a delay, at those of a paused endpoint, and at those
// that the server does not count (reader.consumers).
func (p *purge) run(ctx context.Context) error {
	within, cancel := bus.Bounded(ctx)
	until, err := p.q.bus.LastSequence(within, streams.Jobs(p.at.Endpoint), streams.AllJobs(p.at.Endpoint))
	cancel()
	if err != nil {
		return err
	}
	return p.q.read.eachQueued(ctx, p.at.Endpoint, until, p.one)
}

// one cancels the job of a queue message that was read from a server, unless the job runs.
// A message that cannot be decoded stays: it must not hold up all others.
func (p *purge) one(ctx context.Context, m *nats.Msg, server string) error {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	id, seq := streams.JobOf(bus.SubjectOf(m)), bus.Sequence(m)
	from, err := record.Decode(p.at, id, &bus.Message{Server: server, Header: m.Header, Data: m.Data})
	if err == nil {
		from.QueueSeq = seq
		err = p.end(ctx, from)
	}
	if errors.Is(err, record.ErrDamaged) {
		p.q.log.ErrorContext(ctx, "job cannot be cancelled and is left in the queue", "endpoint", p.at.Endpoint, "job", id, "sequence", seq, "err", err)
		return nil
	}
	return err
}

// end cancels a job as its queue message, or its record, has it, unless a worker holds it.
func (p *purge) end(ctx context.Context, from *record.Record) error {
	id, attempt := from.ID, from.Attempt
	for {
		_, err := p.q.cancel(ctx, p.at, from)
		if err == nil {
			p.cancelled.Add(1)
			return nil
		}
		if !errors.Is(err, bus.ErrConflict) {
			return err
		}
		from, err = p.q.read.record(ctx, p.at, id, attempt)
		if errors.Is(err, bus.ErrNoMessage) { // the other write failed, or the job was forgotten since
			from, err = p.q.read.message(ctx, p.at, id)
		}
		switch {
		case errors.Is(err, bus.ErrNoMessage):
			return nil
		case err != nil:
			return err
		case from.Attempt != attempt:
			return nil // a retry, after the purge began
		case from.Status.Terminal(), !p.q.Now().Before(from.Expires): // it is over
			return p.dropOver(ctx, from)
		case from.Status == job.InProgress:
			return nil
		}
	}
}

// dropOver removes the queue message of an attempt that is over, as r says, for which it
// waits as Consumer.dropOver does.
func (p *purge) dropOver(ctx context.Context, r *record.Record) error {
	if err := p.q.bus.WaitDurable(ctx, streams.Records(p.at.Partition), r.Server); err != nil {
		return err
	}
	p.q.dropMessage(ctx, p.at, r.ID, r.Attempt)
	return nil
}

// eachQueued calls do with the queue messages of both classes up to the sequence until, many
// at a time, and with the server that they were read from. To filter a class the server
// would count all messages that there are, for each read.
func (rd reader) eachQueued(ctx context.Context, endpointID string, until uint64, do func(ctx context.Context, m *nats.Msg, server string) error) error {
	for from := uint64(1); from <= until; {
		server := rd.bus.Conn().ConnectedServerId()
		within, cancel := bus.Bounded(ctx)
		got, err := rd.bus.LeaderBatch(within, streams.Jobs(endpointID), bus.Batch{From: from, Filter: ">", Most: maxPurgeJobs, MaxBytes: maxPurgeBytes})
		cancel()
		if err != nil || len(got) == 0 {
			return err
		}
		g, gctx := errgroup.WithContext(ctx)
		for _, m := range got {
			seq := bus.Sequence(m)
			if from = seq + 1; seq <= until {
				g.Go(func() error { return do(gctx, m, server) })
			}
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// DeleteEndpoint cancels every job that waits or runs, so that its caller
// learns what happened, and removes the endpoint's queue, with what cannot be decoded in
// it. Nobody may submit any more when it is called. It may be repeated.
func (q *Queue) DeleteEndpoint(ctx context.Context, e endpoint.Endpoint) error {
	if _, err := q.js.Stream(ctx, streams.Jobs(e.ID)); err != nil {
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return fmt.Errorf("delete queue of %s: %w", e.ID, bus.Unavailable(err))
	}
	if _, err := q.Purge(ctx, e); err != nil {
		return err
	}
	if err := q.cancelRunning(ctx, e); err != nil {
		return err
	}
	if err := q.js.DeleteStream(ctx, streams.Jobs(e.ID)); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("delete queue of %s: %w", e.ID, bus.Unavailable(err))
	}
	return nil
}

// cancelRunning cancels what is left in the queue after a purge: jobs that are
// handed out.
func (q *Queue) cancelRunning(ctx context.Context, e endpoint.Endpoint) error {
	return q.read.eachQueued(ctx, e.ID, math.MaxUint64, func(ctx context.Context, m *nats.Msg, _ string) error {
		id := streams.JobOf(bus.SubjectOf(m))
		_, err := q.Cancel(ctx, e, id)
		if err != nil && !errors.Is(err, job.ErrConflict) && !errors.Is(err, job.ErrNotFound) && !errors.Is(err, record.ErrDamaged) {
			return fmt.Errorf("cancel job %s: %w", id, err)
		}
		return nil
	})
}
