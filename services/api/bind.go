package api

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/web"
)

// submission reads the endpoint and the body. What it returns shares no memory
// with the request.
func (s *Service) submission(ctx context.Context, c *fiber.Ctx) (endpoint.Endpoint, job.Request, error) {
	e, err := s.registry.Endpoints.Get(ctx, c.Params("endpoint"))
	if err != nil {
		return endpoint.Endpoint{}, job.Request{}, err
	}
	r, err := job.NewRequest(c.Request().Body()) // whatever the content type says
	web.DropBody(c)                              // up to 20 MB, not needed while the client waits
	r.Caller = s.limits.caller(c)
	return e, r, err
}

// job reads the endpoint and the job's id.
func (s *Service) job(ctx context.Context, c *fiber.Ctx) (endpoint.Endpoint, job.ID, error) {
	e, err := s.registry.Endpoints.Get(ctx, c.Params("endpoint"))
	if err != nil {
		return endpoint.Endpoint{}, "", err
	}
	id := job.ID(strings.Clone(c.Params("id")))
	if !id.Valid() {
		return endpoint.Endpoint{}, "", job.ErrNotFound
	}
	return e, id, nil
}

// waitOf reads how long the client wants to wait. The text of the error is
// what RunPod's service says.
func waitOf(c *fiber.Ctx) (time.Duration, error) {
	return millis(c, "wait", job.DefaultWait, job.MinWait, job.MaxWait)
}

// ttlOf reads a new ttl, if one is given.
func ttlOf(c *fiber.Ctx) (ttl time.Duration, given bool, err error) {
	if !c.Context().QueryArgs().Has("ttl") {
		return 0, false, nil
	}
	ttl, err = millis(c, "ttl", 0, job.MinChangedTTL, job.MaxTTL)
	return ttl, true, err
}

// millis reads a parameter of whole milliseconds.
func millis(c *fiber.Ctx, name string, standard, least, most time.Duration) (time.Duration, error) {
	if !c.Context().QueryArgs().Has(name) {
		return standard, nil
	}
	n, err := strconv.ParseInt(c.Query(name), 10, 64)
	if err != nil || n < least.Milliseconds() || n > most.Milliseconds() {
		return 0, web.Errorf(web.InvalidRequest, "%s is invalid; must be between %d and %d", name, least.Milliseconds(), most.Milliseconds())
	}
	return time.Duration(n) * time.Millisecond, nil
}
