package control

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

// The protocols that workers speak.
const (
	overHTTP = "http"
	overNATS = "nats"
)

func workerViewOf(e endpoint.Endpoint, t registry.Token) api.Worker {
	return api.Worker{
		ID: t.Worker, Endpoint: t.Endpoint, Protocol: overHTTP, Draining: t.Draining, Last4: t.Last4, Created: t.Created,
		PingIntervalMs: pingInterval(e.Lease).Milliseconds(), Running: []string{},
	}
}

// withHeartbeat adds what the worker reports of itself.
func withHeartbeat(v api.Worker, w registry.Worker) api.Worker {
	v.State, v.Running = w.State, append(v.Running, w.Running...)
	if w.Native {
		v.Protocol, v.PingIntervalMs = overNATS, registry.BeatEvery.Milliseconds()
	}
	v.Draining = v.Draining || w.Draining
	return v
}

// nativeViewOf is a worker that has no token.
func nativeViewOf(w registry.Worker) api.Worker {
	return withHeartbeat(api.Worker{ID: w.ID, Endpoint: w.Endpoint, Created: w.Started, Running: []string{}}, w)
}

// pingInterval lets a worker miss two pings before it loses its jobs, or its
// place among those that live. RunPod's SDK takes whole seconds.
func pingInterval(lease time.Duration) time.Duration {
	return max(time.Second, min(registry.BeatEvery, lease/3).Truncate(time.Second))
}

func (s *Service) listWorkers(ctx context.Context, c *fiber.Ctx) error {
	e, err := s.registry.Endpoints.Get(ctx, c.Params("id"))
	if err != nil {
		return err
	}
	tokens, err := s.registry.Tokens.List(ctx, e.ID)
	if err != nil {
		return err
	}
	living, err := s.livingNow(ctx, e)
	if err != nil {
		return err
	}
	pods, err := s.registry.Pods.Known(ctx)
	if err != nil {
		return err
	}
	startups := map[string]*api.Startup{}
	for _, p := range pods.Of[e.ID] {
		startups[p.ID] = api.StartupOf(p)
	}
	views := make([]api.Worker, 0, len(tokens))
	for _, t := range tokens {
		view := workerViewOf(e, t)
		view.Startup = startups[t.Worker]
		if w, ok := living[t.Worker]; ok {
			view = withHeartbeat(view, w)
			delete(living, t.Worker)
		}
		views = append(views, view)
	}
	for _, w := range living {
		if w.Native {
			views = append(views, nativeViewOf(w))
		}
	}
	slices.SortFunc(views, func(a, b api.Worker) int { return strings.Compare(a.ID, b.ID) })
	return c.JSON(views)
}

func (s *Service) living(ctx context.Context, endpointID string) (map[string]registry.Worker, error) {
	workers, err := s.registry.Workers.List(ctx, endpointID)
	if err != nil {
		return nil, err
	}
	living := make(map[string]registry.Worker, len(workers))
	for _, w := range workers {
		living[w.ID] = w
	}
	return living, nil
}

// livingNow is living without the jobs that ended since the last heartbeats. A job
// that no replica shows is kept: its worker must not look as if it could be stopped.
func (s *Service) livingNow(ctx context.Context, e endpoint.Endpoint) (map[string]registry.Worker, error) {
	living, err := s.living(ctx, e.ID)
	if err != nil {
		return nil, err
	}
	var ids []job.ID
	for _, w := range living {
		for _, id := range w.Running {
			ids = append(ids, job.ID(id))
		}
	}
	if len(ids) == 0 {
		return living, nil
	}
	jobs, err := s.queue.Lists.Lookup(ctx, e, ids)
	if err != nil {
		return nil, err
	}
	for id, w := range living {
		w.Running = slices.DeleteFunc(slices.Clone(w.Running), func(id string) bool {
			j, seen := jobs[job.ID(id)]
			return seen && j.Status.Terminal()
		})
		if len(w.Running) == 0 && w.State == registry.WorkerRunning {
			w.State = registry.WorkerIdle
		}
		living[id] = w
	}
	return living, nil
}

// issueToken makes a worker's token and revokes its earlier one.
func (s *Service) issueToken(ctx context.Context, c *fiber.Ctx) error {
	body, err := bindOptional[api.WorkerSpec](c)
	if err != nil {
		return err
	}
	e, err := s.registry.Endpoints.Get(ctx, c.Params("id"))
	if err != nil {
		return err
	}
	worker := newID()
	if body.ID != nil && *body.ID != "" {
		worker = *body.ID
	}
	plain, token, err := issueFor(ctx, s.registry, e, worker)
	if err != nil {
		return err
	}
	view := workerViewOf(e, token)
	view.Token, view.Env = plain, e.Env
	return c.JSON(view)
}

// issueFor issues a token for a worker of the endpoint. A deletion at the same time may have
// dropped the endpoint's tokens before: then the token is revoked, or it would let the
// worker in at the next endpoint of that id.
func issueFor(ctx context.Context, r *registry.Registry, e endpoint.Endpoint, worker string) (plain string, token registry.Token, err error) {
	if plain, token, err = r.Tokens.Issue(ctx, e.ID, worker); err != nil {
		return "", token, err
	}
	now, err := r.Endpoints.Find(ctx, e.ID)
	if err == nil && (now.Deleting || !now.Created.Equal(e.Created)) {
		err = endpoint.ErrNotFound
	}
	if errors.Is(err, endpoint.ErrNotFound) {
		if undo := r.Tokens.Revoke(ctx, e.ID, worker); undo != nil && !errors.Is(undo, registry.ErrNotFound) {
			err = undo
		}
	}
	return plain, token, err
}

func (s *Service) revokeToken(ctx context.Context, c *fiber.Ctx) error {
	e, err := s.registry.Endpoints.Get(ctx, c.Params("id"))
	if err != nil {
		return err
	}
	worker := strings.Clone(c.Params("worker"))
	if err := s.registry.Tokens.Revoke(ctx, e.ID, worker); err != nil {
		return noThing(err, "worker")
	}
	pods := s.registry.Pods.At(e.ID)
	if p, err := pods.Get(ctx, worker); err == nil && p.Endpoint == e.ID {
		// The record of a locked one changes once it falls silent.
		_, err := pods.Move(ctx, worker, pod.Remove, "Its token was revoked", s.queue.Now(), nil)
		if err != nil && !errors.Is(err, pod.ErrLocked) && !errors.Is(err, pod.ErrNotFound) {
			return err
		}
	}
	return c.SendStatus(fiber.StatusNoContent)
}

// drainWorker ends the handing out of jobs to a worker; those it has go on. One
// that speaks HTTP is given no more by the gateways, which look at its token; one
// that speaks NATS reads it in its pod's record, and leaves.
func (s *Service) drainWorker(ctx context.Context, c *fiber.Ctx) error {
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
	admitted := err == nil
	if !admitted && (!there || !errors.Is(err, registry.ErrNotFound)) {
		return noThing(err, "worker")
	}
	living, err := s.livingNow(ctx, e)
	if err != nil {
		return err
	}
	w, lives := living[worker]
	if !admitted && (p.Driver != "" || lives && !w.Native) {
		// One of a fleet is let in when it is started; until then we speak for it.
		token, admitted = registry.Token{Endpoint: e.ID, Worker: worker, Created: p.Created}, true
	}
	view := workerViewOf(e, token)
	switch {
	case !admitted && lives:
		view = nativeViewOf(w)
	case !admitted: // its heartbeat is on its way
		view = nativeViewOf(registry.Worker{ID: worker, Endpoint: e.ID, Native: true, Started: s.queue.Now().UTC()})
	case lives:
		view = withHeartbeat(view, w)
	}
	view.Draining = true
	return c.JSON(view)
}

// drainPod asks the pod of a worker to drain, and reports whether there is one
// that runs. A worker that never pinged has none.
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
