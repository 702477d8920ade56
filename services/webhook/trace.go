package webhook

import (
	"context"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"flightline/shared/telemetry"
)

// withTrace returns ctx with the trace of the task's job, for spans and logs.
func (s *Service) withTrace(ctx context.Context, t *task) context.Context {
	if s.cfg.Tracer == nil || t.Job.Trace == "" {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, telemetry.Of(&t.Job))
}

// traced runs post, the attempt with number try, in a span and passes the span
// to the receiver.
func (s *Service) traced(ctx context.Context, t *task, try int, header http.Header, post func(context.Context) (result, error)) (result, error) {
	if s.cfg.Tracer == nil {
		return post(ctx)
	}
	attrs := []attribute.KeyValue{
		attribute.String("http.request.method", http.MethodPost), attribute.String("url.full", t.to.origin),
		attribute.String("flightline.endpoint.id", t.Job.Endpoint), attribute.String("flightline.job.id", string(t.Job.ID)),
		attribute.Int("flightline.webhook.attempt", try),
	}
	if t.to.url != nil {
		attrs = append(attrs, attribute.String("server.address", t.to.url.Hostname()))
		if port, err := strconv.Atoi(t.to.url.Port()); err == nil {
			attrs = append(attrs, attribute.Int("server.port", port))
		}
	}
	if try > 1 {
		attrs = append(attrs, attribute.Int("http.request.resend_count", try-1))
	}
	ctx, span := s.cfg.Tracer.Start(ctx, "POST webhook", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	defer span.End()
	telemetry.SetHeaders(ctx, header)
	got, err := post(ctx)
	switch {
	case got.status != 0:
		span.SetAttributes(attribute.Int("http.response.status_code", got.status))
	case err == nil:
		span.SetAttributes(attribute.String("error.type", "no_answer"))
	}
	if !got.ok() {
		span.SetStatus(codes.Error, "")
	}
	return got, err
}
