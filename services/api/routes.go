package api

import (
	"github.com/gofiber/fiber/v2"

	"flightline/shared/job"
	"flightline/shared/limit"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// maxSmallBody bounds the bodies of operations that read none; clients send
// "{}" with them all the same.
const maxSmallBody = 64 << 10

// Routes adds the queue API to the app. The order within a route is: may the
// caller, may it now (limits), is the body too large, do it.
func (s *Service) Routes(app *fiber.App) {
	submit := web.Auth(s.registry.Keys, registry.Submit)
	read := web.Auth(s.registry.Keys, registry.Read)
	admin := web.Auth(s.registry.Keys, registry.Admin)
	small := web.MaxBody(maxSmallBody)
	both := []string{fiber.MethodGet, fiber.MethodPost} // some clients poll with POST

	v2 := app.Group("/v2/:endpoint")
	v2.Post("/run", submit, s.limited(limit.Run), web.MaxBody(job.MaxBody), s.run)
	v2.Post("/runsync", submit, s.limited(limit.RunSync), web.MaxBody(job.MaxSyncBody), s.runSync)
	for _, method := range both {
		v2.Add(method, "/status/:id", read, s.limited(limit.Status), small, s.status)
		v2.Add(method, "/status-sync/:id", read, s.limited(limit.Status), small, s.statusSync)
		v2.Add(method, "/stream/:id", read, s.limited(limit.Stream), small, s.stream)
	}
	v2.Post("/cancel/:id", submit, s.limited(limit.Cancel), small, s.cancel)
	v2.Post("/retry/:id", submit, s.limited(limit.Retry), small, s.retry)
	v2.Post("/purge-queue", admin, s.limited(limit.PurgeQueue), small, s.purge)
	for _, method := range both { // not Get, which would take HEAD for a job
		v2.Add(method, "/openai/+", submit, s.limited(limit.OpenAI), web.MaxBody(job.MaxSyncBody), s.openAI)
	}
	v2.Get("/requests", read, s.limited(limit.Requests), small, s.requests)
	v2.Get("/events", read, s.limited(limit.Stream), small, s.eventsOfEndpoint)
	v2.Get("/events/:id", read, s.limited(limit.Stream), small, s.eventsOfJob)
	v2.Get("/explain/:id", read, s.limited(limit.Explain), small, s.explain)
	v2.Get("/scale", read, s.limited(limit.Scale), small, s.scale)
	v2.Get("/health", read, small, s.health)
}
