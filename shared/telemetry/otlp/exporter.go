package otlp

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"flightline/shared/telemetry"
)

const (
	// problemInterval is the pause between two lines about problems with the collector, after
	// the first maxProblemBurst: each batch has one, many a second under load.
	problemInterval = time.Minute
	maxProblemBurst = 10
)

// problems logs what went wrong with the collector.
type problems struct {
	log   *slog.Logger
	limit *telemetry.LogLimit
}

func newProblems(log *slog.Logger) problems {
	return problems{log, telemetry.NewLogLimit(rate.Every(problemInterval), maxProblemBurst)}
}

// warn warns, if it is time, with the beginning of the error: that may have an answer of 4 MB.
func (p problems) warn(ctx context.Context, what string, err error, attrs ...slog.Attr) {
	p.limit.Warn(ctx, p.log, what, append(attrs, slog.String("err", fmt.Sprintf("%.300s", err)))...)
}

// exporter logs the spans that could not be sent. They are lost.
type exporter struct {
	sdk.SpanExporter
	problems
	stopped chan struct{} // closed when the library has shut it down
}

// ExportSpans implements sdk.SpanExporter.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.warn(ctx, "spans not sent", err, slog.Int("spans", len(spans)))
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
