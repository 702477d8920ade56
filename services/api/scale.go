package api

import (
	"context"
	"errors"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// scaleView answers scale: the numbers that whoever starts workers goes by.
// Wanted is how many there should be.
type scaleView struct {
	Known      bool   `json:"known"`
	Wanted     int    `json:"wanted"`
	Current    int    `json:"current"`
	Starting   int    `json:"starting"`
	Idle       int    `json:"idle"`
	Running    int    `json:"running"`
	Unhealthy  int    `json:"unhealthy"`
	Queued     int    `json:"queued"`
	QueuedLow  int    `json:"queuedLowPriority"`
	InProgress int    `json:"inProgress"`
	WorkersMin int    `json:"workersMin"`
	WorkersMax int    `json:"workersMax"`
	Reason     string `json:"reason"`
	Text       string `json:"text"`
	// Hold: a number was unknown, and Wanted is what it was before.
	Hold bool `json:"hold"`
	// At is when it was decided; wanted, reason, text and hold are that decision's,
	// until another one. All else is as it is now, at most a few seconds old.
	At string `json:"at"`
}

// unknownView is the answer while nobody decides. It has no number, so that a
// scaler that reads wanted keeps what there is.
type unknownView struct {
	Known bool   `json:"known"`
	Text  string `json:"text"`
}

// scale tells how many workers the autoscaler wants.
func (s *Service) scale(c *fiber.Ctx) error {
	ctx, cancel := web.Prompt(c)
	defer cancel()
	e, err := s.registry.Endpoints.Get(ctx, c.Params("endpoint"))
	if err != nil {
		return err
	}
	d, alive, err := s.decided(ctx, e)
	switch {
	case err != nil:
		return err
	case !alive:
		return c.JSON(unknownView{Text: "no autoscaler is active"})
	case d == nil:
		return c.JSON(unknownView{Text: "the autoscaler has not decided about this endpoint yet"})
	}
	v := scaleView{
		Known: true, Wanted: d.Wanted, WorkersMin: e.WorkersMin, WorkersMax: e.WorkersMax,
		Reason: d.Reason, Text: d.Text, Hold: d.Hold, At: web.Stamp(d.At),
	}
	if err := s.number(ctx, e, &v); err != nil {
		return err
	}
	return c.JSON(v)
}

// number counts jobs and workers as they are now, not when it was decided:
// that may be long ago.
func (s *Service) number(ctx context.Context, e endpoint.Endpoint, v *scaleView) error {
	workers, err := s.registry.Workers.List(ctx, e.ID)
	if err != nil {
		return err
	}
	stats, err := s.queue.CountByStatus(ctx, e, registry.CountWorkers(workers).Jobs)
	if err != nil {
		return err
	}
	v.Queued, v.QueuedLow, v.InProgress = stats.Queued-stats.QueuedLow, stats.QueuedLow, stats.Running-stats.RunningLow
	if d := pod.Driver(e.Fleet.Driver); d != "" && d != pod.External {
		workers, err = s.fleet(ctx, e, workers)
	} else {
		workers, err = s.drained(ctx, workers)
	}
	if err != nil {
		return err
	}
	for _, w := range workers {
		switch {
		case w.Draining:
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

// drained are all of them, those marked that were told to drain and speak HTTP:
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
	pods, err := s.registry.Pods.List(ctx)
	if err != nil {
		return nil, err
	}
	heard := map[string]registry.Worker{}
	for _, w := range all {
		heard[w.ID] = w
	}
	var fleet []registry.Worker
	for _, p := range pods {
		if p.Endpoint != e.ID || p.Driver == "" || p.Driver == pod.External || p.Status != pod.Running {
			continue
		}
		w, there := heard[p.ID]
		if !there {
			w.State = registry.WorkerInitializing
		}
		w.Draining = w.Draining || p.Drains(p.Started)
		fleet = append(fleet, w)
	}
	return fleet, nil
}
