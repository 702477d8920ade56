package otlp

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	wire "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
)

// kept keeps what is sent, as a receiver reads it.
type kept struct {
	mu   sync.Mutex
	all  []*wire.ResourceSpans
	sent []int // spans of each request
	fail error
}

func (k *kept) UploadTraces(_ context.Context, list []*wire.ResourceSpans) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fail != nil {
		return k.fail
	}
	body, err := proto.Marshal(&collector.ExportTraceServiceRequest{ResourceSpans: list})
	if err != nil {
		return err
	}
	var got collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &got); err != nil {
		return err
	}
	n := 0
	for _, process := range got.ResourceSpans {
		for _, of := range process.ScopeSpans {
			n += len(of.Spans)
		}
	}
	k.all, k.sent = append(k.all, got.ResourceSpans...), append(k.sent, n)
	return nil
}

func (*kept) Stop(context.Context) error { return nil }

var roomy = batching{most: 512, room: 2048, delay: time.Hour, timeout: time.Minute}

// tell makes spans of all sorts with a tracer of any provider.
func tell(t *testing.T, p trace.TracerProvider) {
	t.Helper()
	at := time.Unix(1_700_000_000, 123456789)
	state, err := trace.ParseTraceState("vendor=1")
	if err != nil {
		t.Fatal(err)
	}
	remote := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state, Remote: true,
	})
	tracer := p.Tracer("mine", trace.WithInstrumentationVersion("1"), trace.WithSchemaURL("https://schema"),
		trace.WithInstrumentationAttributes(attribute.String("of", "scope")))
	ctx := trace.ContextWithSpanContext(t.Context(), remote)
	ctx, span := tracer.Start(ctx, "first", trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(at),
		trace.WithAttributes(attribute.String("a", "1"), attribute.String("b", strings.Repeat("x", 300)), attribute.Int("c", -1)),
		trace.WithLinks(trace.Link{SpanContext: remote, Attributes: []attribute.KeyValue{attribute.Int("n", 1)}}))
	span.SetAttributes(
		attribute.Float64("float", 1.5), attribute.Bool("yes", true), attribute.Bool("no", false), attribute.String("empty", ""),
		attribute.StringSlice("texts", []string{"a", strings.Repeat("y", 200)}), attribute.Int64Slice("ints", []int64{1, -2}),
		attribute.Float64Slice("floats", []float64{0.5}), attribute.BoolSlice("truths", []bool{true, false}), attribute.String("utf", "grün"),
		attribute.KeyValue{Key: "map", Value: attribute.MapValue(attribute.String("k", "v"), attribute.Int("i", 2))},
		attribute.KeyValue{Key: "list", Value: attribute.SliceValue(attribute.StringValue("v"), attribute.IntValue(3))},
		attribute.KeyValue{Key: "bytes", Value: attribute.ByteSliceValue([]byte{1, 0xff})},
	)
	span.AddEvent("event", trace.WithTimestamp(at), trace.WithAttributes(attribute.String("e", "v")))
	span.RecordError(errors.New("broken"), trace.WithTimestamp(at))
	span.SetStatus(codes.Error, "why")
	span.SetStatus(codes.Unset, "counts for nothing")
	_, child := tracer.Start(ctx, "child", trace.WithTimestamp(at))
	child.SetName("renamed")
	child.SetStatus(codes.Ok, "no text")
	child.End(trace.WithTimestamp(at.Add(time.Second)))
	child.SetName("too late")
	child.SetAttributes(attribute.Int("too", 1))
	child.End()
	_, root := p.Tracer("theirs").Start(ctx, "root", trace.WithNewRoot(), trace.WithTimestamp(at), trace.WithSpanKind(trace.SpanKindProducer))
	root.End(trace.WithTimestamp(at))
	span.End(trace.WithTimestamp(at.Add(time.Minute)))
}

// What a receiver reads of us is what it reads of OpenTelemetry's own library.
func TestAReceiverReadsTheSameAsFromTheStandardLibrary(t *testing.T) {
	about := resource.NewSchemaless(attribute.String("service.name", "mine"), attribute.Int("n", 1))
	theirs := &kept{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var got collector.ExportTraceServiceRequest
		if body, err := io.ReadAll(r.Body); err != nil || proto.Unmarshal(body, &got) != nil {
			t.Error("got no spans from the standard library")
		}
		theirs.all = append(theirs.all, got.ResourceSpans...)
	}))
	defer server.Close()
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(server.URL))
	if err != nil {
		t.Fatal(err)
	}
	standard := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	tell(t, standard)
	if err := standard.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	ours := &kept{}
	p := newProvider(roomy, ours)
	p.batch.resource = encodeResource(about)
	tell(t, p)
	p.batch.send(t.Context(), true)
	want := read(theirs)
	if len(want) != 3 {
		t.Errorf("got %d spans from the standard library, want 3", len(want))
	}
	if diff := cmp.Diff(want, read(ours), protocmp.Transform(), protocmp.SortRepeatedFields(&wire.Span{}, "attributes")); diff != "" {
		t.Errorf("the standard library's is -, ours +:\n%s", diff)
	}
}

// read is all spans by name, with what is random made equal.
func read(k *kept) map[string]*wire.ResourceSpans {
	all, names := map[string]*wire.ResourceSpans{}, map[string]string{}
	for _, process := range k.all {
		for _, of := range process.ScopeSpans {
			for _, s := range of.Spans {
				names[hex.EncodeToString(s.SpanId)] = s.Name
			}
		}
	}
	for _, process := range k.all {
		for _, of := range process.ScopeSpans {
			for _, s := range of.Spans {
				name := s.Name
				if parent, ok := names[hex.EncodeToString(s.ParentSpanId)]; ok {
					s.ParentSpanId = []byte(parent)
				}
				if len(s.TraceId) != 16 || len(s.SpanId) != 8 {
					name += " with bad ids"
				}
				s.SpanId = nil
				if s.TraceId[0] != 1 || s.TraceId[1] != 0 {
					s.TraceId = nil // it began here
				}
				if s.Status == nil {
					s.Status = &wire.Status{}
				}
				for _, l := range s.Links {
					l.TraceState = ""
				}
				all[name] = &wire.ResourceSpans{Resource: process.Resource, ScopeSpans: []*wire.ScopeSpans{{Scope: of.Scope, SchemaUrl: of.SchemaUrl, Spans: []*wire.Span{s}}}}
			}
		}
	}
	return all
}
