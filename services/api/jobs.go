package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/telemetry"
	"flightline/shared/web"
)

func (s *Service) status(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint, id job.ID) error {
	ttl, given, err := ttlOf(c)
	if err != nil {
		return err
	}
	if _, err := web.QueryBool(c, includeVersion); err != nil {
		return err
	}
	if !given {
		return s.answerStatus(ctx, c, e, id, preferredWait(c))
	}
	if err := web.Allow(c, s.registry.Keys, registry.Submit); err != nil { //nolint:contextcheck // it bounds the context of c itself
		return err
	}
	j, err := s.queue.SetTTL(web.ClaimPayload(ctx, c), e, id, ttl)
	if err != nil {
		return err
	}
	return s.sendJob(ctx, c, j)
}

func (s *Service) statusSync(c *fiber.Ctx) error {
	wait, err := syncWait(c)
	if err != nil {
		return err
	}
	if _, err := web.QueryBool(c, includeVersion); err != nil {
		return err
	}
	ctx, cancel := web.RequestContext(c)
	defer cancel()
	e, id, err := s.job(ctx, c)
	if err != nil {
		return err
	}
	return s.answerStatus(ctx, c, e, id, wait)
}

// input answers with what the job was given, as long as it is kept.
func (s *Service) input(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint, id job.ID) error {
	input, j, err := s.queue.ReadInput(web.ClaimPayload(ctx, c), e, id)
	if err != nil {
		return err
	}
	v := api.JobInput{ID: j.ID, Status: j.Status}
	if len(input) == 0 {
		return c.JSON(v)
	}
	if input, err = job.CompactJSON(input); err != nil {
		return err
	}
	v.Input = json.RawMessage("0")
	return sendWith(c, v, `"input":0`, input)
}

// answerStatus answers with the job as it is now, or after wait, or when it has ended.
func (s *Service) answerStatus(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint, id job.ID, wait time.Duration) error {
	if wait == 0 {
		j, err := s.queue.Status(web.ClaimPayload(ctx, c), e, id)
		if err != nil {
			return err
		}
		return s.sendJob(ctx, c, j)
	}
	watch, err := s.queue.Watch(e, id)
	if err != nil {
		return err
	}
	defer watch.Close()
	return s.await(c, e, id, watch, wait) //nolint:contextcheck // it outlasts ctx
}

func (s *Service) cancel(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint, id job.ID) error {
	j, err := s.queue.Cancel(ctx, e, id)
	if err != nil {
		return err
	}
	return c.JSON(api.JobStatus{ID: j.ID, Status: j.Status})
}

func (s *Service) retry(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint, id job.ID) error {
	j, err := s.queue.Retry(ctx, e, id, telemetry.Carry(ctx))
	if err != nil {
		return err
	}
	telemetry.Retried(ctx, j)
	return c.JSON(api.JobStatus{ID: j.ID, Status: j.Status})
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
	return c.JSON(api.Purged{Removed: removed, Status: "completed"})
}

// await answers with the job's end, or with how it stands after wait. A client
// that left gets nothing and its job goes on.
func (s *Service) await(c *fiber.Ctx, e endpoint.Endpoint, id job.ID, watch *queue.Watch, wait time.Duration) error {
	web.BodyDone(c)
	held, release := web.LongPoll(c, wait)
	defer release()
	j, err := watch.Wait(web.ClaimPayload(held, c))
	ctx, cancel := context.WithTimeout(c.UserContext(), web.AnswerWithin)
	defer cancel()
	if err != nil && held.Err() != nil {
		if errors.Is(context.Cause(held), web.ErrGone) {
			return nil
		}
		j, err = s.queue.Status(web.ClaimPayload(ctx, c), e, id)
	}
	if err != nil {
		return err
	}
	return s.sendJob(ctx, c, j)
}

func viewOf(j *job.Job) api.Job {
	v := api.Job{ID: j.ID, Status: j.Status, Retries: j.Retries()}
	if j.Status == job.InQueue {
		return v // what an earlier run left behind is no news
	}
	delay := j.Delay().Milliseconds()
	v.DelayTime, v.Output, v.WorkerID = &delay, j.Output, j.Worker
	if j.Status.Terminal() {
		execution := j.Execution(j.Finished).Milliseconds()
		v.ExecutionTime, v.Error = &execution, j.Error
	}
	return v
}

// sendJob answers with the job. If it is IN_PROGRESS and its worker was lost, it says so,
// as far as memory knows.
func (s *Service) sendJob(ctx context.Context, c *fiber.Ctx, j *job.Job) error {
	v := viewOf(j)
	if j.Status == job.InProgress {
		v.WorkerLost = s.registry.Workers.Holder(j).Lost(j, s.queue.Now())
	}
	if asked, _ := web.QueryBool(c, includeVersion); asked && v.WorkerID != "" {
		worker, err := s.registry.Pods.At(j.Endpoint).Get(ctx, j.Worker)
		if err != nil && !errors.Is(err, pod.ErrNotFound) {
			return err
		}
		v.Version = worker.EndpointVersion
	}
	return sendView(c, v)
}

// sendView answers with the view, whose output is copied as it is stored.
func sendView(c *fiber.Ctx, v api.Job) error {
	if len(v.Output) == 0 {
		return c.JSON(v)
	}
	output := v.Output
	v.Output = json.RawMessage("0")
	return sendWith(c, v, `"output":0`, output)
}

// sendWith answers with v, in which stand is the member that has the value instead of 0. That
// is compact JSON: json.Marshal would escape its <, > and &, parse it, and copy it three times.
func sendWith(c *fiber.Ctx, v any, stand string, value json.RawMessage) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	before, after, _ := bytes.Cut(text, []byte(stand)) // quotes in values are escaped
	body := make([]byte, 0, len(text)+len(value))
	body = append(append(body, before...), stand[:len(stand)-1]...)
	body = append(append(body, value...), after...)
	c.Context().SetContentType(fiber.MIMEApplicationJSON)
	c.Response().SetBodyRaw(body)
	return nil
}
