package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/chunks"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/web"
)

// ok is the body of an answer that says nothing; workers read none.
var ok = fiber.Map{}

// done takes a job's result, or its progress. isStream says that the result
// ends a generator, which changes nothing: the chunks are known.
func (s *Service) done(c *fiber.Ctx) error {
	who, err := s.poster(c)
	if err != nil {
		return err
	}
	r, id := readResult(c.Request().Body(), c.Get(fiber.HeaderContentEncoding)), jobID(c)
	web.DropBody(c) // up to 32 MB, of which r has a copy
	if r.kind != progress {
		s.named.remove(who.key(), id)
	}
	if r.stopPod {
		s.refresh(c.UserContext(), who)
	}
	if err := s.settle(c, who, id, r); err != nil {
		return err
	}
	s.served.add(who.key(), time.Now())
	return c.JSON(ok)
}

// refresh answers the worker's polls, so that it can restart itself.
func (s *Service) refresh(ctx context.Context, who caller) {
	if err := s.registry.Tokens.Refresh(ctx, who.endpoint.ID, who.worker, s.queue.Now()); err != nil {
		s.log.WarnContext(ctx, "worker restarts, its polls are left to end by themselves", "endpoint", who.endpoint.ID, "worker", who.worker, "err", err)
	}
}

// settle writes what the worker says of a job. What is late, stale or said
// twice is dropped, and no error.
func (s *Service) settle(c *fiber.Ctx, who caller, id job.ID, r result) error {
	err := s.write(c, who, id, func(ctx context.Context, lease *queue.Lease) (err error) {
		switch r.kind {
		case progress:
			err = lease.Progress(ctx, r.output)
		case failed:
			err = s.fail(ctx, lease, r.err, r.output)
		case completed:
			err = s.complete(ctx, lease, r.output)
		}
		return err
	})
	if _, lost := errors.AsType[*queue.NotHeldError](err); lost && r.kind != progress && s.cfg.Stale != nil {
		s.cfg.Stale(who.endpoint.ID)
	}
	return s.forgive(c.UserContext(), who, id, err)
}

// forgive drops what cannot be used, however often it is posted.
func (s *Service) forgive(ctx context.Context, who caller, id job.ID, err error) error {
	if errors.Is(err, queue.ErrLost) || errors.Is(err, queue.ErrProgressTooLarge) || errors.Is(err, endpoint.ErrNotFound) {
		s.drop(ctx, who, id, err.Error())
		return nil
	}
	return err
}

func (s *Service) drop(ctx context.Context, who caller, id job.ID, why string) {
	s.counts.dropped.Add(1)
	s.log.InfoContext(ctx, "worker's post dropped", "endpoint", who.endpoint.ID, "worker", who.worker, "job", id, "why", why)
}

// chunk takes one element of a job's stream, verbatim.
func (s *Service) chunk(c *fiber.Ctx) error {
	who, err := s.poster(c)
	if err != nil {
		return err
	}
	if err := s.emit(c, who, jobID(c), c.Request().Body()); err != nil {
		return err
	}
	return c.JSON(ok)
}

// emit stores a chunk. If it cannot be kept, the job fails and its handler is stopped.
func (s *Service) emit(c *fiber.Ctx, who caller, id job.ID, body []byte) error {
	refused := ""
	if _, err := object(body, c.Get(fiber.HeaderContentEncoding)); err != nil {
		refused = fmt.Sprintf("%s: the worker posted a chunk that is no JSON object: %v", job.ErrTextChunkNotStored, err)
	}
	err := s.write(c, who, id, func(ctx context.Context, lease *queue.Lease) error {
		if err := s.cfg.HasSpace(); err != nil && refused == "" {
			refused = fmt.Sprintf("%s: %v", job.ErrTextChunkNotStored, err)
		}
		if refused == "" {
			err := lease.Emit(ctx, chunkOf(body))
			if !errors.Is(err, chunks.ErrTooLarge) {
				return err
			}
			refused = fmt.Sprintf("%s: a chunk of %d bytes, at most %d are kept", job.ErrTextChunkTooLarge, len(body), job.MaxChunk)
		}
		err := s.fail(ctx, lease, refused, nil)
		s.stopJob(who, id)
		return err
	})
	return s.forgive(c.UserContext(), who, id, err)
}

// tooLarge are the texts for bodies that are not read, by the operation.
var tooLarge = map[string]string{"job-done": job.ErrTextOutputTooLarge, "job-stream": job.ErrTextChunkTooLarge}

// Oversized answers a post whose body is too large to be read: the job has
// FAILED, and the worker goes on. It is the web.Config's, and answers nothing
// but such posts.
func (s *Service) Oversized(c *fiber.Ctx) bool {
	part := posted(c)
	if part == nil {
		return false
	}
	answer := func(err error) bool {
		if err != nil {
			return c.App().ErrorHandler(c, err) == nil
		}
		return c.JSON(ok) == nil
	}
	who, err := s.admit(c, part[1], part[3])
	if err != nil {
		return answer(err)
	}
	id, _, _ := strings.Cut(part[4], "&")
	s.counts.oversized.Add(1)
	size := fmt.Sprintf("%d bytes", c.Request().Header.ContentLength())
	if c.Request().Header.ContentLength() < 0 { // its header does not tell
		size = fmt.Sprintf("more than %d bytes", c.App().Config().BodyLimit)
	}
	text := fmt.Sprintf("%s: the worker posted %s, which were not read", tooLarge[part[2]], size)
	err = s.settle(c, who, job.ID(id), result{kind: failed, err: text})
	switch {
	case part[2] == "job-done":
		s.named.remove(who.key(), job.ID(id))
	case err == nil: // its handler goes on
		s.stopJob(who, job.ID(id))
	}
	return answer(err)
}

// Known is the web.Config's Known for what workers post: ofWorker says that
// the request is such a post, err that its token is not good for it.
func (s *Service) Known(c *fiber.Ctx) (ofWorker bool, err error) {
	part := posted(c)
	if part == nil {
		return false, nil
	}
	_, err = s.admit(c, part[1], part[3])
	return true, err
}

// Patient is the web.Config's Patient: a worker posts three times within 5 s, and drops the
// result then.
func Patient(c *fiber.Ctx) bool { return posted(c) != nil }

// posted are the parts of the path of a post of a result or a chunk, nil of
// another request: v2, the endpoint, the operation, the worker, the job.
func posted(c *fiber.Ctx) []string {
	part := strings.Split(strings.Trim(strings.Clone(c.Path()), "/"), "/")
	if len(part) != 5 || part[0] != "v2" || tooLarge[part[2]] == "" || c.Method() != fiber.MethodPost {
		return nil
	}
	return part
}

// chunkOf is the element that readers see: what was posted, unless it holds
// numbers that JSON has not.
func chunkOf(body []byte) json.RawMessage {
	if json.Valid(body) {
		return body
	}
	return finite(body)
}
