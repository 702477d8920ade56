package control

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

// workerBody makes the token of a worker. Without an id one is made up.
type workerBody struct {
	ID *string `json:"id"`
}

// workerView is a worker that speaks HTTP, without what is secret about it.
type workerView struct {
	ID       string `json:"id"`
	Endpoint string `json:"endpoint"`
	// State is that of its last ping, "" if there was none lately.
	State     string    `json:"state,omitempty"`
	Running   []string  `json:"running"`
	Draining  bool      `json:"draining"`
	Last4     string    `json:"last4"`
	CreatedAt time.Time `json:"createdAt"`
	// PingIntervalMs is how often the worker should ping.
	PingIntervalMs int64 `json:"pingIntervalMs"`
	// Token is the token itself, in the answer that makes it and never again.
	Token string `json:"token,omitempty"`
	// Env is what the endpoint sets for its workers, secrets included, in that
	// answer only.
	Env map[string]string `json:"env,omitempty"`
}

func workerViewOf(e endpoint.Endpoint, t registry.Token) workerView {
	return workerView{
		ID: t.Worker, Endpoint: t.Endpoint, Draining: t.Draining, Last4: t.Last4, CreatedAt: t.Created,
		PingIntervalMs: pingInterval(e.Lease).Milliseconds(), Running: []string{},
	}
}

// pingInterval lets a worker miss two pings before it loses its jobs, or its
// place among those that live. RunPod's SDK takes whole seconds.
func pingInterval(lease time.Duration) time.Duration {
	return max(time.Second, min(registry.BeatEvery, lease/3).Truncate(time.Second))
}

func (s *Service) listWorkers(c *fiber.Ctx) error {
	ctx, cancel := prompt(c)
	defer cancel()
	e, err := s.registry.Endpoints.Get(ctx, c.Params("id"))
	if err != nil {
		return err
	}
	tokens, err := s.registry.Tokens.List(ctx, e.ID)
	if err != nil {
		return err
	}
	living, err := s.living(ctx, e.ID)
	if err != nil {
		return err
	}
	views := make([]workerView, 0, len(tokens))
	for _, t := range tokens {
		view := workerViewOf(e, t)
		if w, ok := living[t.Worker]; ok {
			view.State, view.Running = w.State, append(view.Running, w.Running...)
		}
		views = append(views, view)
	}
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

// issueToken lets a worker in. An earlier token of it is worthless then.
func (s *Service) issueToken(c *fiber.Ctx) error {
	ctx, cancel := prompt(c)
	defer cancel()
	body := workerBody{}
	if len(c.Request().Body()) > 0 {
		var err error
		if body, err = bind[workerBody](c); err != nil {
			return err
		}
	}
	e, err := s.registry.Endpoints.Get(ctx, c.Params("id"))
	if err != nil {
		return err
	}
	worker := newID()
	if body.ID != nil && *body.ID != "" {
		worker = *body.ID
	}
	plain, token, err := s.registry.Tokens.Issue(ctx, e.ID, worker)
	if err != nil {
		return err
	}
	view := workerViewOf(e, token)
	view.Token, view.Env = plain, e.Env
	return c.JSON(view)
}

func (s *Service) revokeToken(c *fiber.Ctx) error {
	ctx, cancel := prompt(c)
	defer cancel()
	e, err := s.registry.Endpoints.Get(ctx, c.Params("id"))
	if err != nil {
		return err
	}
	worker := strings.Clone(c.Params("worker"))
	if err := s.registry.Tokens.Revoke(ctx, e.ID, worker); err != nil {
		return err
	}
	if p, err := s.registry.Pods.Get(ctx, worker); err == nil && p.Endpoint == e.ID {
		// Of a locked one it is told once it falls silent.
		_, err := s.registry.Pods.Move(ctx, worker, pod.Remove, "Its token was revoked", s.queue.Now(), nil)
		if err != nil && !errors.Is(err, pod.ErrLocked) && !errors.Is(err, pod.ErrNotFound) {
			return err
		}
	}
	return c.SendStatus(fiber.StatusNoContent)
}

// drainWorker ends the handing out of jobs to a worker; those it has go on.
func (s *Service) drainWorker(c *fiber.Ctx) error {
	ctx, cancel := prompt(c)
	defer cancel()
	e, err := s.registry.Endpoints.Get(ctx, c.Params("id"))
	if err != nil {
		return err
	}
	token, err := s.registry.Tokens.Drain(ctx, e.ID, strings.Clone(c.Params("worker")))
	if err != nil {
		return err
	}
	return c.JSON(workerViewOf(e, token))
}
