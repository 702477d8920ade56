package api

import (
	"github.com/gofiber/fiber/v2"

	"flightline/shared/events"
	"flightline/shared/web"
)

// health tells how the endpoint does; no number is older than a second.
func (s *Service) health(c *fiber.Ctx) error {
	ctx, cancel := web.Prompt(c)
	defer cancel()
	e, err := s.registry.Endpoints.Get(ctx, c.Params("endpoint"))
	if err != nil {
		return err
	}
	workers, err := s.registry.Workers.Counts(ctx, e.ID)
	if err != nil {
		return err
	}
	stats, err := s.queue.CountByStatus(ctx, e, workers.Jobs)
	if err != nil {
		return err
	}
	var totals events.Totals
	if s.events != nil {
		if totals, err = s.events.Totals(ctx, e.ID); err != nil {
			return err
		}
	}
	return c.JSON(healthOf(stats, totals, workers.States))
}
