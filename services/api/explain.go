package api

import (
	"context"
	"errors"
	"strings"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// explain tells why a job is where it is.
func (s *Service) explain(c *fiber.Ctx) error {
	ctx, cancel := web.Prompt(c)
	defer cancel()
	e, err := s.registry.Endpoints.Get(ctx, c.Params("endpoint"))
	if err != nil {
		return err
	}
	x, err := s.explanation(ctx, e, job.ID(strings.Clone(c.Params("id"))))
	if err != nil {
		return err
	}
	return c.JSON(explainViewOf(x))
}

func (s *Service) explanation(ctx context.Context, e endpoint.Endpoint, id job.ID) (explanation, error) {
	if whole, err := e.Complete(); err == nil {
		e = whole // one made before there was scaling
	}
	x := explanation{endpoint: e}
	var err error
	if x.position, err = s.queue.Position(ctx, e, id); err != nil {
		return x, err
	}
	if x.workers, err = s.registry.Workers.Counts(ctx, e.ID); err != nil {
		return x, err
	}
	if x.decision, x.alive, err = s.decided(ctx, e); err != nil {
		return x, err
	}
	x.failure, err = s.lastFailure(ctx, e)
	x.now = s.queue.Now()
	return x, err
}

// decided is the last decision about this endpoint, not about an earlier one of
// the same id; nil if there is none. alive tells whether an autoscaler is active.
func (s *Service) decided(ctx context.Context, e endpoint.Endpoint) (d *registry.Decision, alive bool, err error) {
	if alive, err = s.registry.Scaling.Alive(ctx); err != nil {
		return nil, false, err
	}
	last, err := s.registry.Scaling.Last(ctx, e.ID)
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return nil, alive, nil
	case err != nil:
		return nil, alive, err
	case last.At.Before(e.Created):
		return nil, alive, nil
	}
	return &last, alive, nil
}

// lastFailure is the end of the worker of this endpoint that failed last, not of
// an earlier one of the same id. Those that were removed, stopped, or drained
// have not failed.
func (s *Service) lastFailure(ctx context.Context, e endpoint.Endpoint) (*workerFailure, error) {
	pods, err := s.registry.Pods.List(ctx)
	if err != nil {
		return nil, err
	}
	var last pod.Pod
	for _, p := range pods {
		mine := p.Endpoint == e.ID && !p.Changed.Before(e.Created)
		if mine && p.Failed() && p.Changed.After(last.Changed) {
			last = p
		}
	}
	if last.ID == "" {
		return nil, nil //nolint:nilnil // no worker ended
	}
	return &workerFailure{WorkerID: last.ID, At: web.Stamp(last.Changed), Text: last.Change}, nil
}
