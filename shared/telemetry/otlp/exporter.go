package otlp

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"flightline/shared/telemetry"
)

// exporter logs the spans that could not be sent. They are lost.
type exporter struct {
	sdk.SpanExporter
	log     *slog.Logger
	stopped chan struct{} // closed when the library has shut it down
}

// ExportSpans implements sdk.SpanExporter.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.log.WarnContext(ctx, "spans not sent", "spans", len(spans), "err", err)
	}
	return nil
}

// Shutdown implements sdk.SpanExporter. The library calls it once.
func (e *exporter) Shutdown(ctx context.Context) error {
	defer close(e.stopped)
	return e.SpanExporter.Shutdown(ctx)
}

// ids makes random ids, except for a span whose id is given (telemetry.SpanID).
type ids struct{}

// NewIDs implements sdk.IDGenerator.
func (ids) NewIDs(ctx context.Context) (id trace.TraceID, span trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())  //nolint:gosec // it keeps no secret
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64()) //nolint:gosec // it keeps no secret
	}
	return id, ids{}.NewSpanID(ctx, id)
}

// NewSpanID implements sdk.IDGenerator.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	id, _ := telemetry.SpanID(ctx)
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64()) //nolint:gosec // it keeps no secret
	}
	return id
}
