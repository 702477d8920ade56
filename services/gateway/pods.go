package gateway

import (
	"context"
	"errors"
	"time"

	"flightline/shared/pod"
	"flightline/shared/registry"
)

// podKnownTimeout is how long after a ping a worker's pod is taken to be on record:
// for that long its heartbeat lives, and nobody takes it for gone.
const podKnownTimeout = 2 * registry.BeatEvery

// recordPod sees to it that there is a record of the worker's pod, which runs: one
// is made for a worker that its owner started. What its machine is, the worker
// does not tell.
func (s *Service) recordPod(ctx context.Context, who caller, version string) {
	key, now := who.key(), time.Now()
	if _, known := s.pods.last(key, now); known { // else a ping costs a look at the record
		s.pods.add(key, now)
		return
	}
	began := s.queue.Now()
	if token, err := s.registry.Tokens.Find(ctx, who.endpoint.ID, who.worker); err == nil {
		began = token.Created // a pod that was removed before it was another one
	}
	_, err := s.registry.Pods.Appear(ctx, pod.Pod{
		ID: who.worker, Endpoint: who.endpoint.ID, EndpointVersion: who.endpoint.ReleaseVersion(), Machine: pod.Machine{Version: version},
	}, began, s.queue.Now())
	switch {
	case err == nil, errors.Is(err, pod.ErrConflict):
		s.pods.add(key, now)
	default:
		s.log.DebugContext(ctx, "pod not registered, trying again", "endpoint", who.endpoint.ID, "worker", who.worker, "err", err)
	}
}
