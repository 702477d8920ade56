package gateway

import "github.com/gofiber/fiber/v2"

// Routes adds the worker protocol to the app. Each handler asks for the
// worker's token itself (caller). The polls are added by method, because Fiber's
// Get answers HEAD too, and a HEAD that takes a job would lose it.
func (s *Service) Routes(app *fiber.App) {
	v2 := app.Group("/v2/:endpoint")
	v2.Add(fiber.MethodGet, "/job-take/:worker", closing(s.take))
	v2.Add(fiber.MethodGet, "/job-take-batch/:worker", closing(s.takeBatch))
	v2.Add(fiber.MethodGet, "/job-stop/:worker", closing(s.stop))
	v2.Add(fiber.MethodGet, "/ping/:worker", s.ping)
	v2.Post("/job-done/:worker/:id", closing(s.done))
	v2.Post("/job-stream/:worker/:id", closing(s.chunk))
}

// closing ends the connection with the answer. RunPod's SDK keeps those of its
// polls and posts in one pool, and while a handler blocks its event loop it
// does not hear that one was closed: it would post the next chunk or result
// into a connection that a restart of the gateway has ended, and never again.
// Pings come from a process of their own, which looks, and repeats.
func closing(handle fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		c.Context().SetConnectionClose()
		return handle(c)
	}
}
