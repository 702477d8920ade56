package otlp

import (
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
)

// span is a trace.Span that is written down as it is told: message is that of
// the protocol, all but what may still change. Nothing is left to be converted
// when it is sent.
type span struct {
	embedded.Span

	tracer  *tracer
	context trace.SpanContext
	start   time.Time

	mu sync.Mutex
	// message is nil once the span has ended, or if it is not recorded.
	message     *[]byte
	name        string
	code        codes.Code
	description string

	attributes, events, links             int32
	lessAttributes, lessEvents, lessLinks int32 // that were left out
	// marks has a bit of each attribute's key: whether one is there is seldom
	// to be looked for.
	marks uint64
}

var _ trace.Span = (*span)(nil)

// messages are kept for the next span.
var messages = sync.Pool{New: func() any {
	const usual = 512
	b := make([]byte, 0, usual)
	return &b
}}

// largest is the capacity of a message that is worth keeping.
const largest = 8 << 10

// begun writes what does not change any more.
func (s *span) begun(parent trace.SpanContext, kind trace.SpanKind) {
	s.message = messages.Get().(*[]byte) //nolint:forcetypeassert // we put nothing else
	traceID, id := s.context.TraceID(), s.context.SpanID()
	b := (*s.message)[:0]
	b = appendString(b, spanTrace, traceID[:])
	b = appendString(b, spanSpan, id[:])
	if state := s.context.TraceState(); state.Len() > 0 {
		b = appendString(b, spanState, state.String())
	}
	if parent.HasSpanID() {
		id := parent.SpanID()
		b = appendString(b, spanParent, id[:])
	}
	b = appendNumber(b, spanKind, uint64(trace.ValidateSpanKind(kind))) //nolint:gosec // the numbers are the same, and small
	b = appendFixed64(b, spanStart, nanoseconds(s.start))
	*s.message = appendFixed32(b, spanFlags, flagsOf(s.context, parent))
}

// flagsOf are the flags of context; remote tells of where the parent, or the
// linked span, is.
func flagsOf(context, remote trace.SpanContext) uint32 {
	const hasIsRemote, isRemote = 0x100, 0x200
	flags := uint32(context.TraceFlags()) | hasIsRemote
	if remote.IsRemote() {
		flags |= isRemote
	}
	return flags
}

func nanoseconds(t time.Time) uint64 { return uint64(max(0, t.UnixNano())) }

// End implements trace.Span. Only the first one counts.
func (s *span) End(options ...trace.SpanEndOption) {
	ended := s.start.Add(time.Since(s.start)) // by the clock that is not set
	if len(options) > 0 {
		cfg := trace.NewSpanEndConfig(options...)
		if at := cfg.Timestamp(); !at.IsZero() {
			ended = at
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.message == nil {
		return
	}
	b := appendString(*s.message, spanName, valid(s.name))
	b = appendFixed64(b, spanEnd, nanoseconds(ended))
	b = appendCount(b, spanDroppedAttributes, int(s.lessAttributes))
	b = appendCount(b, spanDroppedEvents, int(s.lessEvents))
	b = appendCount(b, spanDroppedLinks, int(s.lessLinks))
	b = s.appendStatus(b)
	s.tracer.batch.add(s.tracer.scope, b)
	if *s.message = b; cap(b) <= largest {
		messages.Put(s.message)
	}
	s.message = nil
}

func (s *span) appendStatus(b []byte) []byte {
	const ok, failed = 1, 2
	switch s.code {
	case codes.Ok:
		b, at := begin(b, spanStatus)
		return finish(appendNumber(b, statusCode, ok), at)
	case codes.Error:
		b, at := begin(b, spanStatus)
		if s.description != "" {
			b = appendString(b, statusMessage, valid(s.description))
		}
		return finish(appendNumber(b, statusCode, failed), at)
	case codes.Unset:
	}
	return b
}

// SetAttributes implements trace.Span. It keeps nothing of kv.
func (s *span) SetAttributes(kv ...attribute.KeyValue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.message != nil {
		s.setAttributes(kv)
	}
}

func (s *span) setAttributes(list []attribute.KeyValue) {
	b, limits := *s.message, &s.tracer.limits
	for i := range list {
		kv := &list[i]
		if !kv.Valid() {
			s.lessAttributes++
			continue
		}
		mark := markOf(string(kv.Key))
		if s.marks&mark != 0 { // as it is for one of many others too
			var was bool
			if b, was = without(b, string(kv.Key)); was {
				s.attributes--
			}
		}
		if most := limits.AttributeCountLimit; most >= 0 && int(s.attributes) >= most {
			s.lessAttributes++
			continue
		}
		b = appendAttribute(b, spanAttributes, kv, limits.AttributeValueLengthLimit)
		s.attributes++
		s.marks |= mark
	}
	*s.message = b
}

// markOf is a bit that most other keys do not have: ours share none within a
// span.
func markOf(key string) uint64 {
	n := len(key)
	return 1 << ((n*1 + int(key[0])*1 + int(key[max(0, n-3)])*3) % 64)
}

// SetStatus implements trace.Span.
func (s *span) SetStatus(code codes.Code, description string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.message == nil || s.code > code {
		return
	}
	s.code, s.description = code, ""
	if code == codes.Error {
		s.description = description
	}
}

// SetName implements trace.Span.
func (s *span) SetName(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.name = name
}

// IsRecording implements trace.Span.
func (s *span) IsRecording() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.message != nil
}

// SpanContext implements trace.Span.
func (s *span) SpanContext() trace.SpanContext { return s.context }

// TracerProvider implements trace.Span.
func (s *span) TracerProvider() trace.TracerProvider { return s.tracer.provider }
