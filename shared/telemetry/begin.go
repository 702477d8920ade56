package telemetry

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Beginning is all that is known of a span when it begins.
type Beginning struct {
	Name string
	Kind trace.SpanKind
	// Parent is invalid for the first span of a trace.
	Parent trace.SpanContext
	// ID is the id that the span is to have. Invalid means a random one.
	ID trace.SpanID
	// At is when it began. Zero means now.
	At time.Time
	// Link is one to another span. Invalid means none.
	Link       trace.SpanContext
	Attributes []attribute.KeyValue

	room [12]attribute.KeyValue
}

// Beginner is what a trace.Tracer may be besides.
type Beginner interface {
	// Begin does what Start does, without options, a context and memory for both.
	// It keeps nothing of b.
	Begin(b *Beginning) trace.Span
	// Takes reports whether a span beneath parent, a valid one, is recorded.
	Takes(parent trace.SpanContext) bool
	// Follows reports whether it leaves that to the parent: then nothing beneath a
	// span that is not recorded is.
	Follows() bool
}

// beginnings are kept: one goes through an interface, and so would be memory
// for each span.
var beginnings = sync.Pool{New: func() any { return new(Beginning) }}

// beginning is one with room for attributes; begin takes it back.
func beginning() *Beginning {
	b := beginnings.Get().(*Beginning) //nolint:forcetypeassert // we put nothing else
	b.ID, b.At, b.Link = trace.SpanID{}, time.Time{}, trace.SpanContext{}
	b.Attributes = b.room[:0]
	return b
}

// begin begins the span that b describes. A tracer that is no Beginner takes
// what else it wants to know from ctx.
func (t *Tracer) begin(ctx context.Context, b *Beginning) trace.Span {
	defer beginnings.Put(b)
	if t.beginner != nil {
		return t.beginner.Begin(b)
	}
	opts := []trace.SpanStartOption{trace.WithSpanKind(b.Kind), trace.WithAttributes(b.Attributes...)}
	if !b.At.IsZero() {
		opts = append(opts, trace.WithTimestamp(b.At))
	}
	if b.Link.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: b.Link}))
	}
	if b.ID.IsValid() {
		ctx = withSpanID(ctx, b.ID)
	}
	_, span := t.tracer.Start(trace.ContextWithSpanContext(ctx, b.Parent), b.Name, opts...)
	return span
}
