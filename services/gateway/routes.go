package gateway

import "github.com/gofiber/fiber/v2"

// Routes adds the worker protocol to the app. Each handler asks for the
// worker's token itself (caller). The polls are added by method, because Fiber's
// Get answers HEAD too, and a HEAD that takes a job would lose it.
func (s *Service) Routes(app *fiber.App) {
	v2 := app.Group("/v2/:endpoint")
	v2.Add(fiber.MethodGet, "/job-take/:worker", s.take)
	v2.Add(fiber.MethodGet, "/job-take-batch/:worker", s.takeBatch)
	v2.Add(fiber.MethodGet, "/job-stop/:worker", s.stop)
	v2.Add(fiber.MethodGet, "/ping/:worker", s.ping)
	v2.Post("/job-done/:worker/:id", s.done)
	v2.Post("/job-stream/:worker/:id", s.chunk)
}
