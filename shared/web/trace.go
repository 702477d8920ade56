package web

import (
	"net/http"
	"slices"
	"sync"

	"github.com/gofiber/fiber/v2"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"flightline/shared/telemetry"
)

// traced puts each request into a span, within the caller's trace if it names
// one. The span ends with the handler: an answer that is streamed goes on after
// that. Health checks have no span.
func traced(t *telemetry.Tracer) fiber.Handler {
	return func(c *fiber.Ctx) error {
		if path := c.Path(); path == "/healthz" || path == "/readyz" {
			return c.Next()
		}
		header := &c.Request().Header
		method := methodOf(c)
		ctx, span := t.Request(c.UserContext(), method, string(header.Peek(telemetry.HeaderParent)), string(header.Peek(telemetry.HeaderState)))
		defer span.End()
		c.SetUserContext(ctx)
		err := c.Next()
		if span.IsRecording() {
			describe(c, span, method, err)
		}
		return err
	}
}

// attributes are kept for the next request; spans copy them.
var attributes = sync.Pool{New: func() any { return new([5]attribute.KeyValue) }}

// describe says what a request was and how it was answered, err being its
// handler's.
func describe(c *fiber.Ctx, span trace.Span, method string, err error) {
	status := c.Response().StatusCode()
	if err != nil {
		status = answerOf(err).Code.Status()
	}
	room := attributes.Get().(*[5]attribute.KeyValue) //nolint:forcetypeassert // we put nothing else
	defer attributes.Put(room)
	attrs := room[:0]
	attrs = append(attrs, attribute.Int("http.response.status_code", status), attribute.String("flightline.request.id", RequestID(c)))
	if route := c.Route().Path; route != "/" { // the middlewares'
		span.SetName(method + " " + route)
		attrs = append(attrs, attribute.String("http.route", route))
	}
	if endpoint := param(c, "endpoint"); endpoint != "" {
		attrs = append(attrs, attribute.String("flightline.endpoint.id", endpoint))
	}
	if id := jobNamed(c); id != "" {
		attrs = append(attrs, attribute.String("flightline.job.id", id))
	}
	span.SetAttributes(attrs...)
	if status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, "")
	}
}

// methodOf is the method, in memory that outlives the request.
func methodOf(c *fiber.Ctx) string {
	if at := slices.Index(fiber.DefaultMethods, c.Method()); at >= 0 {
		return fiber.DefaultMethods[at]
	}
	return "_OTHER"
}
