package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/queue"
)

const (
	// cutRest is the least pause between two looks at the pods, cutAgain the one
	// after a look that failed, and the longest.
	cutRest  = 100 * time.Millisecond
	cutAgain = 5 * time.Second
)

// giveBackCut gives back the jobs of workers that a driver ended by request,
// until ctx ends. Only the driver knows that they have ended, and it may not
// write records of jobs. Every gateway does it: the record decides who was first.
func (s *Service) giveBackCut(ctx context.Context) {
	done := map[string]bool{} // pods
	for ctx.Err() == nil {
		changed := s.registry.Pods.Changed()
		if err := s.giveBackOf(ctx, done); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "jobs of ended workers not given back, trying again", "err", err)
			changed = nil
		}
		select {
		case <-changed:
			select {
			case <-time.After(cutRest): // many change at once
			case <-ctx.Done():
			}
		case <-time.After(cutAgain):
		case <-ctx.Done():
		}
	}
}

// giveBackOf looks at all pods; one that fails keeps no other from it.
func (s *Service) giveBackOf(ctx context.Context, done map[string]bool) error {
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
			err := s.giveBackJobs(ctx, p)
			errs = append(errs, err)
			done[p.ID] = err == nil
		}
	}
	for id := range done {
		if !there[id] {
			delete(done, id)
		}
	}
	return errors.Join(errs...)
}

// giveBackJobs ends the leases of a pod's worker. One that is lost already was
// ended, or given back, by the worker or by another gateway.
func (s *Service) giveBackJobs(ctx context.Context, p pod.Pod) error {
	e, err := s.registry.Endpoints.Get(ctx, p.Endpoint)
	if errors.Is(err, endpoint.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range p.Cut {
		lease, err := s.queue.Held(ctx, e, job.ID(id), p.ID)
		if err == nil {
			err = lease.GiveBack(ctx)
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
