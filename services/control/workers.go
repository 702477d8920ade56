package control

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// workerBody makes the token of a worker. Without an id one is made up.
type workerBody struct {
	ID *string `json:"id"`
}

// The protocols that workers speak.
const (
	overHTTP = "http"
	overNATS = "nats"
)

// workerView is a worker, without what is secret about it: one that speaks HTTP
// from the time it was let in, one that speaks NATS while it lives.
type workerView struct {
	ID       string `json:"id"`
	Endpoint string `json:"endpoint"`
	Protocol string `json:"protocol"`
	// State is that of its last ping, "" if there was none lately.
	State    string   `json:"state,omitempty"`
	Running  []string `json:"running"`
	Draining bool     `json:"draining"`
	// Last4 are the last characters of its token, "" of one that speaks NATS.
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
		ID: t.Worker, Endpoint: t.Endpoint, Protocol: overHTTP, Draining: t.Draining, Last4: t.Last4, CreatedAt: t.Created,
		PingIntervalMs: pingInterval(e.Lease).Milliseconds(), Running: []string{},
	}
}

// told adds what the worker said of itself.
func (v workerView) told(w registry.Worker) workerView {
	v.State, v.Running = w.State, append(v.Running, w.Running...)
	if w.Native {
		v.Protocol, v.PingIntervalMs = overNATS, registry.BeatEvery.Milliseconds()
	}
	v.Draining = v.Draining || w.Draining
	return v
}

// nativeViewOf is a worker that has no token.
func nativeViewOf(w registry.Worker) workerView {
	return workerView{ID: w.ID, Endpoint: w.Endpoint, CreatedAt: w.Started, Running: []string{}}.told(w)
}

// pingInterval lets a worker miss two pings before it loses its jobs, or its
// place among those that live. RunPod's SDK takes whole seconds.
func pingInterval(lease time.Duration) time.Duration {
	return max(time.Second, min(registry.BeatEvery, lease/3).Truncate(time.Second))
}

func (s *Service) listWorkers(c *fiber.Ctx) error {
	ctx, cancel := web.Prompt(c)
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
			view = view.told(w)
			delete(living, t.Worker)
		}
		views = append(views, view)
	}
	for _, w := range living {
		if w.Native {
			views = append(views, nativeViewOf(w))
		}
	}
	slices.SortFunc(views, func(a, b workerView) int { return strings.Compare(a.ID, b.ID) })
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
	ctx, cancel := web.Prompt(c)
	defer cancel()
	body, err := bindOptional[workerBody](c)
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
	plain, token, err := s.registry.Tokens.Issue(ctx, e.ID, worker)
	if err != nil {
		return err
	}
	view := workerViewOf(e, token)
	view.Token, view.Env = plain, e.Env
	return c.JSON(view)
}

func (s *Service) revokeToken(c *fiber.Ctx) error {
	ctx, cancel := web.Prompt(c)
	defer cancel()
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
		// Of a locked one it is told once it falls silent.
		_, err := pods.Move(ctx, worker, pod.Remove, "Its token was revoked", s.queue.Now(), nil)
		if err != nil && !errors.Is(err, pod.ErrLocked) && !errors.Is(err, pod.ErrNotFound) {
			return err
		}
	}
	return c.SendStatus(fiber.StatusNoContent)
}
