package gateway

import (
	"context"
	"errors"
	"time"

	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
)

// RunPod's SDK pings from a process of its own. When the worker is killed outside a
// container, that process lives on and says for ever that the job is being run. What
// it cannot do is poll: the kernel closed the worker's polls. So a ping is not
// believed of a worker that left a poll and began none for several leases. A handler
// that blocks its event loop begins none either, but leaves none: its last one is
// answered (docs/adr/0048-pings-without-polls.md).

const (
	// noticeTimeout is how long after a worker left a poll that is noticed: a job that
	// began since may come from a later poll.
	noticeTimeout = 2 * time.Second
	// leftTimeout bounds the write that a worker left a poll, or polls again.
	leftTimeout = 2 * time.Second
	// warnedTimeout is how long it is remembered that a worker was warned of.
	warnedTimeout = time.Hour
)

// noteLeft notes that the worker left a poll before its answer.
func (s *Service) noteLeft(ctx context.Context, who caller) {
	ctx, cancel := context.WithTimeout(ctx, leftTimeout)
	defer cancel()
	s.logUnnoted(ctx, who, s.registry.Tokens.Disconnect(ctx, who.endpoint.ID, who.worker, who.hash, s.queue.Now()))
}

// removeNote removes the note that the worker left a poll at noted; the zero time is none.
func (s *Service) removeNote(ctx context.Context, who caller, noted time.Time) {
	if noted.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leftTimeout)
	defer cancel()
	s.logUnnoted(ctx, who, s.registry.Tokens.Reconnect(ctx, who.endpoint.ID, who.worker, noted))
}

// logUnnoted is all that a note which was not written leads to: the worker is believed,
// or its poll tries again.
func (s *Service) logUnnoted(ctx context.Context, who caller, err error) {
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		s.log.DebugContext(ctx, "end of a poll not noted", "endpoint", who.endpoint.ID, "worker", who.worker, "err", err)
	}
}

// hasLeft reports whether a ping of the worker is not believed, which names these jobs.
func (s *Service) hasLeft(ctx context.Context, who caller, ids []job.ID) bool {
	if who.left.IsZero() || s.queue.Now().Sub(who.left) <= time.Duration(s.cfg.leftLeases)*who.endpoint.Lease {
		return false
	}
	var loses []job.ID
	for _, id := range ids {
		lease, err := s.queue.Remote.LeaseOf(ctx, who.endpoint, id, who.worker)
		switch {
		case errors.Is(err, queue.ErrLost):
		case err != nil, lease.Job.Started.After(who.left.Add(-noticeTimeout)):
			return false
		default:
			loses = append(loses, id)
		}
	}
	key, now := who.key()+who.left.String(), time.Now()
	if _, warned := s.warned.last(key, now); len(loses) > 0 && !warned {
		s.warned.add(key, now)
		s.log.WarnContext(ctx, "worker pings and does not poll: its process has ended, its jobs go to other workers",
			"endpoint", who.endpoint.ID, "worker", who.worker, "jobs", loses, "left", who.left)
	}
	return true
}
