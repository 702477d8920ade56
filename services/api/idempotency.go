package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/web"
	"flightline/streams"
)

const (
	headerIdempotencyKey = "Idempotency-Key"
	// headerReplayed is there, "true", if the answer is that of an earlier request.
	headerReplayed = "Idempotent-Replayed"
	// maxIdempotencyKey is the longest key, in characters.
	maxIdempotencyKey = 255
)

// repeatable is a submission that may come several times and is to run once.
type repeatable struct {
	endpoint endpoint.Endpoint
	mode     job.Mode
	request  job.Request
	wait     time.Duration

	// key and caller are as the client sent them, body is the hash of it.
	key, caller, body string
	name              string // in the registry
	job.ID
}

// idempotencyOf reads the Idempotency-Key. known is false if there is none,
// which is the rule and costs one look at the headers.
func idempotencyOf(c *fiber.Ctx) (r repeatable, known bool, err error) {
	key := c.Request().Header.Peek(headerIdempotencyKey)
	if key == nil {
		return repeatable{}, false, nil
	}
	if len(key) == 0 || len(key) > maxIdempotencyKey {
		return repeatable{}, false, web.Errorf(web.InvalidRequest, "%s must have 1 to %d characters", headerIdempotencyKey, maxIdempotencyKey)
	}
	for _, b := range key {
		if b <= ' ' || b > '~' {
			return repeatable{}, false, web.Errorf(web.InvalidRequest, "%s must have visible ASCII characters only", headerIdempotencyKey)
		}
	}
	sum := sha256.Sum256(c.Request().Body())
	return repeatable{key: string(key), caller: strings.Clone(web.Key(c)), body: hex.EncodeToString(sum[:])}, true, nil
}

// submitOnce submits the job, or answers again what an earlier request with
// the key was answered. The key is taken before the job is queued and marked
// afterwards, so whoever finds it unmarked asks whether anybody knows the job,
// and if not queues it under the id that the key stands for.
func (s *Service) submitOnce(ctx context.Context, c *fiber.Ctx, r repeatable) error {
	r.name = registry.IdempotencyKey(r.endpoint, r.caller, r.key)
	sub, first, err := s.registry.Idempotency.Claim(ctx, r.name, registry.Submission{Job: queue.NewID(r.mode), Mode: r.mode, Body: r.body})
	if err != nil {
		return err
	}
	if !sub.Same(r.mode, r.body) {
		return web.Errorf(web.IdempotencyMismatch, "%s was used for another request; each request needs its own", headerIdempotencyKey)
	}
	r.ID = sub.Job
	c.Set(web.HeaderJobID, string(r.ID))
	// A power loss must not take the key and leave the job.
	if err := s.queue.Durable(ctx, streams.Bucket(streams.BucketIdempotency)); err != nil {
		return err
	}
	if first {
		again := func(ctx context.Context, e endpoint.Endpoint, id job.ID, mode job.Mode, request job.Request) (*job.Job, error) {
			j, _, err := s.queue.SubmitAgain(ctx, e, id, mode, request) // a repetition may have been faster
			return j, err
		}
		return s.begin(ctx, c, r.endpoint, r.ID, r.mode, r.request, r.wait, s.accepting(r, sub, again))
	}
	return s.replay(ctx, c, r, sub)
}

// submitter is queue.Submit.
type submitter func(context.Context, endpoint.Endpoint, job.ID, job.Mode, job.Request) (*job.Job, error)

// accepting marks the key after submit. That it may fail is why an unmarked one
// proves nothing.
func (s *Service) accepting(r repeatable, sub registry.Submission, submit submitter) submitter {
	submit = traced(submit)
	return func(ctx context.Context, e endpoint.Endpoint, id job.ID, mode job.Mode, request job.Request) (*job.Job, error) {
		j, err := submit(ctx, e, id, mode, request)
		if err != nil {
			return nil, err
		}
		if err := s.registry.Idempotency.Accept(ctx, r.name, sub); err != nil {
			s.log.DebugContext(ctx, "idempotency key not marked, the job's own traces decide", "endpoint", e.ID, "job", id, "error", err)
		}
		return j, nil
	}
}

// replay answers a request that came before: with its first answer, or for
// /runsync with the job's end; once the job is gone, with the last that is
// known of it. If the first request never got its job into the queue, this one
// does.
func (s *Service) replay(ctx context.Context, c *fiber.Ctx, r repeatable, sub registry.Submission) error {
	_, err := s.queue.Accepted(ctx, r.endpoint, r.ID)
	queued := err == nil
	if errors.Is(err, job.ErrNotFound) {
		known, lost := s.lastKnown(ctx, r, sub)
		if lost == nil {
			c.Set(headerReplayed, "true")
			return c.JSON(briefView{ID: r.ID, Status: known})
		}
		if err = lost; errors.Is(lost, job.ErrNotFound) {
			_, err = s.accepting(r, sub, func(ctx context.Context, e endpoint.Endpoint, id job.ID, mode job.Mode, request job.Request) (j *job.Job, err error) {
				j, queued, err = s.queue.SubmitAgain(ctx, e, id, mode, request)
				return j, err
			})(ctx, r.endpoint, r.ID, r.mode, r.request)
		}
	}
	if err != nil {
		return err
	}
	if queued {
		c.Set(headerReplayed, "true")
	}
	if r.wait == 0 {
		return c.JSON(briefView{ID: r.ID, Status: job.InQueue})
	}
	r.request = job.Request{} // up to 20 MB, whose room is given back while the client waits
	err = s.look(ctx, c, r.endpoint, r.ID, r.wait)
	if errors.Is(err, job.ErrNotFound) { // it ended in the meantime, and its retention too
		known, err := s.lastKnown(ctx, r, sub)
		if err != nil {
			return err
		}
		return c.JSON(briefView{ID: r.ID, Status: known})
	}
	return err
}

// lastKnown is the status that the log has of a job that is gone, or the record
// where nobody writes the log. One without any trace was never picked up;
// job.ErrNotFound means that it may not even have been queued.
func (s *Service) lastKnown(ctx context.Context, r repeatable, sub registry.Submission) (job.Status, error) {
	if s.events != nil {
		last, err := s.events.Last(ctx, r.endpoint.ID, r.ID)
		if !errors.Is(err, events.ErrNotFound) {
			return last.Status, err
		}
	}
	if sub.Accepted {
		return job.InQueue, nil
	}
	j, err := s.queue.Known(ctx, r.endpoint, r.ID)
	if err != nil {
		return "", err
	}
	return j.Status, nil
}
