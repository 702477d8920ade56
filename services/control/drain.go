package control

import (
	"context"
	"errors"
	"strings"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// drainWorker ends the handing out of jobs to a worker; those it has go on. One
// that speaks HTTP is given no more by the gateways, which look at its token; one
// that speaks NATS reads it in its pod's record, and leaves.
func (s *Service) drainWorker(c *fiber.Ctx) error {
	ctx, cancel := web.Prompt(c)
	defer cancel()
	e, err := s.registry.Endpoints.Get(ctx, c.Params("id"))
	if err != nil {
		return err
	}
	worker := strings.Clone(c.Params("worker"))
	p, there, err := s.drainPod(ctx, e.ID, worker)
	if err != nil {
		return err
	}
	token, err := s.registry.Tokens.Drain(ctx, e.ID, worker)
	let := err == nil
	if !let && (!there || !errors.Is(err, registry.ErrNotFound)) {
		return noThing(err, "worker")
	}
	living, err := s.living(ctx, e.ID)
	if err != nil {
		return err
	}
	w, lives := living[worker]
	if !let && (p.Driver != "" || lives && !w.Native) {
		// One of a fleet is let in when it is started; until then we speak for it.
		token, let = registry.Token{Endpoint: e.ID, Worker: worker, Created: p.Created}, true
	}
	view := workerViewOf(e, token)
	switch {
	case !let && lives:
		view = nativeViewOf(w)
	case !let: // its heartbeat is on its way
		view = nativeViewOf(registry.Worker{ID: worker, Endpoint: e.ID, Native: true, Started: s.queue.Now().UTC()})
	case lives:
		view = view.told(w)
	}
	view.Draining = true
	return c.JSON(view)
}

// drainPod asks the pod of a worker to drain, and reports whether there is one
// that runs. Of a worker that was never heard of there is none.
func (s *Service) drainPod(ctx context.Context, endpointID, worker string) (p pod.Pod, there bool, err error) {
	pods := s.registry.Pods.At(endpointID)
	p, err = pods.Get(ctx, worker)
	if errors.Is(err, pod.ErrNotFound) || err == nil && (p.Endpoint != endpointID || p.Status != pod.Running) {
		return pod.Pod{}, false, nil
	}
	if err == nil {
		p, err = pods.Drain(ctx, worker, "by request", s.queue.Now())
	}
	return p, err == nil, err
}
