package otlp

import (
	"fmt"
	"reflect"
	"runtime"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/encoding/protowire"
)

// AddLink implements trace.Span. A span that has as many as it may keeps them.
func (s *span) AddLink(l trace.Link) {
	if !l.SpanContext.IsValid() && len(l.Attributes) == 0 && l.SpanContext.TraceState().Len() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.message == nil {
		return
	}
	if most := s.tracer.limits.LinkCountLimit; most >= 0 && int(s.links) >= most {
		s.lessLinks++
		return
	}
	s.links++
	traceID, id := l.SpanContext.TraceID(), l.SpanContext.SpanID()
	b, at := begin(*s.message, spanLinks)
	b = appendString(b, linkTrace, traceID[:])
	b = appendString(b, linkSpan, id[:])
	if state := l.SpanContext.TraceState(); state.Len() > 0 {
		b = appendString(b, linkState, state.String())
	}
	b = s.appendSome(b, linkAttributes, linkDroppedAttributes, l.Attributes, s.tracer.limits.AttributePerLinkCountLimit)
	*s.message = finish(appendFixed32(b, linkFlags, flagsOf(l.SpanContext, l.SpanContext)), at)
}

// AddEvent implements trace.Span. A span that has as many as it may keeps them.
func (s *span) AddEvent(name string, options ...trace.EventOption) {
	cfg := trace.NewEventConfig(options...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.message == nil {
		return
	}
	if most := s.tracer.limits.EventCountLimit; most >= 0 && int(s.events) >= most {
		s.lessEvents++
		return
	}
	s.events++
	b, at := begin(*s.message, spanEvents)
	b = appendFixed64(b, eventTime, nanoseconds(cfg.Timestamp()))
	b = appendString(b, eventName, valid(name))
	*s.message = finish(s.appendSome(b, eventAttributes, eventDroppedAttributes, cfg.Attributes(), s.tracer.limits.AttributePerEventCountLimit), at)
}

// appendSome adds the attributes of a link or an event, most of them at most.
func (s *span) appendSome(b []byte, field, dropped protowire.Number, list []attribute.KeyValue, most int) []byte {
	n := len(list)
	if most >= 0 {
		n = min(n, most)
	}
	for i := range list[:n] {
		b = appendAttribute(b, field, &list[i], s.tracer.limits.AttributeValueLengthLimit)
	}
	return appendCount(b, dropped, len(list)-n)
}

// RecordError implements trace.Span.
func (s *span) RecordError(err error, options ...trace.EventOption) {
	if err == nil || !s.IsRecording() {
		return
	}
	options = append(options, trace.WithAttributes(
		attribute.String("exception.type", typeOf(err)), attribute.String("exception.message", err.Error())))
	if cfg := trace.NewEventConfig(options...); cfg.StackTrace() {
		const most = 2048
		stack := make([]byte, most)
		stack = stack[:runtime.Stack(stack, false)]
		options = append(options, trace.WithAttributes(attribute.String("exception.stacktrace", string(stack))))
	}
	s.AddEvent("exception", options...)
}

func typeOf(v any) string {
	t := reflect.TypeOf(v)
	if t.PkgPath() == "" && t.Name() == "" {
		return t.String()
	}
	return fmt.Sprintf("%s.%s", t.PkgPath(), t.Name())
}
