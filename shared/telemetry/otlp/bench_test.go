package otlp

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	wire "go.opentelemetry.io/proto/otlp/trace/v1"

	"flightline/shared/job"
	"flightline/shared/telemetry"
)

// nowhere takes spans and does nothing with them.
type nowhere struct{}

func (nowhere) UploadTraces(context.Context, []*wire.ResourceSpans) error { return nil }
func (nowhere) Stop(context.Context) error                                { return nil }

func newProvider(cfg batching, to uploader) *provider {
	return &provider{
		sampler: sampler{true, everything}, limits: sdk.NewSpanLimits(), tracers: map[scope]*tracer{},
		batch: newBatch(cfg, nil, to, slog.New(slog.DiscardHandler)),
	}
}

// What the spans of a job cost, with their encoding, but not their sending.
func BenchmarkSpans(b *testing.B) {
	p := newProvider(batching{most: 512, room: 2048, delay: time.Second, timeout: time.Second}, nowhere{})
	t, ctx := telemetry.New(p), context.Background()
	n := 0
	sent := func() {
		if n++; n%512 == 0 {
			p.batch.send(ctx, false)
		}
	}
	j := &job.Job{ID: "0197a1b2-1234-7234-8234-123456789abc", Endpoint: "ep", Attempt: 1, Run: 1, Worker: "worker-1"}
	b.Run("request", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			within, span := t.Request(ctx, http.MethodPost, "", "")
			telemetry.Queued(within)
			span.End()
			sent()
		}
	})
	b.Run("process", func(b *testing.B) {
		within, _ := t.Request(ctx, http.MethodPost, "", "")
		j.Trace = telemetry.Line(within)
		b.ReportAllocs()
		for b.Loop() {
			telemetry.End(t.Process(ctx, j), string(job.Completed))
			sent()
		}
	})
}
