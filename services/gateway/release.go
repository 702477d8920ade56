package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/retry"
)

const (
	// minReleaseInterval is the least pause between two looks at the pods,
	// releaseRetryDelay the longest, and that after a failure.
	minReleaseInterval = 100 * time.Millisecond
	releaseRetryDelay  = 5 * time.Second
)

// releaseStoppedWorkers releases the jobs of workers that a driver stopped on
// request, until ctx ends. Only the driver knows that they have stopped, and it
// may not write records of jobs. Every gateway does this; the record decides
// which is first.
func (s *Service) releaseStoppedWorkers(ctx context.Context) {
	done := map[string]bool{} // pods
	for ctx.Err() == nil {
		changed := s.registry.Pods.Changed()
		if err := s.releaseJobsOfPods(ctx, done); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "jobs of ended workers not given back, trying again", "err", err)
			changed = nil
		}
		select {
		case <-changed:
			_ = retry.Sleep(ctx, minReleaseInterval) // many change at once
		case <-time.After(releaseRetryDelay):
		case <-ctx.Done():
		}
	}
}

// releaseJobsOfPods looks at all pods, also after one has failed.
func (s *Service) releaseJobsOfPods(ctx context.Context, done map[string]bool) error {
	pods, err := s.registry.Pods.List(ctx)
	if err != nil {
		return err
	}
	var errs []error
	there := map[string]bool{}
	for _, p := range pods {
		if len(p.Cut) == 0 || p.Driver == "" {
			continue
		}
		if there[p.ID] = true; !done[p.ID] {
			err := s.releaseJobsOf(ctx, p)
			errs = append(errs, err)
			done[p.ID] = err == nil
		}
	}
	maps.DeleteFunc(done, func(id string, _ bool) bool { return !there[id] })
	return errors.Join(errs...)
}

// releaseJobsOf releases the leases of a pod's worker. A lease that is lost was
// ended or released by the worker or by another gateway.
func (s *Service) releaseJobsOf(ctx context.Context, p pod.Pod) error {
	e, err := s.registry.Endpoints.Get(ctx, p.Endpoint)
	if errors.Is(err, endpoint.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range p.Cut {
		lease, err := s.queue.Remote.LeaseOf(ctx, e, job.ID(id), p.ID)
		if err == nil {
			err = lease.Release(ctx)
		}
		switch {
		case errors.Is(err, queue.ErrLost):
		case err != nil:
			errs = append(errs, fmt.Errorf("pod %s: job %s: %w", p.ID, id, err))
		default:
			s.log.InfoContext(ctx, "job given back, its worker was stopped", "job", id, "endpoint", e.ID, "worker", p.ID)
		}
	}
	return errors.Join(errs...)
}
