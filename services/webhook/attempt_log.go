package webhook

import (
	"context"
	"errors"
	"log/slog"

	"flightline/shared/bus"
	"flightline/shared/deliveries"
	"flightline/shared/retry"
)

// maxUnlogged bounds the successes that are not yet in the log of deliveries.
// Together with the posts that run they bound what a crash, or an outage, delivers twice.
const maxUnlogged = 768

// logSuccess appends a success to the log and takes the task out of the queue.
func (s *Service) logSuccess(ctx context.Context, t *task, d deliveries.Attempt, after uint64) {
	ctx = s.withTrace(ctx, t)
	if err := s.logDelivery(ctx, t, d, after); err != nil {
		s.postpone(ctx, t, err)
		return
	}
	s.point(AfterLog)
	s.observe(d.Outcome)
	t.Ack(ctx)
	s.resetFailures(ctx, t)
}

// logDelivery appends an attempt, and tries again until ctx ends: what the log lacks would
// be posted again, for as long as the log takes no writes.
func (s *Service) logDelivery(ctx context.Context, t *task, d deliveries.Attempt, after uint64) error {
	for level := slog.LevelWarn; ; level = slog.LevelDebug {
		err := s.appendDelivery(ctx, t, d, after)
		if !errors.Is(err, bus.ErrUnavailable) {
			return err
		}
		s.log.Log(ctx, level, "webhook posted but not logged, trying again", "job", d.Job, "endpoint", d.Endpoint, "err", err)
		if retry.Sleep(ctx, unavailableDelay) != nil {
			return err
		}
		t.Extend()
	}
}

// appendDelivery appends an attempt. If another attempt was logged meanwhile, a
// success is appended after it unless that was a success too; a failure is
// deliveries.ErrLogged.
func (s *Service) appendDelivery(ctx context.Context, t *task, d deliveries.Attempt, after uint64) error {
	for {
		err := s.deliveries.Append(ctx, d, after)
		if !errors.Is(err, deliveries.ErrLogged) || d.Outcome != deliveries.Delivered {
			return err
		}
		last, err := s.deliveries.Last(ctx, t.Task)
		if err != nil {
			return err
		}
		if last.Outcome == deliveries.Delivered && last.Replay == d.Replay || last.Seq == after {
			return nil
		}
		after = last.Seq
	}
}
