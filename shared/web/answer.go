package web

import (
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
)

// HeaderRequestID carries the id of a request in its answer. One that the
// client sends is ignored: RunPod's Python client puts a job's id there.
const HeaderRequestID = "X-Request-ID"

// HeaderJobID names the job in the answer to a submission, also in one that
// carries no id: of a 503 it is unknown whether the job was accepted.
const HeaderJobID = "X-Job-Id"

// localRequestID is where the id is kept while the request is handled.
const localRequestID = "requestId"

// retryAfter is what 503 advises, and 429 unless the limit says more, in seconds.
const retryAfter = "1"

// errorBody is the JSON of every error. Message and Status are for RunPod's
// REST clients, beneath /v1 only: to its queue clients a "status" is a job's,
// and the asyncio one would ask for ever until 404 becomes final (ADR 0008).
type errorBody struct {
	Error     string `json:"error"`
	Message   string `json:"message,omitempty"`
	Code      Code   `json:"code"`
	Status    int    `json:"status,omitempty"`
	RequestID string `json:"requestId"`
}

// RequestID returns the id of the request, a UUID of version 7. It is made at
// the first call, which is that of the first middleware unless the request
// could not be parsed.
func RequestID(c *fiber.Ctx) string {
	if id, ok := c.Locals(localRequestID).(string); ok {
		return id
	}
	id := newRequestID()
	c.Locals(localRequestID, id)
	return id
}

// newRequestID is a UUID of version 7. It keeps no secret, so the kernel is not
// asked for its random bits: that takes longer than all the rest.
func newRequestID() string {
	var id uuid.UUID
	const version, variant = 7 << 12, 1 << 63
	binary.BigEndian.PutUint64(id[:8], uint64(time.Now().UnixMilli())<<16|version|rand.Uint64N(1<<12)) //nolint:gosec // see above
	binary.BigEndian.PutUint64(id[8:], variant|rand.Uint64N(1<<62))                                    //nolint:gosec // see above
	return id.String()
}

// answerError is Fiber's ErrorHandler. What is our own fault is logged here
// and nowhere else.
func answerError(log *slog.Logger) fiber.ErrorHandler {
	return func(c *fiber.Ctx, err error) error {
		a := answerOf(err)
		status := a.Code.Status()
		if status >= http.StatusInternalServerError {
			log.LogAttrs(c.UserContext(), levelOf(a.Code), "request failed",
				slog.String("request_id", RequestID(c)), slog.String("method", strings.Clone(c.Method())),
				slog.String("route", strings.Clone(c.Route().Path)), slog.String("endpoint", param(c, "endpoint")),
				slog.String("job", jobNamed(c)), slog.String("code", string(a.Code)), slog.Any("err", err))
		}
		body := errorBody{Error: a.Text, Code: a.Code, RequestID: RequestID(c)}
		if strings.HasPrefix(c.Path(), "/v1/") {
			body.Message, body.Status = a.Text, status
		}
		openAI := forOpenAI(c.Path())
		if !openAI || len(c.Response().Header.Peek(HeaderRequestID)) == 0 { // there it may be the job's id
			c.Set(HeaderRequestID, body.RequestID)
		}
		switch a.Code { //nolint:exhaustive // the others need no header
		case Unauthorized:
			c.Set(fiber.HeaderWWWAuthenticate, "Bearer")
		case Unavailable, TooManyRequests:
			if len(c.Response().Header.Peek(fiber.HeaderRetryAfter)) == 0 {
				c.Set(fiber.HeaderRetryAfter, retryAfter)
			}
		}
		if openAI {
			return c.Status(status).JSON(openAIOf(a, body.RequestID))
		}
		return c.Status(status).JSON(body)
	}
}

// jobNamed is the job that the path names, or that the answer to a submission
// does, "" if neither names one.
func jobNamed(c *fiber.Ctx) string {
	if !strings.HasPrefix(c.Route().Path, "/v2/") {
		return ""
	}
	if id := param(c, "id"); id != "" {
		return id
	}
	return string(c.Response().Header.Peek(HeaderJobID))
}

// param is a part of the path that outlives the request, "" if there is none:
// a request that could not be parsed has no route, and Fiber panics.
func param(c *fiber.Ctx, name string) string {
	if !slices.Contains(c.Route().Params, name) {
		return ""
	}
	return strings.Clone(c.Params(name))
}

func levelOf(code Code) slog.Level {
	if code == Unavailable {
		return slog.LevelWarn
	}
	return slog.LevelError
}
