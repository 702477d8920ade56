package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/telemetry"
	"flightline/shared/web"
)

// openAIAsk is a request beneath /openai, understood.
type openAIAsk struct {
	endpoint endpoint.Endpoint
	id       job.ID
	request  job.Request
	stream   bool
}

// openAI submits the request as a job, and answers with what an OpenAI server
// would. It waits for as long as the job lives: no client of OpenAI's polls. One
// that leaves ends its job, for nobody else knows of it.
func (s *Service) openAI(c *fiber.Ctx) error {
	ctx, cancel := web.Prompt(c)
	defer cancel()
	ask, err := s.openAIAsked(ctx, c)
	if err != nil {
		return err
	}
	c.Set(web.HeaderJobID, string(ask.id))
	c.Set(web.HeaderRequestID, string(ask.id)) // OpenAI's clients show this one
	if ask.stream {
		return s.openAIStream(ctx, c, ask)
	}
	return s.openAIWhole(ctx, c, ask)
}

// openAIAsked reads the request. What it returns shares no memory with it.
func (s *Service) openAIAsked(ctx context.Context, c *fiber.Ctx) (openAIAsk, error) {
	e, err := s.registry.Endpoints.Get(ctx, c.Params("endpoint"))
	if err != nil {
		return openAIAsk{}, err
	}
	body := []byte("{}") // some workers cannot do without an object
	if c.Method() == fiber.MethodPost {
		body = bytes.TrimSpace(c.Request().Body())
	}
	if len(body) == 0 || body[0] != '{' || !json.Valid(body) {
		return openAIAsk{}, web.Errorf(web.InvalidRequest, "the body must be a JSON object")
	}
	var said struct {
		Stream json.RawMessage `json:"stream"`
	}
	_ = json.Unmarshal(body, &said) // it is an object
	input, err := openAIInputOf("/"+c.Params("+"), body)
	web.DropBody(c)
	return openAIAsk{
		endpoint: e, id: queue.NewID(job.Sync), request: job.Request{Input: input, Caller: s.limits.caller(c)}, stream: string(said.Stream) == "true",
	}, err
}

// openAIInputOf is the job's input, as worker-vllm and its like expect it
// (runpod-compat §4). The body is in it byte for byte, which json.Marshal would
// not leave it.
func openAIInputOf(route string, body []byte) (json.RawMessage, error) {
	quoted, err := json.Marshal(route)
	if err != nil {
		return nil, err
	}
	input := make([]byte, 0, len(quoted)+len(body)+40)
	input = append(append(input, `{"openai_route":`...), quoted...)
	input = append(append(input, `,"openai_input":`...), body...)
	return append(input, '}'), nil
}

// openAIWhole answers once, with the job's end.
func (s *Service) openAIWhole(ctx context.Context, c *fiber.Ctx, ask openAIAsk) error {
	watch, err := s.queue.WatchNew(ask.endpoint, ask.id) // before the submission, so that no end is missed
	if err != nil {
		return err
	}
	defer watch.Close()
	j, err := s.openAISubmit(ctx, ask)
	if err != nil {
		return err
	}
	watch.Submitted(j)
	ask.request = job.Request{} // up to 20 MB, not needed while the client waits
	web.BodyDone(c)
	held, release := web.Hold(c, eventsHold)
	defer release()
	j, err = watch.Wait(claiming(held, c)) //nolint:contextcheck // it outlasts ctx
	switch {
	case err != nil && held.Err() != nil:
		s.abandon(held, ask)                     //nolint:contextcheck // it outlasts ctx
		return openAIBroken(context.Cause(held)) //nolint:contextcheck // it is what ended
	case errors.Is(err, job.ErrNotFound):
		return send(c, expired().reply())
	case err != nil:
		return err
	}
	answer, err := s.openAIAnswer(held, ask, j) //nolint:contextcheck // it outlasts ctx
	switch {
	case err != nil && held.Err() != nil:
		return openAIBroken(context.Cause(held)) //nolint:contextcheck // it is what ended
	case errors.Is(err, job.ErrNotFound):
		return send(c, expired().reply())
	case err != nil:
		return err
	}
	return send(c, answer)
}

// openAISubmit queues the job. One of which it is not known whether it was queued
// is abandoned, beside the answer: its client will submit another.
func (s *Service) openAISubmit(ctx context.Context, ask openAIAsk) (*job.Job, error) {
	j, err := s.plain(ctx, ask.endpoint, ask.id, job.Sync, ask.request)
	if err == nil {
		telemetry.Queued(ctx)
	}
	if errors.Is(err, queue.ErrUnavailable) {
		ask.request = job.Request{}
		s.aside.Go(func() { s.abandonUnknown(ctx, ask) })
	}
	return j, err
}

// outageAgain is the pause after something that JetStream did not answer.
const outageAgain = 250 * time.Millisecond

// repeat does something until its error is not one that bears repeating, or
// ctx ends.
func repeat(ctx context.Context, do func() error, bears func(error) bool) error {
	for {
		err := do()
		if !bears(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(outageAgain):
		}
	}
}

// sitOut repeats what JetStream does not answer in time, until ctx ends.
func sitOut(ctx context.Context, read func() error) error {
	return repeat(ctx, read, func(err error) bool {
		return errors.Is(err, queue.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
	})
}

// openAIBroken is the error to answer with when a wait ended for another reason
// than the job's end: nil if nobody is there to read it.
func openAIBroken(cause error) error {
	if errors.Is(cause, web.ErrGone) {
		return nil
	}
	return web.Errorf(web.Unavailable, "the server is stopping; try again")
}

// openAIAnswer is what to answer for a job that is over. A worker whose output
// is not aggregated leaves it in the chunks.
func (s *Service) openAIAnswer(ctx context.Context, ask openAIAsk, j *job.Job) (reply, error) {
	if f := failureOf(j); f != nil {
		return f.reply(), nil
	}
	if !emptyOutput(j.Output) {
		return whole(j.Output), nil
	}
	follow, err := s.queue.Follow(ask.endpoint, ask.id)
	if err != nil {
		return reply{}, err
	}
	defer follow.Close()
	var outputs []json.RawMessage
	size := 0
	for after, more := uint64(0), true; more; {
		var chunks []queue.Chunk
		err = sitOut(ctx, func() (err error) {
			chunks, _, more, err = follow.Look(ctx, after, streamChunks)
			return err
		})
		if err != nil {
			return reply{}, err
		}
		for _, chunk := range chunks {
			after, size = chunk.Seq, size+len(chunk.Data)
			outputs = append(outputs, outputOf(chunk.Data))
		}
		if size > job.MaxOutput {
			return tooLarge().reply(), nil
		}
	}
	if len(outputs) > 0 {
		return joined(outputs), nil
	}
	if _, isList := elementsOf(j.Output); isList {
		return whole(j.Output), nil
	}
	return noOutput().reply(), nil
}

// abandonUnknown is abandon for a job of which it is not known whether it was
// queued: that no reader sees it yet does not mean that it was not.
func (s *Service) abandonUnknown(ctx context.Context, ask openAIAsk) {
	s.cancelAbandoned(ctx, ask, func(err error) bool { return err != nil && !errors.Is(err, job.ErrConflict) })
}

// abandon cancels the job of a client that left or was told an error, or that
// this server leaves. It may have ended meanwhile.
func (s *Service) abandon(ctx context.Context, ask openAIAsk) {
	s.cancelAbandoned(ctx, ask, func(error) bool { return false })
}

func (s *Service) cancelAbandoned(ctx context.Context, ask openAIAsk, bears func(error) bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), web.AnswerWithin)
	defer cancel()
	err := repeat(ctx, func() error {
		_, err := s.queue.Cancel(ctx, ask.endpoint, ask.id)
		return err
	}, bears)
	if err != nil && !errors.Is(err, job.ErrConflict) && !errors.Is(err, job.ErrNotFound) {
		s.log.WarnContext(ctx, "job that nobody waits for not cancelled", "endpoint", ask.endpoint.ID, "job", ask.id, "err", err)
	}
}
