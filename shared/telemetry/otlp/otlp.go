// Package otlp sends spans by OTLP over HTTP, as the standard OTEL_ variables
// say. Without an endpoint among them nothing is made and nothing is started.
package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"flightline/shared/telemetry"
)

// closeWithin bounds sending what is left at the end.
const closeWithin = 3 * time.Second

// Sender makes spans and sends them. A nil one means that traces are off.
type Sender struct{ provider *sdk.TracerProvider }

// Open starts sending as the environment, by name, says. It returns nil if
// that names no endpoint or switches traces off, and ErrConfig if it makes no
// sense. service is the name of the process unless OTEL_SERVICE_NAME is set. Log
// hears of spans that could not be sent. Close the sender.
func Open(ctx context.Context, environment map[string]string, service, version string, log *slog.Logger) (*Sender, error) {
	s, on, err := settingsOf(environment)
	if err != nil || !on {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx, s.options()...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(s.about(service, version)...))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("spans not sent", "err", err) //nolint:sloglint // there is no context
	}))
	return &Sender{sdk.NewTracerProvider(
		sdk.WithBatcher(exporter), sdk.WithResource(about), sdk.WithSampler(s.sampler), sdk.WithIDGenerator(ids{}),
	)}, nil
}

func (s settings) about(service, version string) []attribute.KeyValue {
	own := []attribute.KeyValue{
		attribute.String("service.name", service), attribute.String("service.version", version),
		attribute.String("service.instance.id", uuid.NewString()),
	}
	for _, given := range s.resource { // the last one of a name counts
		own = append(own, attribute.String(given[0], given[1]))
	}
	return own
}

// Tracer is nil if s is.
func (s *Sender) Tracer() *telemetry.Tracer {
	if s == nil {
		return nil
	}
	return telemetry.New(s.provider)
}

// Logs is log, with the ids of traces if there are any.
func (s *Sender) Logs(log *slog.Logger) *slog.Logger {
	if s == nil {
		return log
	}
	return slog.New(telemetry.Logs(log.Handler()))
}

// Close sends what is left, for 3 s at most. ctx may have ended.
func (s *Sender) Close(ctx context.Context) error {
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	return s.provider.Shutdown(ctx)
}

// ids are random, but for spans that are to have a certain one.
type ids struct{}

// NewIDs implements sdk.IDGenerator.
func (i ids) NewIDs(ctx context.Context) (id trace.TraceID, span trace.SpanID) {
	for !id.IsValid() {
		put(id[:8])
		put(id[8:])
	}
	return id, i.NewSpanID(ctx, id)
}

// NewSpanID implements sdk.IDGenerator.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	id, _ := telemetry.SpanID(ctx)
	for !id.IsValid() {
		put(id[:])
	}
	return id
}

func put(b []byte) {
	r := rand.Uint64() //nolint:gosec // it keeps no secret
	for i := range b {
		b[i] = byte(r >> (8 * i)) //nolint:gosec // the lowest byte is meant
	}
}
