package web

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/registry"
)

// Code says what went wrong; clients may switch on it. The set is closed:
// further ones come with a new version of the API only.
type Code string

// The codes, with the status that each one is answered with.
const (
	InvalidRequest   Code = "invalid_request"    // 400: the body or a parameter; the text names the field and its bound
	JobFinished      Code = "job_finished"       // 400: cancel of a job that ended otherwise
	NotRetryable     Code = "not_retryable"      // 400: retry of a job that is neither FAILED nor TIMED_OUT
	Unauthorized     Code = "unauthorized"       // 401: no key, an unknown one, or one without the permission
	JobNotFound      Code = "job_not_found"      // 404: never submitted, expired, or past its retention
	EndpointNotFound Code = "endpoint_not_found" // 404
	NotFound         Code = "not_found"          // 404: no such thing beneath /v1
	RouteNotFound    Code = "route_not_found"    // 404: the address is that of no route, or of one of another process
	MethodNotAllowed Code = "method_not_allowed" // 405
	PodNotFound      Code = "pod_not_found"      // 404: never made, or gone for a day
	PodConflict      Code = "pod_conflict"       // 409: its status, its lock or its owner does not allow it
	InUse            Code = "in_use"             // 409: a template or network volume that something uses, a webhook secret that still signs
	RequestTimeout   Code = "request_timeout"    // 408: the request was sent too slowly
	BodyTooLarge     Code = "body_too_large"     // 413
	EndpointExists   Code = "endpoint_exists"    // 409
	EndpointBusy     Code = "endpoint_busy"      // 409: deleting an endpoint that has jobs needs force; or an id cannot be taken while its queue has jobs
	// IdempotencyMismatch is a 422: the Idempotency-Key stands for another request.
	IdempotencyMismatch Code = "idempotency_mismatch"
	TooManyRequests     Code = "too_many_requests" // 429, with Retry-After
	Internal            Code = "internal"          // 500: our fault; requestId finds the log line
	Unavailable         Code = "unavailable"       // 503, with Retry-After: JetStream is away, or we are stopping
)

var statusOf = map[Code]int{
	InvalidRequest: http.StatusBadRequest, JobFinished: http.StatusBadRequest, NotRetryable: http.StatusBadRequest,
	Unauthorized: http.StatusUnauthorized,
	JobNotFound:  http.StatusNotFound, EndpointNotFound: http.StatusNotFound, NotFound: http.StatusNotFound, RouteNotFound: http.StatusNotFound,
	MethodNotAllowed: http.StatusMethodNotAllowed, RequestTimeout: http.StatusRequestTimeout, BodyTooLarge: http.StatusRequestEntityTooLarge,
	PodNotFound: http.StatusNotFound, PodConflict: http.StatusConflict, InUse: http.StatusConflict,
	EndpointExists: http.StatusConflict, EndpointBusy: http.StatusConflict,
	IdempotencyMismatch: http.StatusUnprocessableEntity,
	TooManyRequests:     http.StatusTooManyRequests,
	Internal:            http.StatusInternalServerError, Unavailable: http.StatusServiceUnavailable,
}

// Status is the HTTP status that goes with the code.
func (c Code) Status() int { return statusOf[c] }

// Codes lists all codes with their status, for the documentation.
func Codes() map[Code]int { return maps.Clone(statusOf) }

// Error is an answer that a handler decided on itself. Its text is shown to
// the client.
type Error struct {
	Code Code
	Text string
}

func (e *Error) Error() string { return e.Text }

// Errorf makes an Error.
func Errorf(code Code, format string, args ...any) error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// table maps the errors of the packages below; the first match wins. Anything
// that is not in it is Internal, and its text stays in the log.
var table = []struct {
	err  error
	code Code
	text string // "" means the text of the error's own detail
}{
	{job.ErrInvalid, InvalidRequest, ""},
	{endpoint.ErrInvalid, InvalidRequest, ""},
	{registry.ErrInvalid, InvalidRequest, ""},
	{pod.ErrInvalid, InvalidRequest, ""},
	{pod.ErrNotFound, PodNotFound, "no such pod"},
	{pod.ErrLocked, PodConflict, "the pod is locked; a PATCH with locked false unlocks it"},
	{pod.ErrConflict, PodConflict, ""},
	{job.ErrConflict, JobFinished, ""},
	{registry.ErrUnauthorized, Unauthorized, "the API key is missing, unknown, or lacks the permission"},
	{job.ErrNotFound, JobNotFound, "no such job: it never existed, or its ttl or retention is over"},
	{endpoint.ErrNotFound, EndpointNotFound, "no such endpoint"},
	{registry.ErrNotFound, NotFound, "not found"},
	{endpoint.ErrExists, EndpointExists, "an endpoint of this id exists already"},
	{endpoint.ErrBusy, EndpointBusy, "the endpoint has jobs; ?force=true cancels and deletes them"},
	{queue.ErrFull, TooManyRequests, ""},
	{queue.ErrNoSpace, Unavailable, ""},
	{bus.ErrMissing, Unavailable, ""},
	{bus.ErrUnavailable, Unavailable, unavailableText},
	{registry.ErrConflict, Unavailable, "others keep changing this; try again"},
	{context.DeadlineExceeded, Unavailable, unavailableText},
	{context.Canceled, Unavailable, "the server is stopping; try again"},
}

const (
	unavailableText = "the service cannot reach its storage; try again"
	internalText    = "internal error; the request id finds the log line"
	noRouteText     = "no such route"
)

// answerOf decides what a client learns of err.
func answerOf(err error) Error {
	if own, ok := errors.AsType[*Error](err); ok {
		return *own
	}
	if routed, ok := errors.AsType[*fiber.Error](err); ok {
		return answerOfFiber(routed)
	}
	for _, row := range table {
		if !errors.Is(err, row.err) {
			continue
		}
		if row.text != "" {
			return Error{row.code, row.text}
		}
		return detail(err, row.code)
	}
	return Error{Internal, internalText}
}

// detail finds the text that was written for the client, without what was
// wrapped around it.
func detail(err error, code Code) Error {
	if field, ok := errors.AsType[*job.FieldError](err); ok {
		return Error{code, field.Error()}
	}
	if setting, ok := errors.AsType[*endpoint.FieldError](err); ok {
		return Error{code, setting.Error()}
	}
	if full, ok := errors.AsType[*queue.FullError](err); ok {
		return Error{code, full.Error()}
	}
	if space, ok := errors.AsType[*queue.SpaceError](err); ok {
		return Error{code, space.Error()}
	}
	if field, ok := errors.AsType[*pod.FieldError](err); ok {
		return Error{code, field.Error()}
	}
	if moved, ok := errors.AsType[*pod.TransitionError](err); ok {
		return Error{code, fmt.Sprintf("cannot %s a pod that is %s", moved.By, moved.From)}
	}
	if transition, ok := errors.AsType[*job.TransitionError](err); ok {
		if transition.By == job.Retry {
			code = NotRetryable
		}
		return Error{code, fmt.Sprintf("cannot %s a job that is %s", transition.By, transition.From)}
	}
	if errors.Is(err, registry.ErrInvalid) {
		_, text, _ := strings.Cut(err.Error(), registry.ErrInvalid.Error()+": ")
		return Error{code, text}
	}
	if missing, ok := errors.AsType[*bus.MissingError](err); ok && missing.Changing {
		return Error{code, "the endpoint is being made or deleted; try again"}
	} else if ok {
		return Error{code, fmt.Sprintf("the stream %s is missing or cannot be read; nothing was changed; an operator must run 'flightline doctor'", missing.Stream)}
	}
	return Error{code, strings.ReplaceAll(string(code), "_", " ")}
}

// answerOfFiber answers what Fiber and fasthttp found before a handler ran.
// Their texts quote the request, so they are not used.
func answerOfFiber(err *fiber.Error) Error {
	switch err.Code {
	case http.StatusNotFound:
		return Error{RouteNotFound, noRouteText}
	case http.StatusMethodNotAllowed:
		return Error{MethodNotAllowed, "the route does not take this method"}
	case http.StatusRequestEntityTooLarge:
		return Error{BodyTooLarge, "the body is too large"}
	case http.StatusRequestTimeout:
		return Error{RequestTimeout, "the request was not sent in time"}
	case http.StatusRequestHeaderFieldsTooLarge:
		return Error{InvalidRequest, "the request's headers are too large"}
	case http.StatusInternalServerError:
		return Error{Internal, internalText}
	}
	return Error{InvalidRequest, "the request is not valid HTTP"}
}

// OpenAIError is an error as OpenAI's clients read it.
type OpenAIError struct {
	Message string `json:"message"`
	// Type is a kind of errors, as "invalid_request_error".
	Type string `json:"type"`
	// Param is the parameter that is wrong, nil if it is none.
	Param *string `json:"param"`
	// Code is a text or, of some engines, the HTTP status; nil means none.
	Code any `json:"code"`
}

// OpenAIBody is the JSON of an error on the OpenAI route.
type OpenAIBody struct {
	Error OpenAIError `json:"error"`
	// RequestID is "" in what does not come from this package.
	RequestID string `json:"requestId,omitempty"`
}

// OpenAIType is the type that goes with an HTTP status.
func OpenAIType(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status >= http.StatusInternalServerError:
		return "server_error"
	}
	return "invalid_request_error"
}

// openAIOf is a's answer for OpenAI's clients.
func openAIOf(a Error, requestID string) OpenAIBody {
	return OpenAIBody{
		Error:     OpenAIError{Message: a.Text, Type: OpenAIType(a.Code.Status()), Code: a.Code},
		RequestID: requestID,
	}
}

// forOpenAI reports whether the path is one beneath /v2/ENDPOINT/openai/, whose
// errors have the shape that OpenAI's clients read.
func forOpenAI(path string) bool {
	rest, ok := strings.CutPrefix(path, "/v2/")
	_, rest, _ = strings.Cut(rest, "/")
	return ok && strings.HasPrefix(rest, "openai/")
}

// HeaderRequestID carries the id of a request in its answer. An id that the
// client sends is ignored: RunPod's Python client puts a job's id there.
const HeaderRequestID = "X-Request-ID"

// HeaderJobID names the job in the answer to a submission, also in an answer
// without an id: of a 503 it is unknown whether the job was accepted.
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
// and nowhere else. roles are Config.Roles.
func answerError(log *slog.Logger, roles []string) fiber.ErrorHandler {
	failures := newFailureLog(log)
	return func(c *fiber.Ctx, err error) error {
		a := answerOf(err)
		if a.Code == RouteNotFound && len(roles) > 0 {
			a.Text += " in this process, which serves " + strings.Join(roles, ", ")
		}
		status := a.Code.Status()
		if status >= http.StatusInternalServerError {
			failures.write(c, a.Code, err)
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

// param is a part of the path that outlives the request, "" if none exists:
// a request that could not be parsed has no route, and Fiber panics.
func param(c *fiber.Ctx, name string) string {
	if !slices.Contains(c.Route().Params, name) {
		return ""
	}
	return strings.Clone(c.Params(name))
}
