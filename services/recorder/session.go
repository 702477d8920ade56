package recorder

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/events"
	"flightline/shared/queue"
	"flightline/shared/retry"
	"flightline/shared/telemetry"
)

// retryDelay is the pause after a failure.
const retryDelay = 500 * time.Millisecond

// recordAll records all partitions, and schedules the removal of what was recorded before,
// until ctx ends. After a failure it goes back to the last checkpoint that
// this term wrote, not to one of another recorder: what is in between this
// one has to know too, to remove it in time.
func (s *Service) recordAll(ctx context.Context, removals *removalQueue) error {
	g, ctx := errgroup.WithContext(ctx)
	for i := range s.parts {
		p := &s.parts[i]
		p.start(s.awaitCheckpoint(ctx, p))
		clear(p.announced)
	}
	g.Go(func() error {
		reloaded, stop, outage := "", func() {}, telemetry.NewOutageLog()
		defer func() { stop() }()
		for ctx.Err() == nil {
			server := s.events.Server()
			if server != reloaded && server != "" { // another may have again what was removed
				stop()
				reloaded, stop = server, s.reloadRemovals(ctx, g, removals)
			}
			if err := s.session(ctx, server, removals); err != nil && ctx.Err() == nil {
				outage.Warn(ctx, s.log, "recording interrupted, trying again", slog.Any("err", err))
				_ = retry.Sleep(ctx, retryDelay)
			}
		}
		return nil
	})
	return g.Wait()
}

// awaitCheckpoint is the checkpoint of a partition when JetStream answers, or the zero
// value at the end of ctx.
func (s *Service) awaitCheckpoint(ctx context.Context, p *partition) events.Checkpoint {
	outage := telemetry.NewOutageLog()
	for ctx.Err() == nil {
		start, err := s.events.Checkpoint(ctx, p.position())
		if err == nil {
			start, err = s.validCheckpoint(ctx, p, start)
		}
		if err == nil {
			return start
		}
		if ctx.Err() == nil {
			outage.Warn(ctx, s.log, "position not read, trying again", slog.Int("partition", p.number), slog.Any("err", err))
			_ = retry.Sleep(ctx, retryDelay)
		}
	}
	return events.Checkpoint{}
}

// validCheckpoint is a checkpoint, or the zero value if the store has gone back behind it, as
// a power loss may make it: what was written since has the same sequences.
func (s *Service) validCheckpoint(ctx context.Context, p *partition, c events.Checkpoint) (events.Checkpoint, error) {
	last, err := s.queue.Changes.Last(ctx, p.number)
	if err != nil {
		return events.Checkpoint{}, err
	}
	if c.Records > last {
		s.log.WarnContext(ctx, "there are fewer writes than were recorded, recording all", "partition", p.number, "position", c.Records, "last", last)
		return events.Checkpoint{}, nil
	}
	return c, nil
}

// session records all partitions from their last checkpoints on, while the connection
// leads to server. It ends with an error, or with nil at the end of ctx.
func (s *Service) session(ctx context.Context, server string, removals *removalQueue) error {
	writers, err := s.open(ctx, server, removals)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, w := range writers {
		after, changes := w.p.saved.Load(), make(chan queue.RecordChange, maxBatch)
		removals.dropAfter(w.p.number, after) // they are recorded again
		g.Go(func() error {
			return s.queue.Changes.Follow(ctx, w.p.number, after, func(c queue.RecordChange) error {
				c.Job.Output = nil // no event has it
				select {
				case changes <- c:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		})
		g.Go(func() error { return w.run(ctx, changes) })
	}
	return g.Wait()
}

// open returns the writers of a session, which know what is in the log: what the
// checkpoints say, and what was appended since.
func (s *Service) open(ctx context.Context, server string, removals *removalQueue) ([]*writer, error) {
	log, err := s.events.NewAppender(ctx)
	if err != nil {
		return nil, err
	}
	writers, from := make([]*writer, len(s.parts)), log.Last()+1
	for i := range s.parts {
		p := &s.parts[i]
		start, err := s.validCheckpoint(ctx, p, p.checkpoint)
		if err != nil {
			return nil, err
		}
		p.start(start)
		w := &writer{s: s, p: p, removals: removals, server: server, log: log, inLog: loggedEventsAt(start)}
		if w.replayed, err = s.queue.Changes.Last(ctx, p.number); err != nil {
			return nil, err
		}
		writers[i], from = w, min(from, start.Log+1)
	}
	err = s.events.Scan(ctx, from, func(entry events.Entry) bool {
		for _, w := range writers {
			if entry.Seq > w.p.checkpoint.Log && (entry.Partition == w.p.number || entry.Partition < 0) {
				w.inLog.addEntry(entry)
			}
		}
		return true
	})
	return writers, err
}
