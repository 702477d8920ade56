package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"flightline/shared/pod"
	"flightline/shared/registry"
)

const (
	// podKnownFor is how long after a ping a worker's pod is taken to be on
	// record: for that long its heartbeat lives, and nobody takes it for gone.
	podKnownFor = 2 * registry.BeatEvery
	// mostPods bounds what is remembered of workers.
	mostPods = 50_000
)

// pods remembers which workers' pods are on record, so that a ping costs a
// look at the record only if the worker was not heard of here for a while.
type pods struct {
	mu   sync.Mutex
	seen map[string]time.Time // by endpoint and worker: the last ping
}

func newPods() *pods { return &pods{seen: map[string]time.Time{}} }

// known reports whether the pod is on record, and if so, that it is seen again.
func (p *pods) known(key string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, found := p.seen[key]
	if !found || now.Sub(last) >= podKnownFor {
		return false
	}
	p.seen[key] = now
	return true
}

// add remembers that the pod is on record.
func (p *pods) add(key string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.seen) >= mostPods {
		for k, last := range p.seen {
			if now.Sub(last) >= podKnownFor {
				delete(p.seen, k)
			}
		}
	}
	if len(p.seen) < mostPods { // else the next ping looks again
		p.seen[key] = now
	}
}

// appear sees to it that there is a record of the worker's pod, which runs: one
// is made for a worker that its owner started. What its machine is, the worker
// does not tell.
func (s *Service) appear(ctx context.Context, who caller, version string) {
	key, now := who.endpoint.ID+"."+who.worker, time.Now()
	if s.pods.known(key, now) {
		return
	}
	began := s.queue.Now()
	if token, err := s.registry.Tokens.Find(ctx, who.endpoint.ID, who.worker); err == nil {
		began = token.Created // a pod that was removed before it was another one
	}
	_, err := s.registry.Pods.Appear(ctx, pod.Pod{
		ID: who.worker, Endpoint: who.endpoint.ID, EndpointVersion: who.endpoint.Version, Machine: pod.Machine{Version: version},
	}, began, s.queue.Now())
	switch {
	case err == nil, errors.Is(err, pod.ErrConflict):
		s.pods.add(key, now)
	default:
		s.log.DebugContext(ctx, "pod not registered, trying again", "endpoint", who.endpoint.ID, "worker", who.worker, "err", err)
	}
}
