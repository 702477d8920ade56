package queue

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/streams"
)

// walk ends what waits though no fetch brings it: what was put off (nak with a
// delay), which counts as handed out, all jobs of a paused endpoint, and those that
// the server does not count (bothClasses). The record decides whose each job is.
func (p *purge) walk(ctx context.Context) error {
	first, err := p.firstSeq(ctx)
	if err != nil || first == 0 {
		return err
	}
	for from := first; from <= p.until; {
		got, err := p.some(ctx, from)
		if err != nil || len(got) == 0 {
			return err
		}
		g, gctx := errgroup.WithContext(ctx)
		for _, m := range got {
			seq := bus.Sequence(m)
			from = seq + 1
			if seq <= p.until && p.mine(m) {
				g.Go(func() error { return p.waiting(gctx, m, seq) })
			}
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// firstSeq is the sequence of the oldest message of the class, 0 if there is none.
func (p *purge) firstSeq(ctx context.Context) (uint64, error) {
	within, cancel := bounded(ctx)
	defer cancel()
	m, err := p.q.leaderNext(within, streams.Jobs(p.at.endpoint), streams.ClassFilter(p.at.endpoint, p.class), 1)
	if errors.Is(err, errNoMessage) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return m.seq, nil
}

// some reads queue messages of both classes: to filter them the server would
// count all there are, each time.
func (p *purge) some(ctx context.Context, from uint64) ([]*nats.Msg, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return untilAnswered(ctx, func() ([]*nats.Msg, error) {
		return p.q.batchGet(ctx, streams.Jobs(p.at.endpoint), ">", from, purgeAtOnce)
	})
}

// mine reports whether a queue message is of the class.
func (p *purge) mine(m *nats.Msg) bool {
	subject := m.Header.Get(jetstream.SubjectHeader)
	return subject == streams.JobSubject(p.at.endpoint, p.class, streams.JobOf(subject))
}

// waiting ends a job that was read, unless it turns out to run.
func (p *purge) waiting(ctx context.Context, m *nats.Msg, seq uint64) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	id := streams.JobOf(m.Header.Get(jetstream.SubjectHeader))
	from, err := decode(p.at, id, &stored{server: p.q.nc.ConnectedServerId(), header: m.Header, data: m.Data})
	if err != nil {
		return err
	}
	from.queueSeq = seq
	_, err = p.end(ctx, from)
	return err
}
