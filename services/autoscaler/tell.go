package autoscaler

import (
	"context"
	"errors"

	"flightline/shared/pod"
)

// tell asks a worker that speaks NATS to take no more jobs, and to leave: it
// reads that in its pod's record, within a heartbeat. One that speaks HTTP is
// told by its token. A locked pod is asked nothing.
func (s *Service) tell(ctx context.Context, id, why string) error {
	_, err := s.registry.Pods.Drain(ctx, id, bounded(why), s.queue.Now())
	if errors.Is(err, pod.ErrNotFound) || errors.Is(err, pod.ErrLocked) {
		return nil
	}
	return err
}
