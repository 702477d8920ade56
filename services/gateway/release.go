package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/retry"
	"flightline/shared/telemetry"
)

const (
	// minReleaseInterval is the least pause between two looks at the pods,
	// releaseRetryDelay the longest, and that after a failure.
	minReleaseInterval = 100 * time.Millisecond
	releaseRetryDelay  = 5 * time.Second
)

// podEnd is the end of one of a pod's starts.
type podEnd struct {
	pod   string
	start int
}

// releaseEndedWorkers gives back the jobs of workers that a driver stopped on request, or saw
// end, until ctx ends. Only the driver knows that they have ended, and it may not write
// records of jobs. Every gateway does this; the record decides which is first.
func (s *Service) releaseEndedWorkers(ctx context.Context) {
	done := map[podEnd]bool{}
	outage := telemetry.NewOutageLog()
	for ctx.Err() == nil {
		changed := s.registry.Pods.Changed()
		if err := s.releaseJobsOfPods(ctx, done); err != nil && ctx.Err() == nil {
			outage.Warn(ctx, s.log, "jobs of ended workers not given back, trying again", slog.Any("err", err))
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
func (s *Service) releaseJobsOfPods(ctx context.Context, done map[podEnd]bool) error {
	pods, err := s.registry.Pods.Known(ctx)
	if err != nil {
		return err
	}
	var errs []error
	there := map[podEnd]bool{}
	for _, p := range pods.All {
		if p.Driver == "" || len(p.Cut) == 0 && p.Gone.IsZero() {
			continue
		}
		end := podEnd{p.ID, p.Starts}
		if there[end] = true; !done[end] {
			err := s.releaseJobsOf(ctx, p)
			errs = append(errs, err)
			done[end] = err == nil
		}
	}
	maps.DeleteFunc(done, func(end podEnd, _ bool) bool { return !there[end] })
	return errors.Join(errs...)
}

// releaseJobsOf ends the leases of a pod's worker. A lease that is lost was
// ended or released by the worker or by another gateway.
func (s *Service) releaseJobsOf(ctx context.Context, p pod.Pod) error {
	e, err := s.registry.Endpoints.Get(ctx, p.Endpoint)
	if errors.Is(err, endpoint.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	ids, err := s.jobsOf(ctx, e, p)
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		lease, err := s.queue.Remote.LeaseOf(ctx, e, id, p.ID)
		switch {
		case err != nil:
		case p.Failed():
			err = lease.WorkerEnded(ctx)
		default:
			err = lease.Release(ctx)
		}
		switch {
		case errors.Is(err, queue.ErrLost):
		case err != nil:
			errs = append(errs, fmt.Errorf("pod %s: job %s: %w", p.ID, id, err))
		default:
			s.log.InfoContext(ctx, "job given back, its worker has ended", "job", id, "endpoint", e.ID, "worker", p.ID, "reason", p.Change)
		}
	}
	return errors.Join(errs...)
}

// jobsOf are the jobs that a pod's worker may have held when it ended: those that its last
// heartbeat named, and, if it is gone, those that it was handed since. After a lease they are
// others' anyway.
func (s *Service) jobsOf(ctx context.Context, e endpoint.Endpoint, p pod.Pod) ([]job.ID, error) {
	held := map[job.ID]job.Job{}
	if s.queue.Now().Sub(p.Gone) < e.Lease {
		var err error
		if held, err = s.queue.Lists.HeldBy(ctx, e, p.ID); err != nil {
			return nil, err
		}
	}
	for _, id := range p.Cut {
		held[job.ID(id)] = job.Job{}
	}
	return slices.Collect(maps.Keys(held)), nil
}
