package queue

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// purgeAtOnce is how many jobs a purge has in flight.
const purgeAtOnce = 256

// Purge turns every job that waits into CANCELLED and returns how many it did;
// a running job is never touched, a job submitted meanwhile may stay. It
// competes with the workers for each message, so the count is exact. Once
// begun it goes on although ctx is cancelled. It returns ErrUnavailable with
// the number so far.
func (q *Queue) Purge(ctx context.Context, e endpoint.Endpoint) (int, error) {
	ctx = context.WithoutCancel(ctx)
	var removed atomic.Int64
	for _, class := range job.Classes() {
		p := &purge{q: q, at: placeOf(e), class: class, lease: e.Lease, removed: &removed}
		if err := p.run(ctx); err != nil {
			return int(removed.Load()), fmt.Errorf("purge %s: %w", e.ID, err)
		}
	}
	return int(removed.Load()), nil
}

// purge empties one class.
type purge struct {
	q       *Queue
	at      place
	class   job.Class
	lease   time.Duration
	removed *atomic.Int64
	until   uint64 // the last queue message when the purge began
}

func (p *purge) run(ctx context.Context) error {
	last, err := p.lastSeq(ctx)
	if err != nil || last == 0 {
		return err
	}
	p.until = last
	inbox := p.q.nc.NewInbox()
	arrived := make(chan *nats.Msg, 2*purgeAtOnce)
	sub, err := p.q.nc.ChanSubscribe(inbox, arrived)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is gone then
	for more := true; more; {
		if more, err = p.batch(ctx, inbox, arrived); err != nil {
			return err
		}
	}
	return p.walk(ctx)
}

// lastSeq is the sequence of the newest message of the class, 0 if none waits.
func (p *purge) lastSeq(ctx context.Context) (uint64, error) {
	within, cancel := bounded(ctx)
	defer cancel()
	m, err := p.q.leaderLast(within, streams.Jobs(p.at.endpoint), streams.ClassFilter(p.at.endpoint, p.class))
	if errors.Is(err, errNoMessage) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return m.seq, nil
}

// batch fetches what waits now and ends it; more tells whether to fetch again.
func (p *purge) batch(ctx context.Context, inbox string, arrived <-chan *nats.Msg) (more bool, err error) {
	if err := p.q.sendPull(p.at.endpoint, p.class, inbox, purgeAtOnce, 0); err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	g, gctx := errgroup.WithContext(ctx)
	defer func() {
		if waited := g.Wait(); err == nil {
			err = waited
		}
	}()
	within := time.NewTimer(answerWithin)
	defer within.Stop()
	for n := 0; n < purgeAtOnce; {
		select {
		case m := <-arrived:
			if status := m.Header.Get("Status"); status != "" && len(m.Data) == 0 {
				return n > 0 && more, nil // 404: nothing waits any more
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
			return false, ErrUnavailable
		}
	}
	return more, nil
}

// one ends a fetched job, unless it turns out to run.
func (p *purge) one(ctx context.Context, m *nats.Msg, seq uint64) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	id := streams.JobOf(m.Subject)
	from, err := decode(p.at, id, &stored{server: p.q.nc.ConnectedServerId(), header: m.Header, data: m.Data})
	if err != nil {
		return err
	}
	from.queueSeq = seq
	running, err := p.end(ctx, from)
	switch {
	case err != nil:
		_ = m.NakWithDelay(time.Second)
	case running:
		_ = m.NakWithDelay(p.lease) // redelivered while it is held: its holder's heartbeat, or a worker, decides
	}
	return err
}

// end cancels a job as its queue message, or its record, tells it; running is
// true for one that somebody holds.
func (p *purge) end(ctx context.Context, from *record) (running bool, err error) {
	id, attempt := from.ID, from.Attempt
	for {
		_, err := p.q.cancel(ctx, p.at, from)
		if err == nil {
			p.removed.Add(1)
			return false, nil
		}
		if !errors.Is(err, errConflict) {
			return false, err
		}
		from, err = p.q.readRecord(ctx, p.at, id, attempt)
		if errors.Is(err, errNoMessage) { // the other write failed, or the job was forgotten since
			from, err = p.q.readMessage(ctx, p.at, id)
		}
		switch {
		case errors.Is(err, errNoMessage):
			return false, nil
		case err != nil:
			return false, err
		case from.Attempt != attempt:
			return false, nil // a retry, after the purge began
		case from.Status.Terminal():
			p.q.dropMessage(ctx, p.at, id, attempt)
			return false, nil
		case from.Status == job.InProgress:
			return true, nil
		}
	}
}
