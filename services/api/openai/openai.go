// Package openai is the route /v2/{endpoint}/openai/*: a request of an OpenAI
// client becomes a job, and the job's output or error becomes an OpenAI answer.
// docs/openai.md is its reference.
package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/bus"
	"flightline/shared/chunks"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/retry"
	"flightline/shared/telemetry"
	"flightline/shared/web"
)

const (
	// maxWait is longer than any job lives.
	maxWait = job.MaxTTL + 24*time.Hour
	// maxChunks bounds the chunks of one read.
	maxChunks = 1000
	// keptBuffer is how much memory an event stream keeps between its chunks.
	keptBuffer = 64 << 10
)

// Config is what the route is built from. All fields are required but Log.
type Config struct {
	Queue    *queue.Queue
	Registry *registry.Registry
	// Submit queues a job.
	Submit func(context.Context, endpoint.Endpoint, job.ID, job.Mode, job.Request) (*job.Job, error)
	// Caller returns the key of the request and its quota.
	Caller func(*fiber.Ctx) job.Caller
	// SendEvents answers with the server-sent events that next returns, and calls
	// done when the answer has ended.
	SendEvents func(c *fiber.Ctx, next func() ([]byte, error), done func())
	// MaxSilence is the longest time without a byte in a stream; a comment ends it.
	MaxSilence time.Duration
	// Log receives what no answer says. nil means silence.
	Log *slog.Logger
}

// Handler answers the route.
type Handler struct {
	Config

	cancelling sync.WaitGroup
}

// New returns a handler. It starts nothing.
func New(cfg Config) *Handler {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Handler{Config: cfg}
}

// Wait returns once the jobs of clients that got an error are cancelled, which
// takes web.AnswerWithin at most. No request may begin after it was called.
func (h *Handler) Wait() { h.cancelling.Wait() }

// request is a request that was parsed.
type request struct {
	endpoint endpoint.Endpoint
	id       job.ID
	job      job.Request
	stream   bool
}

// Handle submits the request as a job, and answers as an OpenAI server would. It
// waits for as long as the job lives, for OpenAI's clients do not poll. A client
// that leaves ends its job: no other client knows of it.
func (h *Handler) Handle(c *fiber.Ctx) error {
	ctx, cancel := web.RequestContextFor(c, queue.ExtraTime(len(c.Request().Body())))
	defer cancel()
	r, err := h.parse(ctx, c)
	if err != nil {
		return err
	}
	c.Set(web.HeaderJobID, string(r.id))
	c.Set(web.HeaderRequestID, string(r.id)) // OpenAI's clients show this one
	if r.stream {
		return h.answerStream(ctx, c, r)
	}
	return h.answerWhole(ctx, c, r)
}

// parse reads the request. What it returns shares no memory with it.
func (h *Handler) parse(ctx context.Context, c *fiber.Ctx) (request, error) {
	e, err := h.Registry.Endpoints.Get(ctx, c.Params("endpoint"))
	if err != nil {
		return request{}, err
	}
	body := []byte("{}") // some workers cannot do without an object
	if c.Method() == fiber.MethodPost {
		body = bytes.TrimSpace(c.Request().Body())
	}
	switch {
	case len(body) == 0, body[0] != '{', !json.Valid(body):
		return request{}, web.Errorf(web.InvalidRequest, "the body must be a JSON object")
	case !utf8.Valid(body):
		return request{}, web.Errorf(web.InvalidRequest, "the body must be UTF-8")
	}
	var said struct {
		Stream json.RawMessage `json:"stream"`
	}
	_ = json.Unmarshal(body, &said) // it is an object
	input, err := inputOf("/"+c.Params("+"), body)
	web.DropBody(c)
	return request{
		endpoint: e, id: h.Queue.NewID(job.Sync), job: job.Request{Input: input, Caller: h.Caller(c)}, stream: string(said.Stream) == "true",
	}, err
}

// inputOf is the job's input, as worker-vllm and its like expect it
// (docs/design/runpod-clients.md#openai-route). The body is in it byte for byte, which json.Marshal would
// not leave it.
func inputOf(route string, body []byte) (json.RawMessage, error) {
	quoted, err := json.Marshal(route)
	if err != nil {
		return nil, err
	}
	input := make([]byte, 0, len(quoted)+len(body)+40)
	input = append(append(input, `{"openai_route":`...), quoted...)
	input = append(append(input, `,"openai_input":`...), body...)
	return append(input, '}'), nil
}

// answerWhole answers once, with the job's end.
func (h *Handler) answerWhole(ctx context.Context, c *fiber.Ctx, r request) error {
	watch, err := h.Queue.WatchNew(r.endpoint, r.id) // before the submission, so that no end is missed
	if err != nil {
		return err
	}
	defer watch.Close()
	j, err := h.submit(ctx, r)
	if err != nil {
		return err
	}
	watch.Submitted(j)
	r.job = job.Request{} // up to 20 MB, not needed while the client waits
	web.BodyDone(c)
	held, release := web.LongPoll(c, maxWait)
	defer release()
	j, err = watch.Wait(web.ClaimPayload(held, c)) //nolint:contextcheck // it outlasts ctx
	if err != nil && held.Err() != nil {
		h.abandon(held, r, false) //nolint:contextcheck // it outlasts ctx
	}
	var answer reply
	if err == nil {
		answer, err = h.replyTo(held, r, j) //nolint:contextcheck // it outlasts ctx
	}
	switch {
	case err != nil && held.Err() != nil:
		return brokenWait(context.Cause(held)) //nolint:contextcheck // it is what ended
	case errors.Is(err, job.ErrNotFound):
		return send(c, expired().reply())
	case err != nil:
		return err
	}
	return send(c, answer)
}

// submit queues the job. One of which it is not known whether it was queued
// is abandoned, beside the answer: its client will submit another.
func (h *Handler) submit(ctx context.Context, r request) (*job.Job, error) {
	j, err := h.Submit(ctx, r.endpoint, r.id, job.Sync, r.job)
	if err == nil {
		telemetry.Queued(ctx)
	}
	if errors.Is(err, bus.ErrUnavailable) {
		r.job = job.Request{}
		h.cancelling.Go(func() { h.abandon(ctx, r, true) })
	}
	return j, err
}

// retryDelay is the pause after something that JetStream did not answer.
const retryDelay = 250 * time.Millisecond

// retryUnavailable repeats what JetStream does not answer in time, until ctx ends.
func retryUnavailable(ctx context.Context, read func() error) error {
	return retry.Do(ctx, retry.Every(retryDelay), func(err error) bool {
		return errors.Is(err, bus.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
	}, read)
}

// brokenWait is the error to answer with when a wait ended for another reason
// than the job's end: nil if nobody is there to read it.
func brokenWait(cause error) error {
	if errors.Is(cause, web.ErrGone) {
		return nil
	}
	return web.Errorf(web.Unavailable, "the server is stopping; try again")
}

// replyTo is what to answer for a job that is over. A worker whose output
// is not aggregated leaves it in the chunks.
func (h *Handler) replyTo(ctx context.Context, r request, j *job.Job) (reply, error) {
	if f := failureOf(j); f != nil {
		return f.reply(), nil
	}
	if !emptyOutput(j.Output) {
		return outputReply(j.Output), nil
	}
	follow, err := chunks.Follow(h.Queue, r.endpoint, r.id)
	if err != nil {
		return reply{}, err
	}
	defer follow.Close()
	var outputs []json.RawMessage
	size := 0
	for after, more := uint64(0), true; more; {
		var chunks []chunks.Chunk
		err = retryUnavailable(ctx, func() (err error) {
			chunks, _, more, err = follow.Read(ctx, after, maxChunks)
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
		return joinedReply(outputs), nil
	}
	if _, isList := elementsOf(j.Output); isList {
		return outputReply(j.Output), nil
	}
	return noOutput().reply(), nil
}

// abandon cancels the job of a client that left or got an error, or that
// this server leaves. It may have ended meanwhile. Of a job of which it is not known
// whether it was queued (unsure) it tries again: that no reader sees it yet does not mean
// that it was not.
func (h *Handler) abandon(ctx context.Context, r request, unsure bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), web.AnswerWithin)
	defer cancel()
	retryable := func(err error) bool { return unsure && !errors.Is(err, job.ErrConflict) }
	err := retry.Do(ctx, retry.Every(retryDelay), retryable, func() error {
		_, err := h.Queue.Cancel(ctx, r.endpoint, r.id)
		return err
	})
	if err != nil && !errors.Is(err, job.ErrConflict) && !errors.Is(err, job.ErrNotFound) {
		h.Log.WarnContext(ctx, "job that nobody waits for not cancelled", "endpoint", r.endpoint.ID, "job", r.id, "err", err)
	}
}
