package gateway

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"flightline/shared/job"
	"flightline/shared/telemetry"
)

const someTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// The instance that gets the result makes the span of the run, beneath what
// queued the job.
func TestARunIsTracedByWhoeverHearsOfItsEnd(t *testing.T) {
	s := newEnv(t)
	recorded := tracetest.NewSpanRecorder()
	tracer := telemetry.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorded)))
	w := s.worker("w1", s.gateway(Config{Tracer: tracer}), s.gateway(Config{Tracer: tracer}))
	id := s.submit(func(r *job.Request) { r.Trace = someTrace + " a=1" })
	before := time.Now()
	var handed struct {
		ID          string `json:"id"`
		Traceparent string `json:"traceparent"`
		Tracestate  string `json:"tracestate"`
	}
	for handed.ID == "" {
		if a := w.send(http.MethodGet, "/job-take/%w?gpu=any", nil); a.status == http.StatusOK {
			must(t, json.Unmarshal([]byte(a.raw), &handed))
		}
	}
	want := telemetry.RunLine(&job.Job{ID: job.ID(id), Trace: someTrace, Attempt: 1, Run: 1})
	if handed.Traceparent != want || handed.Tracestate != "a=1" {
		t.Errorf("the worker got %+v, want the trace context %q of its run", handed, want)
	}
	w.done(id, `{"error":"no"}`)
	w.done(id, `{"output":"late"}`) // changes nothing
	s.is(id, job.Failed, "", "no")
	spans := recorded.Ended()
	if len(spans) != 1 {
		t.Fatalf("got %d spans, want 1", len(spans))
	}
	got, parent := spans[0], telemetry.Remote(someTrace)
	if got.Name() != "process ep" || got.SpanKind() != trace.SpanKindConsumer || got.Parent().SpanID() != parent.SpanID() || got.SpanContext().TraceID() != parent.TraceID() {
		t.Errorf("got %s of kind %v beneath %v, want it beneath %s", got.Name(), got.SpanKind(), got.Parent(), someTrace)
	}
	const slack = time.Second // of the two clocks
	if got.StartTime().Before(before.Add(-slack)) || got.StartTime().After(got.EndTime().Add(slack)) {
		t.Errorf("got it from %v to %v, want it from the take, after %v", got.StartTime(), got.EndTime(), before)
	}
}

func TestAJobWithoutATraceIsHandedOutAsEver(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{}))
	s.submit()
	for {
		a := w.send(http.MethodGet, "/job-take/%w?gpu=any", nil)
		if a.status != http.StatusOK {
			continue
		}
		var got map[string]json.RawMessage
		must(t, json.Unmarshal([]byte(a.raw), &got))
		if len(got) != 3 { // id, input, policy
			t.Errorf("got %s, want nothing new in it", a.raw)
		}
		return
	}
}
