package api

import (
	"context"
	"errors"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/telemetry"
	"flightline/shared/web"
)

func (s *Service) run(c *fiber.Ctx) error { return s.submit(c, job.Async, preferredWait(c)) }

func (s *Service) runSync(c *fiber.Ctx) error {
	wait, err := syncWait(c)
	if err != nil {
		return err
	}
	return s.submit(c, job.Sync, wait)
}

// submit queues a job and answers at once, or after wait, or when it has ended.
func (s *Service) submit(c *fiber.Ctx, mode job.Mode, wait time.Duration) error {
	ctx, cancel := web.Prompt(c)
	defer cancel()
	again, repeatable, err := idempotencyOf(c) // before the body is let go
	if err != nil {
		return err
	}
	e, r, err := s.submission(ctx, c)
	if err != nil {
		return err
	}
	if repeatable {
		again.endpoint, again.mode, again.request, again.wait = e, mode, r, wait
		return s.submitOnce(ctx, c, again)
	}
	return s.begin(ctx, c, e, queue.NewID(mode), mode, r, wait, s.plain)
}

// begin queues a job under the id.
func (s *Service) begin(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint, id job.ID, mode job.Mode, r job.Request, wait time.Duration, submit submitter) error {
	c.Set(web.HeaderJobID, string(id))
	if wait == 0 {
		j, err := submit(ctx, e, id, mode, r)
		if err != nil {
			return err
		}
		return c.JSON(briefOf(j))
	}
	watch, err := s.queue.WatchNew(e, id) // before the submission, so that no end is missed
	if err != nil {
		return err
	}
	defer watch.Close()
	j, err := submit(ctx, e, id, mode, r)
	if err != nil {
		return err
	}
	telemetry.Queued(ctx)
	watch.Submitted(j)
	return s.await(c, e, id, watch, wait) //nolint:contextcheck // it outlasts ctx
}

func (s *Service) status(c *fiber.Ctx) error {
	ctx, cancel := web.Prompt(c)
	defer cancel()
	e, id, err := s.job(ctx, c)
	if err != nil {
		return err
	}
	ttl, given, err := ttlOf(c)
	if err != nil {
		return err
	}
	if !given {
		return s.look(ctx, c, e, id, preferredWait(c))
	}
	if err := web.Allow(c, s.registry.Keys, registry.Submit); err != nil {
		return err
	}
	j, err := s.queue.SetTTL(claiming(ctx, c), e, id, ttl)
	if err != nil {
		return err
	}
	return sendJob(c, j)
}

func (s *Service) statusSync(c *fiber.Ctx) error {
	wait, err := syncWait(c)
	if err != nil {
		return err
	}
	ctx, cancel := web.Prompt(c)
	defer cancel()
	e, id, err := s.job(ctx, c)
	if err != nil {
		return err
	}
	return s.look(ctx, c, e, id, wait)
}

// look answers how a job stands, after wait or when it has ended.
func (s *Service) look(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint, id job.ID, wait time.Duration) error {
	if wait == 0 {
		j, err := s.queue.Status(claiming(ctx, c), e, id)
		if err != nil {
			return err
		}
		return sendJob(c, j)
	}
	watch, err := s.queue.Watch(e, id)
	if err != nil {
		return err
	}
	defer watch.Close()
	return s.await(c, e, id, watch, wait) //nolint:contextcheck // it outlasts ctx
}

func (s *Service) cancel(c *fiber.Ctx) error { return s.move(c, s.queue.Cancel) }

func (s *Service) retry(c *fiber.Ctx) error { return s.move(c, s.again) }

// move answers an operation that changes a job's status at once.
func (s *Service) move(c *fiber.Ctx, do func(context.Context, endpoint.Endpoint, job.ID) (*job.Job, error)) error {
	ctx, cancel := web.Prompt(c)
	defer cancel()
	e, id, err := s.job(ctx, c)
	if err != nil {
		return err
	}
	j, err := do(ctx, e, id)
	if err != nil {
		return err
	}
	return c.JSON(briefOf(j))
}

// purge may take longer than a prompt answer if there is much to remove.
func (s *Service) purge(c *fiber.Ctx) error {
	e, err := s.registry.Endpoints.Get(c.UserContext(), c.Params("endpoint"))
	if err != nil {
		return err
	}
	removed, err := s.queue.Purge(c.UserContext(), e)
	if err != nil {
		return err
	}
	return c.JSON(purgeView{Removed: removed, Status: "completed"})
}

// await answers with the job's end, or with how it stands after wait. A client
// that left gets nothing and its job goes on.
func (s *Service) await(c *fiber.Ctx, e endpoint.Endpoint, id job.ID, watch *queue.Watch, wait time.Duration) error {
	web.BodyDone(c)
	held, release := web.Hold(c, wait)
	defer release()
	j, err := watch.Wait(claiming(held, c))
	if err != nil && held.Err() != nil {
		if errors.Is(context.Cause(held), web.ErrGone) {
			return nil
		}
		ctx, cancel := context.WithTimeout(c.UserContext(), web.AnswerWithin)
		defer cancel()
		j, err = s.queue.Status(claiming(ctx, c), e, id)
	}
	if err != nil {
		return err
	}
	return sendJob(c, j)
}

// claiming has room claimed for the answer before a large output is read with ctx.
func claiming(ctx context.Context, c *fiber.Ctx) context.Context {
	return queue.WithOutputClaim(ctx, func(bytes int) error { return web.ClaimAnswer(c, bytes) })
}
