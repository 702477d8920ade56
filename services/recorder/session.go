package recorder

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/queue"
	"flightline/shared/retry"
)

// retryDelay is the pause after a failure.
const retryDelay = 500 * time.Millisecond

// recordAll records a partition, and recalls what was recorded before this
// term, until ctx ends. After a failure it goes back to the last position that
// this term wrote, not to one of another recorder: what is in between this
// one has to know too, to remove it in time.
func (s *Service) recordAll(ctx context.Context, p *partition, keep *retention) error {
	start := s.startPatiently(ctx, p)
	p.done.Store(start)
	p.saved.Store(start)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.recall(ctx, p.number, start, keep) })
	g.Go(func() error {
		for ctx.Err() == nil {
			if err := s.session(ctx, p, keep); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "recording interrupted, trying again", "partition", p.number, "err", err)
				_ = retry.Sleep(ctx, retryDelay)
			}
		}
		return nil
	})
	return g.Wait()
}

// startPatiently is startAt when JetStream answers, or 0 at the end of ctx.
func (s *Service) startPatiently(ctx context.Context, p *partition) uint64 {
	for ctx.Err() == nil {
		start, err := s.startAt(ctx, p)
		if err == nil {
			return start
		}
		if ctx.Err() == nil {
			s.log.WarnContext(ctx, "position not read, trying again", "partition", p.number, "err", err)
			_ = retry.Sleep(ctx, retryDelay)
		}
	}
	return 0
}

// startAt is where a term begins.
func (s *Service) startAt(ctx context.Context, p *partition) (uint64, error) {
	after, err := s.events.Position(ctx, p.position())
	if err != nil {
		return 0, err
	}
	return s.checked(ctx, p, after)
}

// checked is a position, or 0 if the store has gone back behind it, as a power
// loss may make it: what was written since has the same sequences.
func (s *Service) checked(ctx context.Context, p *partition, after uint64) (uint64, error) {
	last, err := s.queue.LastChange(ctx, p.number)
	if err != nil {
		return 0, err
	}
	if after > last {
		s.log.WarnContext(ctx, "there are fewer writes than were recorded, recording all", "partition", p.number, "position", after, "last", last)
		return 0, nil
	}
	return after, nil
}

// session records from the last position on. It ends with an error, or with
// nil at the end of ctx.
func (s *Service) session(ctx context.Context, p *partition, keep *retention) error {
	server := s.events.Server()
	after, err := s.checked(ctx, p, p.saved.Load())
	if err != nil {
		return err
	}
	p.saved.Store(after)
	p.done.Store(after)
	keep.dropAfter(p.number, after) // they are recorded again
	w := &writer{s: s, p: p, keep: keep, server: server, known: newKnown()}
	facts := make(chan queue.RecordChange, maxBatch)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return s.queue.Changes(ctx, p.number, after, func(f queue.RecordChange) error {
			f.Job.Output = nil // no event has it
			select {
			case facts <- f:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	g.Go(func() error { return w.run(ctx, facts) })
	return g.Wait()
}
