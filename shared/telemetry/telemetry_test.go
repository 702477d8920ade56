package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"flightline/shared/job"
	"flightline/shared/telemetry"
)

const (
	parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	later  = "00-11111111111111111111111111111111-2222222222222222-01"
)

func newTracer(t *testing.T) (*telemetry.Tracer, *tracetest.SpanRecorder) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	return telemetry.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder), sdk.WithIDGenerator(given{}))), recorder
}

// given is what a provider must do with ids.
type given struct{}

func (given) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	return trace.TraceID{9}, given{}.NewSpanID(ctx, trace.TraceID{9})
}

func (given) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if id, is := telemetry.SpanID(ctx); is {
		return id
	}
	return trace.SpanID{7}
}

func TestALineIsReadAsItWasWritten(t *testing.T) {
	for name, line := range map[string]string{
		"sampled":      parent,
		"not sampled":  strings.TrimSuffix(parent, "1") + "0",
		"with a state": parent + " a=1,b=2",
	} {
		ctx := trace.ContextWithRemoteSpanContext(t.Context(), telemetry.Remote(line))
		if got := telemetry.Line(ctx); got != line {
			t.Errorf("%s: got %q, want %q", name, got, line)
		}
	}
	for _, line := range []string{"", "x", "00-0-0-01", strings.Replace(parent, "00-", "ff-", 1), parent + "-x"} {
		ctx := trace.ContextWithRemoteSpanContext(t.Context(), telemetry.Remote(line))
		if got := telemetry.Line(ctx); got != "" {
			t.Errorf("%q: got %q, want nothing", line, got)
		}
	}
	long := parent + " a=" + strings.Repeat("x", 255) + ",b=" + strings.Repeat("y", 255)
	if got := telemetry.Line(trace.ContextWithRemoteSpanContext(t.Context(), telemetry.Remote(long))); got != parent {
		t.Errorf("got %q, want the state left out, for it is too long", got)
	}
}

func TestARunsSpanIsKnownBeforeItIsMade(t *testing.T) {
	for name, c := range map[string]struct {
		job   job.Job
		first string // the trace of the link, "" for none
	}{
		"the first run":           {job.Job{Trace: parent, Attempt: 1, Run: 1}, ""},
		"after a lost worker":     {job.Job{Trace: parent, Attempt: 1, Run: 2}, parent},
		"a retry":                 {job.Job{Trace: later, Origin: parent, Attempt: 2, Run: 1}, parent},
		"a retry without a trace": {job.Job{Trace: parent, Attempt: 2, Run: 1}, parent},
		"no trace at all":         {job.Job{Attempt: 2, Run: 1}, ""},
	} {
		j := c.job
		j.ID, j.Endpoint = "j1", "ep"
		tracer, recorded := newTracer(t)
		telemetry.End(tracer.Process(t.Context(), &j), string(job.Completed))
		spans := recorded.Ended()
		if len(spans) != 1 {
			t.Fatalf("%s: got %d spans, want 1", name, len(spans))
		}
		got := spans[0]
		if want := telemetry.RunLine(&j); j.Trace != "" && telemetry.Line(trace.ContextWithSpanContext(t.Context(), got.SpanContext())) != want {
			t.Errorf("%s: got %v, want %s", name, got.SpanContext(), want)
		}
		if j.Trace != "" && got.Parent().SpanID() != telemetry.Remote(j.Trace).SpanID() {
			t.Errorf("%s: got the parent %v, want that of %s", name, got.Parent(), j.Trace)
		}
		want := telemetry.Remote(telemetry.RunLine(&job.Job{ID: j.ID, Trace: c.first, Attempt: 1, Run: 1}))
		switch links := got.Links(); {
		case c.first == "" && len(links) > 0:
			t.Errorf("%s: got the links %v, want none", name, links)
		case c.first != "" && (len(links) != 1 || links[0].SpanContext.SpanID() != want.SpanID() || links[0].SpanContext.TraceID() != want.TraceID()):
			t.Errorf("%s: got the links %v, want one to %v", name, links, want)
		}
	}
}

func TestRunsHaveDifferentSpans(t *testing.T) {
	seen := map[string]bool{}
	for _, id := range []job.ID{"a", "b"} {
		for attempt := range 20 {
			for run := range 20 {
				seen[telemetry.RunLine(&job.Job{ID: id, Trace: parent, Attempt: attempt, Run: run})] = true
			}
		}
	}
	if want := 2 * 20 * 20; len(seen) != want {
		t.Errorf("got %d different ones, want %d", len(seen), want)
	}
}

func TestOutcomesAreErrorsOnlyIfSomethingWentWrong(t *testing.T) {
	for outcome, want := range map[string]codes.Code{
		string(job.Completed): codes.Unset, telemetry.GivenBack: codes.Unset, string(job.Cancelled): codes.Unset,
		string(job.Failed): codes.Error, string(job.TimedOut): codes.Error, telemetry.Lost: codes.Error,
	} {
		tracer, recorded := newTracer(t)
		ctx := tracer.Process(t.Context(), &job.Job{ID: "j1", Trace: parent})
		telemetry.End(ctx, outcome)
		telemetry.End(ctx, "the second one counts for nothing")
		if got := recorded.Ended(); len(got) != 1 || got[0].Status().Code != want {
			t.Errorf("%s: got %v, want one with %v", outcome, got, want)
		}
	}
}

func TestARequestTellsWhatItQueued(t *testing.T) {
	tracer, recorded := newTracer(t)
	ctx, span := tracer.Request(t.Context(), "POST", later, "")
	telemetry.Queued(ctx)
	telemetry.Retried(ctx, &job.Job{Attempt: 2}) // of a submission without a trace
	telemetry.Retried(ctx, &job.Job{Attempt: 2, Origin: parent})
	span.End()
	got := recorded.Ended()[0]
	if len(got.Events()) != 1 || got.Events()[0].Name != "queued" || got.Parent().TraceID() != telemetry.Remote(later).TraceID() {
		t.Errorf("got the events %v beneath %v, want that it was queued", got.Events(), got.Parent())
	}
	if links := got.Links(); len(links) != 1 || telemetry.Line(trace.ContextWithSpanContext(t.Context(), links[0].SpanContext)) != parent {
		t.Errorf("got the links %v, want one to %s", links, parent)
	}
}

func TestARunMayBeToldAfterwards(t *testing.T) {
	tracer, recorded := newTracer(t)
	began := time.Now().Add(-time.Minute)
	tracer.Ran(t.Context(), &job.Job{ID: "j1", Trace: parent, Attempt: 1, Run: 1}, began, string(job.Completed))
	got := recorded.Ended()[0]
	if took := got.EndTime().Sub(got.StartTime()); !got.StartTime().Equal(began) || took < time.Minute {
		t.Errorf("got a span from %v that took %v, want it from %v", got.StartTime(), took, began)
	}
}

func TestLogLinesNameTheTrace(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(telemetry.Logs(slog.NewJSONHandler(&text, nil))).With("endpoint", "ep")
	log.InfoContext(trace.ContextWithRemoteSpanContext(t.Context(), telemetry.Remote(parent)), "said", "job", "j1")
	var got map[string]string
	if err := json.Unmarshal(text.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331", "job": "j1", "endpoint": "ep",
	} {
		if got[key] != want {
			t.Errorf("got %s=%q, want %q", key, got[key], want)
		}
	}
	text.Reset()
	log.InfoContext(t.Context(), "said")
	if strings.Contains(text.String(), "trace_id") {
		t.Errorf("got %s, want no trace", text.String())
	}
}

// What a job costs where traces are off.
func TestOffCostsNothing(t *testing.T) {
	var off *telemetry.Tracer
	ctx, j := t.Context(), &job.Job{ID: "j1", Attempt: 1, Run: 1}
	allocs := testing.AllocsPerRun(100, func() {
		within := off.Process(ctx, j)
		_ = telemetry.Within(ctx, within)
		_ = telemetry.Line(within)
		telemetry.Queued(within)
		telemetry.Retried(within, j)
		telemetry.End(within, "COMPLETED")
		off.Ran(within, j, time.Time{}, "COMPLETED")
	})
	if allocs != 0 {
		t.Errorf("got %v allocations, want none", allocs)
	}
}

// Nearly all headers are read without the library, and as it reads them.
func TestHeadersAreReadAsTheLibraryReadsThem(t *testing.T) {
	for _, header := range []string{
		parent, parent[:53] + "00", parent[:53] + "02", parent[:53] + "03", parent[:53] + "04", parent[:53] + "0a", parent[:53] + "11",
		"01" + parent[2:], "ff" + parent[2:], parent + "-more", "01" + parent[2:] + "-more", strings.ToUpper(parent), parent[:54], "", "00--",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
		strings.Replace(parent, "0af", "0xf", 1), strings.Replace(parent, "b7", "B7", 1), strings.Replace(parent, "-b", "_b", 1), parent[:52] + "x01",
	} {
		for _, state := range []string{"", "vendor=1", "not a state"} {
			carrier := propagation.MapCarrier{"traceparent": header, "tracestate": state}
			want := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(t.Context(), carrier))
			line := header
			if state != "" {
				line += " " + state
			}
			if got := telemetry.Remote(line); !got.Equal(want) {
				t.Errorf("%q: got %+v, want %+v", line, got, want)
			}
		}
	}
}
