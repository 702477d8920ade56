package otlp

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"

	"flightline/shared/telemetry"
)

// provider makes tracers whose spans go into one batch.
type provider struct {
	embedded.TracerProvider

	sampler sampler
	limits  sdk.SpanLimits
	batch   *batch

	mu      sync.Mutex
	tracers map[scope]*tracer
}

// scope says who makes spans.
type scope struct {
	name, version, schema string
	attributes            attribute.Distinct
}

// tracer makes the spans of a scope.
type tracer struct {
	embedded.Tracer
	*provider
	scope *[]byte // the fields of a ScopeSpans but its spans
}

var (
	_ trace.TracerProvider = (*provider)(nil)
	_ trace.Tracer         = (*tracer)(nil)
	_ telemetry.Beginner   = (*tracer)(nil)
)

// Tracer implements trace.TracerProvider.
func (p *provider) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	cfg := trace.NewTracerConfig(options...)
	attrs := cfg.InstrumentationAttributes()
	of := scope{name, cfg.InstrumentationVersion(), cfg.SchemaURL(), attrs.Equivalent()}
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.tracers[of]; t != nil {
		return t
	}
	b, at := begin(nil, scopeSpansScope)
	b = appendString(b, scopeName, valid(name))
	if of.version != "" {
		b = appendString(b, scopeVersion, valid(of.version))
	}
	for _, kv := range attrs.ToSlice() {
		b = appendAttribute(b, scopeAttributes, &kv, -1)
	}
	if b = finish(b, at); of.schema != "" {
		b = appendString(b, scopeSpansSchema, valid(of.schema))
	}
	t := &tracer{provider: p, scope: &b}
	p.tracers[of] = t
	return t
}

// Start implements trace.Tracer.
func (t *tracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	cfg := trace.NewSpanStartConfig(options...)
	b := telemetry.Beginning{Name: name, Kind: cfg.SpanKind(), At: cfg.Timestamp(), Attributes: cfg.Attributes()}
	b.ID, _ = telemetry.SpanID(ctx)
	if !cfg.NewRoot() {
		b.Parent = trace.SpanContextFromContext(ctx)
	}
	s := t.Begin(&b)
	for _, l := range cfg.Links() {
		s.AddLink(l)
	}
	return trace.ContextWithSpan(ctx, s), s
}

// Begin implements telemetry.Beginner.
func (t *tracer) Begin(b *telemetry.Beginning) trace.Span {
	within := trace.SpanContextConfig{
		TraceID: b.Parent.TraceID(), SpanID: b.ID, TraceState: b.Parent.TraceState(), TraceFlags: b.Parent.TraceFlags(),
	}
	if !within.TraceID.IsValid() {
		within.TraceID = newTraceID()
	}
	if !within.SpanID.IsValid() {
		within.SpanID = newSpanID()
	}
	sampled := t.sampler.takes(b.Parent, within.TraceID)
	within.TraceFlags = within.TraceFlags.WithSampled(sampled)
	s := &span{tracer: t, context: trace.NewSpanContext(within), start: b.At, name: b.Name}
	if !sampled {
		return s
	}
	if s.start.IsZero() {
		s.start = time.Now()
	}
	s.begun(b.Parent, b.Kind)
	s.setAttributes(b.Attributes)
	if b.Link.IsValid() {
		s.AddLink(trace.Link{SpanContext: b.Link})
	}
	return s
}

// Takes implements telemetry.Beginner.
func (t *tracer) Takes(parent trace.SpanContext) bool {
	return t.sampler.takes(parent, parent.TraceID())
}

// Follows implements telemetry.Beginner.
func (t *tracer) Follows() bool { return t.sampler.follow }

func newTraceID() (id trace.TraceID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())  //nolint:gosec // it keeps no secret
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64()) //nolint:gosec // it keeps no secret
	}
	return id
}

func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64()) //nolint:gosec // it keeps no secret
	}
	return id
}
