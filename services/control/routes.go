package control

import (
	"slices"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/registry"
	"flightline/shared/web"
	"flightline/streams"
)

// maxBody bounds the bodies beneath /v1.
const maxBody = 1 << 20

// Routes adds /v1 to the app.
func (s *Service) Routes(app *fiber.App) {
	guard := []fiber.Handler{web.Auth(s.registry.Keys, registry.Control), web.MaxBody(maxBody)}
	guarded := func(h fiber.Handler) []fiber.Handler { return append(slices.Clip(guard), h) }

	v1 := app.Group("/v1")
	v1.Post("/endpoints", guarded(s.createEndpoint)...)
	v1.Get("/endpoints", guarded(s.listEndpoints)...)
	v1.Get("/endpoints/:id", guarded(s.getEndpoint)...)
	v1.Patch("/endpoints/:id", guarded(s.updateEndpoint)...)
	v1.Post("/endpoints/:id/update", guarded(s.updateEndpoint)...) // RunPod's older spelling
	v1.Delete("/endpoints/:id", guarded(s.durably(s.deleteEndpoint, streams.BucketEndpoints))...)

	v1.Post("/endpoints/:id/pause", guarded(s.durably(s.pauseEndpoint, streams.BucketEndpoints))...)
	v1.Post("/endpoints/:id/resume", guarded(s.durably(s.resumeEndpoint, streams.BucketEndpoints))...)
	v1.Get("/endpoints/:id/scaling", guarded(s.listScaling)...)

	v1.Get("/endpoints/:id/workers", guarded(s.listWorkers)...)
	v1.Post("/endpoints/:id/workers", guarded(s.durably(s.issueToken, streams.BucketTokens))...)
	v1.Delete("/endpoints/:id/workers/:worker", guarded(s.durably(s.revokeToken, streams.BucketTokens))...)
	v1.Post("/endpoints/:id/workers/:worker/drain", guarded(s.durably(s.drainWorker, streams.BucketTokens))...)

	v1.Get("/endpoints/:id/webhooks/deliveries", guarded(s.listDeliveries)...)
	v1.Post("/endpoints/:id/webhooks/replay", guarded(s.replayWebhooks)...)
	v1.Get("/endpoints/:id/webhooks/destinations", guarded(s.listDestinations)...)
	v1.Post("/endpoints/:id/webhooks/pause", guarded(s.durably(s.pauseDestination, streams.BucketDestinations))...)
	v1.Post("/endpoints/:id/webhooks/resume", guarded(s.durably(s.resumeDestination, streams.BucketDestinations))...)
	v1.Post("/endpoints/:id/webhooks/secret", guarded(s.durably(s.rotateSecret, streams.BucketEndpoints))...)

	s.podRoutes(v1, guarded)

	v1.Post("/keys", guarded(s.durably(s.createKey, streams.BucketKeys))...)
	v1.Get("/keys", guarded(s.listKeys)...)
	v1.Patch("/keys/:id", guarded(s.durably(s.updateKey, streams.BucketKeys))...)
	v1.Delete("/keys/:id", guarded(s.durably(s.revokeKey, streams.BucketKeys))...)
}

// durably answers only once what h wrote to the bucket is on the disk: a key
// that was revoked must not come back with the power.
func (s *Service) durably(h fiber.Handler, bucket string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		if err := h(c); err != nil {
			return err
		}
		return s.queue.Durable(c.UserContext(), streams.Bucket(bucket))
	}
}
