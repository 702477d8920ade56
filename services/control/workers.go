package control

import (
	"context"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
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
	view.Token = plain
	return c.JSON(view)
}

func (s *Service) revokeToken(c *fiber.Ctx) error {
	if err := s.registry.Tokens.Revoke(c.UserContext(), strings.Clone(c.Params("id")), strings.Clone(c.Params("worker"))); err != nil {
		return err
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
