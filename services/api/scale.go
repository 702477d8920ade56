package api

import (
	"context"
	"errors"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

// scale answers how many workers the autoscaler wants.
func (s *Service) scale(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint) error {
	d, alive, err := s.decided(ctx, e)
	switch {
	case err != nil:
		return err
	case !alive:
		return c.JSON(api.UnknownScale{Text: "no autoscaler is active"})
	case d == nil:
		return c.JSON(api.UnknownScale{Text: "the autoscaler has not decided about this endpoint yet"})
	}
	v := api.Scale{
		Known: true, Wanted: d.Wanted, WorkersMin: e.WorkersMin, WorkersMax: e.WorkersMax,
		Reason: d.Reason, Text: d.Text, Hold: d.Hold, At: api.FormatTime(d.At),
	}
	if err := s.countNow(ctx, e, &v); err != nil {
		return err
	}
	return c.JSON(v)
}

// countNow counts jobs and workers as they are now, not when it was decided:
// that may be long ago.
func (s *Service) countNow(ctx context.Context, e endpoint.Endpoint, v *api.Scale) error {
	workers, err := s.registry.Workers.List(ctx, e.ID)
	if err != nil {
		return err
	}
	stats, err := s.queue.Counts.ByStatus(ctx, e, registry.CountWorkers(workers).Jobs)
	if err != nil {
		return err
	}
	v.Queued, v.QueuedLow, v.InProgress = stats.Queued-stats.QueuedLow, stats.QueuedLow, stats.Running-stats.RunningLow
	if e.Fleet.External() {
		workers, err = s.drained(ctx, workers)
	} else {
		workers, err = s.fleet(ctx, e, workers)
	}
	if err != nil {
		return err
	}
	for _, w := range workers {
		switch {
		case w.Draining, w.State == registry.WorkerSleeping:
			continue
		case w.State == registry.WorkerUnhealthy:
			v.Unhealthy++
			continue
		case w.State == registry.WorkerInitializing:
			v.Starting++
		case w.State == registry.WorkerRunning || len(w.Running) > 0:
			v.Running++
		default:
			v.Idle++
		}
		v.Current++
	}
	return nil
}

// drained are all of them, those marked that were asked to drain and speak HTTP:
// they do not know it, their tokens do.
func (s *Service) drained(ctx context.Context, all []registry.Worker) ([]registry.Worker, error) {
	for i, w := range all {
		if w.Native || w.Draining {
			continue
		}
		token, err := s.registry.Tokens.Find(ctx, w.Endpoint, w.ID)
		if err != nil && !errors.Is(err, registry.ErrNotFound) {
			return nil, err
		}
		all[i].Draining = token.Draining
	}
	return all, nil
}

// fleet are the workers that drivers run for the endpoint: those of all that it
// has, and the pods that were not heard of yet.
func (s *Service) fleet(ctx context.Context, e endpoint.Endpoint, all []registry.Worker) ([]registry.Worker, error) {
	pods, err := s.registry.Pods.Known(ctx)
	if err != nil {
		return nil, err
	}
	heard := map[string]registry.Worker{}
	for _, w := range all {
		heard[w.ID] = w
	}
	var fleet []registry.Worker
	for _, p := range pods.Of[e.ID] {
		if p.Driver == "" || p.Driver == pod.External || p.Status != pod.Running {
			continue
		}
		w, there := heard[p.ID]
		if !there || p.Sleep.Wakes() && w.State == registry.WorkerSleeping {
			w.State = registry.WorkerInitializing
		}
		w.Draining = w.Draining || p.Drains(p.Started)
		fleet = append(fleet, w)
	}
	return fleet, nil
}
