package api

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/queue"
	"flightline/shared/registry"
)

// health answers the counts of jobs, at most a second old, of workers by their last
// heartbeats, and of what the recorder has counted.
func (s *Service) health(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint) error {
	workers, err := s.registry.Workers.Counts(ctx, e.ID)
	if err != nil {
		return err
	}
	stats, err := s.queue.Counts.ByStatus(ctx, e, workers.Jobs)
	if err != nil {
		return err
	}
	totals, err := s.events.Totals(ctx, e.ID)
	if err != nil {
		return err
	}
	v := healthOf(stats.Stats, totals, workers.States)
	v.Jobs.WorkerLost = s.registry.Workers.CountLost(stats.Held, s.queue.Now())
	return c.JSON(v)
}

// healthOf counts a worker whose last heartbeat is older than the end of its job as
// idle: no more of them run than there are jobs in progress.
func healthOf(s queue.Stats, t events.Totals, workers map[string]int) api.Health {
	if ended := workers[registry.WorkerRunning] - s.Running; ended > 0 {
		workers[registry.WorkerRunning] -= ended
		workers[registry.WorkerIdle] += ended
	}
	return api.Health{
		Jobs: api.JobCounts{
			Completed: int(t.Completed), Failed: int(t.Failed + t.TimedOut), Retried: int(t.Retried),
			InProgress: s.Running, InQueue: s.Queued,
		},
		Workers: workersOf(workers),
	}
}

func workersOf(workers map[string]int) api.WorkerCounts {
	return api.WorkerCounts{
		Idle: workers[registry.WorkerIdle], Initializing: workers[registry.WorkerInitializing],
		Ready: workers[registry.WorkerIdle], Running: workers[registry.WorkerRunning],
		Throttled: workers[registry.WorkerThrottled], Unhealthy: workers[registry.WorkerUnhealthy],
		Sleeping: workers[registry.WorkerSleeping],
	}
}
