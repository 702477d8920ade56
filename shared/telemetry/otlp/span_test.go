package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	wire "go.opentelemetry.io/proto/otlp/trace/v1"

	"flightline/shared/job"
	"flightline/shared/telemetry"
)

func one(t *testing.T, k *kept) *wire.Span {
	t.Helper()
	if len(k.all) != 1 || len(k.all[0].ScopeSpans) != 1 || len(k.all[0].ScopeSpans[0].Spans) != 1 {
		t.Fatalf("got %v, want one span", k.all)
	}
	return k.all[0].ScopeSpans[0].Spans[0]
}

func TestTheLastValueOfAKeyCounts(t *testing.T) {
	k := &kept{}
	p := newProvider(roomy, k)
	_, span := p.Tracer("t").Start(t.Context(), "s", trace.WithAttributes(attribute.Int("k", 1), attribute.Int("k", 2)))
	for i := range 200 { // marks collide
		span.SetAttributes(attribute.Int(fmt.Sprint("key", i%100), i))
	}
	span.SetAttributes(attribute.String("k", "last"), attribute.KeyValue{Key: "", Value: attribute.IntValue(1)})
	span.End()
	p.batch.send(t.Context(), true)
	got := map[string]string{}
	s := one(t, k)
	for _, kv := range s.Attributes {
		got[kv.Key] += kv.Value.String()
	}
	if len(s.Attributes) != 101 || got["k"] != `string_value:"last"` || got["key7"] != "int_value:107" || s.DroppedAttributesCount != 1 {
		t.Errorf("got %d attributes %v, want 101, each once, and one dropped", len(s.Attributes), got)
	}
}

func TestLimitsHold(t *testing.T) {
	k := &kept{}
	p := newProvider(roomy, k)
	p.limits = sdk.SpanLimits{
		AttributeCountLimit: 2, AttributeValueLengthLimit: 3, EventCountLimit: 1, LinkCountLimit: 1,
		AttributePerEventCountLimit: 1, AttributePerLinkCountLimit: 0,
	}
	two := []attribute.KeyValue{attribute.String("a", "grün"), attribute.String("b", "x")}
	_, span := p.Tracer("t").Start(t.Context(), "s", trace.WithAttributes(append(two, attribute.Int("c", 1))...))
	link := trace.Link{SpanContext: trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}}), Attributes: two}
	for range 2 {
		span.AddEvent("e", trace.WithAttributes(two...))
		span.AddLink(link)
	}
	span.AddLink(trace.Link{})
	span.SetAttributes(attribute.String("b", "\xff\xfe"))
	span.End()
	p.batch.send(t.Context(), true)
	s := one(t, k)
	if len(s.Attributes) != 2 || s.DroppedAttributesCount != 1 || s.Attributes[0].Value.GetStringValue() != "grü" || s.Attributes[1].Value.GetStringValue() != "��" {
		t.Errorf("got the attributes %v and %d dropped", s.Attributes, s.DroppedAttributesCount)
	}
	if len(s.Events) != 1 || s.DroppedEventsCount != 1 || len(s.Events[0].Attributes) != 1 || s.Events[0].DroppedAttributesCount != 1 {
		t.Errorf("got the events %v and %d dropped", s.Events, s.DroppedEventsCount)
	}
	if len(s.Links) != 1 || s.DroppedLinksCount != 1 || len(s.Links[0].Attributes) != 0 || s.Links[0].DroppedAttributesCount != 2 {
		t.Errorf("got the links %v and %d dropped", s.Links, s.DroppedLinksCount)
	}
}

// A provider of OpenTelemetry's would decide the same.
func TestSamplersAreThoseOfTheStandard(t *testing.T) {
	sampled := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled})
	for name, want := range map[string]sdk.Sampler{
		"": sdk.ParentBased(sdk.AlwaysSample()), "always_on": sdk.AlwaysSample(), "always_off": sdk.NeverSample(),
		"traceidratio": sdk.TraceIDRatioBased(0.3), "parentbased_always_off": sdk.ParentBased(sdk.NeverSample()),
		"parentbased_traceidratio": sdk.ParentBased(sdk.TraceIDRatioBased(0.3)),
	} {
		s, err := samplerOf(name, map[bool]string{true: "0.3"}[strings.Contains(name, "ratio")])
		if err != nil {
			t.Fatal(err)
		}
		for _, parent := range []trace.SpanContext{{}, sampled, sampled.WithTraceFlags(0)} {
			for range 1000 {
				id := newTraceID()
				about := sdk.SamplingParameters{ParentContext: trace.ContextWithSpanContext(t.Context(), parent), TraceID: id}
				if got, want := s.takes(parent, id), want.ShouldSample(about).Decision == sdk.RecordAndSample; got != want {
					t.Fatalf("%q, parent %v, trace %s: got %v, want %v", name, parent.IsSampled(), id, got, want)
				}
			}
		}
	}
}

func TestWhatIsNotSampledIsPassedOnAndNotSent(t *testing.T) {
	k := &kept{}
	p := newProvider(roomy, k)
	p.sampler = sampler{}
	ctx, span := p.Tracer("t").Start(t.Context(), "s")
	span.SetAttributes(attribute.Int("a", 1))
	span.AddEvent("e")
	span.RecordError(errors.New("x"))
	span.AddLink(trace.Link{SpanContext: span.SpanContext()})
	span.End()
	p.batch.send(ctx, true)
	if line := telemetry.Line(ctx); span.IsRecording() || !strings.HasSuffix(line, "-00") || len(k.all) > 0 || span.TracerProvider() != p {
		t.Errorf("got %q, recorded %v, sent %v, want a context that says no", line, span.IsRecording(), k.all)
	}
}

const callers = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"

// What is not recorded costs next to nothing, and everybody hears that it is not.
func TestAJobOfATraceThatIsNotRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		sampler sampler
		parent  string // of the request
		carried string // "" for the line of the request's span
	}{
		"begun here":              {sampler{follow: true}, "", "0"},
		"of a caller":             {sampler{follow: true, below: everything}, callers + "00", ""},
		"each decides for itself": {sampler{}, "", ""},
	} {
		k := &kept{}
		p := newProvider(roomy, k)
		p.sampler = c.sampler
		tracer := telemetry.New(p)
		ctx, request := tracer.Request(t.Context(), "POST", c.parent, "")
		j := &job.Job{ID: "j", Endpoint: "ep", Trace: telemetry.Carry(ctx), Attempt: 1, Run: 1, Mode: job.Sync}
		telemetry.Queued(ctx)
		request.End()
		if want := c.carried; j.Trace != want && (want != "" || j.Trace != telemetry.Line(ctx)) {
			t.Errorf("%s: the job carries %q, want %q", name, j.Trace, want)
		}
		run := tracer.Process(t.Context(), j)
		telemetry.End(run, string(job.Completed))
		queued := telemetry.Of(j)
		if line := telemetry.Line(run); !strings.HasSuffix(line, "-00") || !strings.HasPrefix(line, "00-"+queued.TraceID().String()) {
			t.Errorf("%s: the handler gets %q, want the trace %s, not sampled", name, line, queued.TraceID())
		}
		if line := telemetry.RunLine(j); !strings.HasSuffix(line, "-00") || !strings.HasPrefix(line, "00-"+queued.TraceID().String()) {
			t.Errorf("%s: another process says %q, want the trace %s, not sampled", name, line, queued.TraceID())
		}
		if _, linked := telemetry.First(&job.Job{ID: "j", Trace: j.Trace, Attempt: 1, Run: 2}); linked != (c.carried == "") {
			t.Errorf("%s: got a link %v to the first run", name, linked)
		}
		if p.batch.send(t.Context(), true); len(k.all) > 0 {
			t.Errorf("%s: got %v, want nothing sent", name, k.all)
		}
	}
}

func TestARunThatIsRecordedIsCarriedWhole(t *testing.T) {
	k := &kept{}
	p := newProvider(roomy, k)
	tracer := telemetry.New(p)
	ctx, _ := tracer.Request(t.Context(), "POST", "", "")
	telemetry.End(tracer.Process(t.Context(), &job.Job{ID: "j", Endpoint: "ep", Trace: telemetry.Carry(ctx), Attempt: 1, Run: 1}), string(job.Completed))
	p.batch.send(t.Context(), true)
	if got, parent := one(t, k), trace.SpanContextFromContext(ctx).SpanID(); got.Name != "process ep" || string(got.ParentSpanId) != string(parent[:]) {
		t.Errorf("got %v, want the run beneath %s", got, parent)
	}
}

func TestSpansGoTogetherAndTooManyAreDropped(t *testing.T) {
	k, text := &kept{}, new(strings.Builder)
	p := newProvider(batching{most: 10, room: 25, delay: time.Hour, timeout: time.Minute}, k)
	p.batch.log = slog.New(slog.NewTextHandler(text, nil))
	end := func(n int) {
		for i := range n {
			_, span := p.Tracer(fmt.Sprint("scope", i%2)).Start(t.Context(), "s")
			span.End()
		}
	}
	end(30)
	p.batch.send(t.Context(), false)
	if diff := cmp.Diff([]int{10, 10}, k.sent); diff != "" {
		t.Errorf("the full ones (-want +got):\n%s", diff)
	}
	p.batch.send(t.Context(), true)
	end(12) // in the memory of those that were sent
	p.batch.send(t.Context(), true)
	if diff := cmp.Diff([]int{10, 10, 5, 10, 2}, k.sent); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	if n := strings.Count(text.String(), "spans=5"); n != 1 {
		t.Errorf("got the log %q, want one line of 5 that were dropped", text)
	}
	k.fail = errors.New("away")
	end(1)
	p.batch.send(t.Context(), true)
	if !strings.Contains(text.String(), "away") {
		t.Errorf("got the log %q, want what could not be sent", text)
	}
}

// busy takes spans while others end.
type busy struct {
	*kept
	during func()
}

func (b busy) UploadTraces(ctx context.Context, list []*wire.ResourceSpans) error {
	b.during()
	return b.kept.UploadTraces(ctx, list)
}

// What ends while others are sent waits for its turn, or each would soon be
// sent by itself.
func TestWhatEndsMeanwhileWaits(t *testing.T) {
	k := &kept{}
	var p *provider
	end := func() {
		_, span := p.Tracer("scope").Start(t.Context(), "s")
		span.End()
	}
	p = newProvider(batching{most: 10, room: 100, delay: time.Hour, timeout: time.Minute}, busy{k, end})
	for range 13 {
		end()
	}
	p.batch.send(t.Context(), true)
	if diff := cmp.Diff([]int{10, 4}, k.sent); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Many use a span, and many end spans, at once.
func TestSpansAreSafeForConcurrentUse(t *testing.T) {
	k := &kept{}
	p := newProvider(batching{most: 7, room: 1 << 20, delay: time.Millisecond, timeout: time.Minute}, k)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { defer close(stopped); p.batch.run(context.Background(), stop) }()
	var g sync.WaitGroup
	tracer := p.Tracer("t")
	_, shared := tracer.Start(t.Context(), "shared")
	const callers, each = 8, 200
	for range callers {
		g.Go(func() {
			for i := range each {
				shared.SetAttributes(attribute.Int("i", i))
				_, span := tracer.Start(t.Context(), "s", trace.WithAttributes(attribute.String("k", "v")))
				span.End()
			}
			shared.End()
		})
	}
	g.Wait()
	close(stop)
	<-stopped
	p.batch.send(t.Context(), true)
	n := 0
	for _, sent := range k.sent {
		n += sent
	}
	if want := callers*each + 1; n != want {
		t.Errorf("got %d spans, want %d", n, want)
	}
}
