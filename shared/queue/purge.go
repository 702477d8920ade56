package queue

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

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
const maxPurgeJobs, maxPurgeBytes = 256, 2 << 20

// Purge turns every job that waits into CANCELLED and returns how many it did;
// a running job is never touched, a job submitted meanwhile may stay. It
// competes with the workers for each message, so the count is exact. Once
// begun it goes on although ctx is cancelled. It returns bus.ErrUnavailable with
// the number so far.
func (q *Queue) Purge(ctx context.Context, e endpoint.Endpoint) (int, error) {
	ctx = context.WithoutCancel(ctx)
	var removed atomic.Int64
	for _, class := range job.Classes() {
		p := &purge{q: q, at: record.LocationOf(e), class: class, lease: e.Lease, removed: &removed}
		if err := p.run(ctx); err != nil {
			return int(removed.Load()), fmt.Errorf("purge %s: %w", e.ID, err)
		}
	}
	return int(removed.Load()), nil
}

// purge empties one class.
type purge struct {
	q       *Queue
	at      record.Location
	class   job.Class
	lease   time.Duration
	removed *atomic.Int64
	until   uint64 // the last queue message when the purge began
}

func (p *purge) run(ctx context.Context) error {
	within, cancel := bus.Bounded(ctx)
	last, err := p.q.bus.LastSequence(within, streams.Jobs(p.at.Endpoint), streams.ClassFilter(p.at.Endpoint, p.class))
	cancel()
	if err != nil || last == 0 {
		return err
	}
	p.until = last
	inbox := p.q.nc.NewInbox()
	arrived := make(chan *nats.Msg, 2*maxPurgeJobs)
	sub, err := p.q.nc.ChanSubscribe(inbox, arrived)
	if err != nil {
		return fmt.Errorf("%w: %w", bus.ErrUnavailable, err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is gone then
	for more := true; more; {
		if more, err = p.batch(ctx, inbox, arrived); err != nil {
			return err
		}
	}
	return p.walk(ctx)
}

// batch fetches what waits now and ends it; more: fetch again.
func (p *purge) batch(ctx context.Context, inbox string, arrived <-chan *nats.Msg) (more bool, err error) {
	if err := sendPull(p.q.nc, p.at.Endpoint, p.class, inbox, maxPurgeJobs, 0); err != nil {
		return false, fmt.Errorf("%w: %w", bus.ErrUnavailable, err)
	}
	g, gctx := errgroup.WithContext(ctx)
	defer func() {
		if waited := g.Wait(); err == nil {
			err = waited
		}
	}()
	within := time.NewTimer(bus.CallTimeout)
	defer within.Stop()
	for n := 0; n < maxPurgeJobs; {
		select {
		case m := <-arrived:
			if status := m.Header.Get("Status"); status != "" && len(m.Data) == 0 {
				return n > 0 && more, nil // nothing waits any more, or more than maxPurgeBytes
			}
			n++
			meta, err := m.Metadata()
			if err != nil {
				return false, fmt.Errorf("read delivery: %w", err)
			}
			if meta.Sequence.Stream > p.until {
				_ = m.Nak() // submitted after the purge
				continue
			}
			more = true
			g.Go(func() error { return p.one(gctx, m, meta.Sequence.Stream) })
		case <-within.C:
			return false, bus.ErrUnavailable
		}
	}
	return more, nil
}

// one ends a fetched job, unless it turns out to run.
func (p *purge) one(ctx context.Context, m *nats.Msg, seq uint64) error {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	left, err := p.cancelQueued(ctx, streams.JobOf(m.Subject), m, seq)
	switch {
	case err != nil:
		_ = m.NakWithDelay(time.Second)
	case left:
		_ = m.NakWithDelay(p.lease) // redelivered while it is held: its holder's heartbeat, or a worker, decides
	}
	return err
}

// cancelQueued cancels the job of a queue message. left is true for a job that a worker
// holds, and for a message that cannot be decoded: it must not hold up all others.
func (p *purge) cancelQueued(ctx context.Context, id job.ID, m *nats.Msg, seq uint64) (left bool, err error) {
	from, err := record.Decode(p.at, id, &bus.Message{Server: p.q.nc.ConnectedServerId(), Header: m.Header, Data: m.Data})
	if err == nil {
		from.QueueSeq = seq
		left, err = p.end(ctx, from)
	}
	if errors.Is(err, record.ErrDamaged) {
		p.q.log.ErrorContext(ctx, "job cannot be cancelled and is left in the queue", "endpoint", p.at.Endpoint, "job", id, "sequence", seq, "err", err)
		return true, nil
	}
	return left, err
}

// end cancels a job as its queue message, or its record, has it; running is
// true for a job that a worker holds.
func (p *purge) end(ctx context.Context, from *record.Record) (running bool, err error) {
	id, attempt := from.ID, from.Attempt
	for {
		_, err := p.q.cancel(ctx, p.at, from)
		if err == nil {
			p.removed.Add(1)
			return false, nil
		}
		if !errors.Is(err, bus.ErrConflict) {
			return false, err
		}
		from, err = p.q.read.record(ctx, p.at, id, attempt)
		if errors.Is(err, bus.ErrNoMessage) { // the other write failed, or the job was forgotten since
			from, err = p.q.read.message(ctx, p.at, id)
		}
		switch {
		case errors.Is(err, bus.ErrNoMessage):
			return false, nil
		case err != nil:
			return false, err
		case from.Attempt != attempt:
			return false, nil // a retry, after the purge began
		case from.Status.Terminal(), !p.q.Now().Before(from.Expires): // it is over
			return false, p.dropOver(ctx, from)
		case from.Status == job.InProgress:
			return true, nil
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

// walk ends what waits though no fetch brings it: what was put off (nak with a
// delay), which counts as handed out, all jobs of a paused endpoint, and those that
// the server does not count (reader.consumers). The record decides whose each job is.
func (p *purge) walk(ctx context.Context) error {
	filter := streams.ClassFilter(p.at.Endpoint, p.class)
	within, cancel := bus.Bounded(ctx)
	first, err := p.q.bus.LeaderNext(within, streams.Jobs(p.at.Endpoint), filter, 1)
	cancel()
	if errors.Is(err, bus.ErrNoMessage) {
		return nil
	}
	if err != nil {
		return err
	}
	for from := first.Seq; from <= p.until; {
		got, err := p.q.someQueued(ctx, p.at.Endpoint, from)
		if err != nil || len(got) == 0 {
			return err
		}
		g, gctx := errgroup.WithContext(ctx)
		for _, m := range got {
			seq := bus.Sequence(m)
			from = seq + 1
			if seq <= p.until && bus.Covers(filter, bus.SubjectOf(m)) {
				g.Go(func() error { return p.cancelWaiting(gctx, m, seq) })
			}
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// someQueued reads queue messages of both classes: to filter them the server would
// count all there are, each time.
func (q *Queue) someQueued(ctx context.Context, endpoint string, from uint64) ([]*nats.Msg, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	return q.bus.LeaderBatch(ctx, streams.Jobs(endpoint), bus.Batch{From: from, Filter: ">", Most: maxPurgeJobs, MaxBytes: maxPurgeBytes})
}

// cancelWaiting cancels the job of a queue message that was read, unless it runs.
func (p *purge) cancelWaiting(ctx context.Context, m *nats.Msg, seq uint64) error {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	_, err := p.cancelQueued(ctx, streams.JobOf(bus.SubjectOf(m)), m, seq)
	return err
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
	for from := uint64(1); ; {
		left, err := q.someQueued(ctx, e.ID, from)
		if err != nil || len(left) == 0 {
			return err
		}
		for _, m := range left {
			subject := bus.SubjectOf(m)
			id := streams.JobOf(subject)
			_, err := q.Cancel(ctx, e, id)
			if err != nil && !errors.Is(err, job.ErrConflict) && !errors.Is(err, job.ErrNotFound) && !errors.Is(err, record.ErrDamaged) {
				return fmt.Errorf("cancel job %s: %w", id, err)
			}
		}
		from = bus.Sequence(left[len(left)-1]) + 1
	}
}
