// Package otlp sends spans by OTLP over HTTP, as the standard OTEL_ variables
// say, with OpenTelemetry's SDK. Without an endpoint among them nothing is made
// and nothing is started.
package otlp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"flightline/shared/telemetry"
)

// closeTimeout bounds sending what is left at the end.
const closeTimeout = 3 * time.Second

// Sender makes spans and sends them. A nil one means that traces are off.
type Sender struct {
	provider    *sdk.TracerProvider
	exporter    *exporter
	parentBased bool
}

// Open starts sending as the environment, by name, says. It returns nil if
// that names no endpoint or switches traces off, and ErrConfig if it makes no
// sense. service is the name of the process unless OTEL_SERVICE_NAME is set. Log
// gets spans that could not be sent. Close the sender.
func Open(ctx context.Context, environment map[string]string, service, version string, log *slog.Logger) (*Sender, error) {
	s, on, err := settingsOf(environment)
	if err != nil || !on {
		return nil, err
	}
	p := newProblems(cmp.Or(log, slog.New(slog.DiscardHandler)))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { p.warn(context.WithoutCancel(ctx), "traces", err) }))
	out, err := otlptracehttp.New(ctx, s.options()...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(s.about(service, version)...))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	e := &exporter{SpanExporter: out, problems: p, stopped: make(chan struct{})}
	return &Sender{
		provider: sdk.NewTracerProvider(
			sdk.WithBatcher(e, s.batching...), sdk.WithSampler(s.sampler), sdk.WithResource(about),
			sdk.WithIDGenerator(ids{}), sdk.WithoutPanicRecording(), // its text may hold a secret
		),
		exporter: e, parentBased: s.parentBased,
	}, nil
}

func (s settings) about(service, version string) []attribute.KeyValue {
	own := []attribute.KeyValue{
		attribute.String("service.name", service), attribute.String("service.version", version),
		attribute.String("service.instance.id", uuid.NewString()),
	}
	for name, value := range s.resource { // they replace those of the same name before them
		own = append(own, attribute.String(name, value))
	}
	return own
}

// Tracer is nil if s is.
func (s *Sender) Tracer() *telemetry.Tracer {
	switch {
	case s == nil:
		return nil
	case s.parentBased:
		return telemetry.NewParentBased(s.provider)
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

// Close sends what is left, for 3 s at most. ctx may have ended. Spans that end
// later are lost.
func (s *Sender) Close(ctx context.Context) error {
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := s.provider.Shutdown(ctx); err != nil {
		// The library leaves its sending goroutine behind: end what it sends.
		_ = s.exporter.SpanExporter.Shutdown(ctx)
		<-s.exporter.stopped
		return fmt.Errorf("send the last spans: %w", err)
	}
	return nil
}
