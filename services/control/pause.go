package control

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// minPause is the shortest pause.
const minPause = time.Second

// pauseBody says for how long; without, until the endpoint is resumed, at the
// latest after endpoint.MaxPause.
type pauseBody struct {
	DurationMs *int64 `json:"durationMs"`
}

// pauseEndpoint makes the endpoint hand out no jobs. It goes on taking them.
func (s *Service) pauseEndpoint(c *fiber.Ctx) error {
	body, err := bindOptional[pauseBody](c)
	if err != nil {
		return err
	}
	length := endpoint.MaxPause.Milliseconds()
	if body.DurationMs != nil {
		length = *body.DurationMs
	}
	if length < minPause.Milliseconds() || length > endpoint.MaxPause.Milliseconds() {
		return web.Errorf(web.InvalidRequest, "durationMs must be between %d and %d", minPause.Milliseconds(), endpoint.MaxPause.Milliseconds())
	}
	return s.setPause(c, s.queue.Now().Add(time.Duration(length)*time.Millisecond))
}

// resumeEndpoint ends a pause, if there is one. The record keeps the moment, so
// that a crash before the queue hears of it is repaired.
func (s *Service) resumeEndpoint(c *fiber.Ctx) error { return s.setPause(c, s.queue.Now()) }

func (s *Service) setPause(c *fiber.Ctx, until time.Time) error {
	ctx, cancel := web.Prompt(c)
	defer cancel()
	until = until.UTC().Truncate(time.Millisecond)
	e, err := s.registry.Endpoints.Update(ctx, strings.Clone(c.Params("id")), func(e endpoint.Endpoint) (endpoint.Endpoint, error) {
		e.PausedUntil = until
		return e, nil
	})
	if err != nil {
		return err
	}
	if e, err = s.applyPause(ctx, e); err != nil {
		return err
	}
	return c.JSON(viewOf(e, s.queue.Now()))
}

// applyPause tells the queue what the endpoint's record says, until both agree:
// somebody else may pause or resume at the same time.
func (s *Service) applyPause(ctx context.Context, e endpoint.Endpoint) (endpoint.Endpoint, error) {
	const tries = 10
	for range tries {
		if err := s.queue.Pause(ctx, e); err != nil {
			return e, fmt.Errorf("pause %s: %w: %w", e.ID, queue.ErrUnavailable, err)
		}
		now, err := s.registry.Endpoints.Find(ctx, e.ID)
		if err != nil || now.PausedUntil.Equal(e.PausedUntil) {
			return e, err
		}
		e = now
	}
	return e, fmt.Errorf("pause %s: %w", e.ID, registry.ErrConflict)
}
