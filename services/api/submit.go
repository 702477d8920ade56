package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/telemetry"
	"flightline/shared/web"
	"flightline/streams"
)

const (
	headerIdempotencyKey = "Idempotency-Key"
	// headerReplayed is "true" if the answer is that of an earlier request.
	headerReplayed = "Idempotent-Replayed"
	// maxIdempotencyKey is the longest key, in characters.
	maxIdempotencyKey = 255
)

// submission is a request to queue a job. It shares no memory with the HTTP request.
type submission struct {
	endpoint endpoint.Endpoint
	id       job.ID
	mode     job.Mode
	request  job.Request
	wait     time.Duration   // for the job's end; 0 answers at once
	key      *idempotencyKey // nil without the header
	turn     turn            // until the job is queued
}

// idempotencyKey lets a submission come several times and run once.
type idempotencyKey struct {
	key, caller string
	bodyHash    string
	name        string              // in the registry
	claim       registry.Submission // of the first request with the key
}

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
	ctx, cancel := web.RequestContextFor(c, queue.ExtraTime(len(c.Request().Body())))
	defer cancel()
	sub := submission{mode: mode, wait: wait}
	var err error
	if sub.key, err = parseIdempotencyKey(c); err != nil { // before the body is dropped
		return err
	}
	if sub.endpoint, err = s.registry.Endpoints.Get(ctx, c.Params("endpoint")); err != nil {
		return err
	}
	if sub.request, err = job.NewRequest(c.Request().Body()); err != nil { // whatever the content type says
		return err
	}
	web.DropBody(c) // up to 20 MB, not needed while the client waits
	sub.request.Caller = s.limits.caller(c)
	if sub.turn, err = takeTurn(ctx, s.turns); err != nil {
		return err
	}
	defer sub.turn.end()
	if sub.key != nil {
		return s.submitOnce(ctx, c, &sub)
	}
	sub.id = s.queue.NewID(mode)
	return s.answerSubmission(ctx, c, &sub)
}

// answerSubmission queues the job and answers. With an idempotency key a later request
// may have overtaken this one and queued the job, which may run or have ended by now: the
// answer to /run stays the same.
func (s *Service) answerSubmission(ctx context.Context, c *fiber.Ctx, sub *submission) error {
	c.Set(web.HeaderJobID, string(sub.id))
	if sub.wait == 0 {
		if _, err := s.enqueue(ctx, c, sub); err != nil {
			return err
		}
		return c.JSON(api.JobStatus{ID: sub.id, Status: job.InQueue})
	}
	watch, err := s.queue.WatchNew(sub.endpoint, sub.id) // before the submission, so that no end is missed
	if err != nil {
		return err
	}
	defer watch.Close()
	j, err := s.enqueue(ctx, c, sub)
	if err != nil {
		return err
	}
	telemetry.Queued(ctx)
	watch.Submitted(j)
	sub.request = job.Request{}
	return s.await(c, sub.endpoint, sub.id, watch, sub.wait) //nolint:contextcheck // it outlasts ctx
}

// enqueue queues the job and ends the submission's turn. With an idempotency key another
// request may have queued it, which the answer's header says; the key is then marked as
// accepted. That the mark may fail is why a key without one proves nothing.
func (s *Service) enqueue(ctx context.Context, c *fiber.Ctx, sub *submission) (*job.Job, error) {
	defer sub.turn.end()
	if sub.key == nil {
		return s.queueJob(ctx, sub.endpoint, sub.id, sub.mode, sub.request)
	}
	sub.request.Trace = telemetry.Carry(ctx)
	j, repeated, err := s.queue.SubmitIdempotent(ctx, sub.endpoint, sub.id, sub.mode, sub.request)
	if err != nil {
		return nil, err
	}
	if repeated {
		c.Set(headerReplayed, "true")
	}
	if err := s.registry.Idempotency.Accept(ctx, sub.key.name, sub.key.claim); err != nil {
		s.log.DebugContext(ctx, "idempotency key not marked, the job's own traces decide", "endpoint", sub.endpoint.ID, "job", sub.id, "err", err)
	}
	return j, nil
}

// queueInTurn is queueJob for a submission that has no turn yet.
func (s *Service) queueInTurn(ctx context.Context, e endpoint.Endpoint, id job.ID, mode job.Mode, r job.Request) (*job.Job, error) {
	turn, err := takeTurn(ctx, s.turns)
	if err != nil {
		return nil, err
	}
	defer turn.end()
	return s.queueJob(ctx, e, id, mode, r)
}

// queueJob is queue.Submit with the context of the request's span, if there is one.
func (s *Service) queueJob(ctx context.Context, e endpoint.Endpoint, id job.ID, mode job.Mode, r job.Request) (*job.Job, error) {
	r.Trace = telemetry.Carry(ctx)
	return s.queue.Submit(ctx, e, id, mode, r)
}

// parseIdempotencyKey returns nil without the header, which costs one look-up.
func parseIdempotencyKey(c *fiber.Ctx) (*idempotencyKey, error) {
	key := c.Request().Header.Peek(headerIdempotencyKey)
	if key == nil {
		return nil, nil //nolint:nilnil // the key is optional
	}
	if len(key) == 0 || len(key) > maxIdempotencyKey {
		return nil, web.Errorf(web.InvalidRequest, "%s must have 1 to %d characters, got %d", headerIdempotencyKey, maxIdempotencyKey, len(key))
	}
	for _, b := range key {
		if b <= ' ' || b > '~' {
			return nil, web.Errorf(web.InvalidRequest, "%s must have visible ASCII characters only", headerIdempotencyKey)
		}
	}
	sum := sha256.Sum256(c.Request().Body())
	return &idempotencyKey{key: string(key), caller: strings.Clone(web.Key(c)), bodyHash: hex.EncodeToString(sum[:])}, nil
}

// submitOnce submits the job, or repeats the answer to an earlier request with the
// key. The key is claimed before the job is queued and marked afterwards. A request
// that finds it unmarked queues the job under the claimed id, unless there is a
// trace of that job.
func (s *Service) submitOnce(ctx context.Context, c *fiber.Ctx, sub *submission) error {
	key := sub.key
	key.name = registry.IdempotencyKey(sub.endpoint, key.caller, key.key)
	claim, first, err := s.registry.Idempotency.Claim(ctx, key.name, registry.Submission{Job: s.queue.NewID(sub.mode), Mode: sub.mode, Body: key.bodyHash})
	if err != nil {
		return err
	}
	if !claim.Same(sub.mode, key.bodyHash) {
		return web.Errorf(web.IdempotencyMismatch, "%s was used for another request; each request needs its own", headerIdempotencyKey)
	}
	key.claim, sub.id = claim, claim.Job
	c.Set(web.HeaderJobID, string(sub.id))
	// A power loss must not take the key and leave the job.
	if err := s.queue.Bus().Durable(ctx, streams.Bucket(streams.BucketIdempotency)); err != nil {
		return err
	}
	if first {
		return s.answerSubmission(ctx, c, sub)
	}
	return s.replay(ctx, c, sub)
}

// replay answers a request that came before: with its first answer, or for /runsync
// with the job's end; of a job that is gone, with its last known status. If the
// first request did not queue its job, this one does.
func (s *Service) replay(ctx context.Context, c *fiber.Ctx, sub *submission) error {
	queued, err := s.isQueued(ctx, sub)
	if err == nil && !queued {
		known, unknown := s.lastKnown(ctx, sub)
		switch {
		case errors.Is(unknown, job.ErrNotFound):
			_, err = s.enqueue(ctx, c, sub)
		case unknown != nil:
			err = unknown
		default:
			if queued, err = s.isQueued(ctx, sub); err == nil && !queued { // else the first request queued it just now
				c.Set(headerReplayed, "true")
				return c.JSON(api.JobStatus{ID: sub.id, Status: known})
			}
		}
	}
	if err != nil {
		return err
	}
	if queued {
		c.Set(headerReplayed, "true")
	}
	if sub.wait == 0 {
		return c.JSON(api.JobStatus{ID: sub.id, Status: job.InQueue})
	}
	sub.turn.end()
	sub.request = job.Request{} // up to 20 MB, whose room is given back while the client waits
	err = s.answerStatus(ctx, c, sub.endpoint, sub.id, sub.wait)
	if errors.Is(err, job.ErrNotFound) { // it ended in the meantime, and its retention too
		known, err := s.lastKnown(ctx, sub)
		if err != nil {
			return err
		}
		return c.JSON(api.JobStatus{ID: sub.id, Status: known})
	}
	return err
}

// isQueued reports whether the submission's job is there, queued or further.
func (s *Service) isQueued(ctx context.Context, sub *submission) (bool, error) {
	_, err := s.queue.DurableStatus(ctx, sub.endpoint, sub.id)
	if errors.Is(err, job.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// searchStep is how many entries of the event log are read again rather than noted as
// searched: a request reads as many.
const searchStep = 256

// noteSearch notes up to which entry the event log has nothing about the job of a key.
// The next request with the key goes on there: else it would read all that was written
// since the first, and a key that is tried often enough would never be answered.
func (s *Service) noteSearch(ctx context.Context, key *idempotencyKey, upTo uint64) {
	ctx, cancel := bus.Bounded(context.WithoutCancel(ctx)) // a search that took too long has come some way
	defer cancel()
	if err := s.registry.Idempotency.Search(ctx, key.name, key.claim, upTo); err != nil {
		s.log.DebugContext(ctx, "search of the event log not noted, the next one reads as much", "err", err)
	}
}

// lastKnown is the status of a job that is gone: by its last event, or by its record
// where no recorder runs. A job without any trace was never started;
// job.ErrNotFound means that it may not even have been queued.
func (s *Service) lastKnown(ctx context.Context, sub *submission) (job.Status, error) {
	last, upTo, err := s.events.Last(ctx, sub.endpoint.ID, sub.id, madeSince(sub.endpoint, sub.id), sub.key.claim.Searched)
	if last.Kind == "" && upTo > sub.key.claim.Searched+searchStep {
		s.noteSearch(ctx, sub.key, upTo)
	}
	if !errors.Is(err, events.ErrNotFound) {
		return last.Status, err
	}
	if sub.key.claim.Accepted {
		return job.InQueue, nil
	}
	j, err := s.queue.StoredJob(ctx, sub.endpoint, sub.id)
	if err != nil {
		return "", err
	}
	return j.Status, nil
}
