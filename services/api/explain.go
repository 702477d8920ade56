package api

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

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
	workers, err := s.registry.Workers.List(ctx, e.ID)
	if err != nil {
		return x, err
	}
	if x.counts, err = s.queue.CountByStatus(ctx, e, registry.CountWorkers(workers).Jobs); err != nil {
		return x, err
	}
	if x.decision, x.alive, err = s.decided(ctx, e); err != nil {
		return x, err
	}
	pods, err := s.registry.Pods.List(ctx)
	if err != nil {
		return x, err
	}
	x.workers, x.failure = registry.CountWorkers(workers).States, lastFailure(pods, e)
	x.holder, x.now = holderOf(x.position.Job, workers, pods), s.queue.Now()
	return x, nil
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
// an earlier one of the same id; nil if there is none. Those that were removed,
// stopped, or drained have not failed.
func lastFailure(pods []pod.Pod, e endpoint.Endpoint) *workerFailure {
	var last pod.Pod
	for _, p := range pods {
		mine := p.Endpoint == e.ID && !p.Changed.Before(e.Created)
		if mine && p.Failed() && p.Changed.After(last.Changed) {
			last = p
		}
	}
	if last.ID == "" {
		return nil
	}
	return &workerFailure{WorkerID: last.ID, At: web.Stamp(last.Changed), Text: last.Change}
}

// holder is what is known of the worker that a job's record names.
type holder struct {
	// seen is its last heartbeat; the zero time if it was silent for 15 s.
	seen time.Time
	// names: that heartbeat names the job.
	names bool
	// ended is when its pod ended, and why; the zero time if it has not.
	ended time.Time
	why   string
}

// holderOf is the holder of a job, among the living workers and the pods.
func holderOf(j job.Job, workers []registry.Worker, pods []pod.Pod) (h holder) {
	for _, w := range workers {
		if w.ID == j.Worker {
			h.seen, h.names = w.Seen, slices.Contains(w.Running, string(j.ID))
		}
	}
	for _, p := range pods {
		if p.ID == j.Worker && p.Endpoint == j.Endpoint && p.Status != pod.Running {
			h.ended, h.why = p.Changed, p.Change
		}
	}
	return h
}
