package worker_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"flightline/shared/job"
	"flightline/shared/telemetry"
	"flightline/shared/testenv"
	"flightline/shared/worker"
)

// Each end of a run ends its span, with what came of it.
func TestARunIsASpanUntilItsOutcomeIsTaken(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	recorded := tracetest.NewSpanRecorder()
	tracer := telemetry.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorded)))
	inside, started := make(chan trace.SpanContext, 1), make(chan struct{}, 1)
	w := s.run(t, worker.Config{Tracer: tracer, Grace: -1}, func(ctx context.Context, j *worker.Job) (any, error) {
		if string(j.Input) == `{"wait":true}` {
			started <- struct{}{}
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		inside <- trace.SpanContextFromContext(ctx)
		return 1, nil
	})
	outcome := func(id job.ID) (span sdk.ReadOnlySpan, outcome string) {
		t.Helper()
		testenv.Eventually(t, "the span has ended", func() bool {
			for _, span = range recorded.Ended() {
				attrs := attribute.NewSet(span.Attributes()...)
				message, _ := attrs.Value("messaging.message.id")
				if message.AsString() == string(id) {
					value, _ := attrs.Value("flightline.job.outcome")
					outcome = value.AsString()
					return true
				}
			}
			return false
		})
		return span, outcome
	}
	id := s.submit(t)
	if within := got(t, inside, "the handler"); !within.IsValid() {
		t.Error("the handler runs outside the span")
	} else if span, how := outcome(id); how != string(job.Completed) || !span.SpanContext().Equal(within) {
		t.Errorf("got %v with %s, want the span of the handler, %v, completed", span.SpanContext(), how, within)
	}

	wait := func(r *job.Request) { r.Input = []byte(`{"wait":true}`) }
	id = s.submit(t, wait)
	got(t, started, "the job")
	if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
		t.Fatal(err)
	}
	if _, how := outcome(id); how != string(job.Cancelled) {
		t.Errorf("cancelled: got %s", how)
	}
	id = s.submit(t, wait)
	got(t, started, "the job")
	w.stop()
	if _, how := outcome(id); how != telemetry.GivenBack {
		t.Errorf("the worker stops: got %s, want %s", how, telemetry.GivenBack)
	}
}
