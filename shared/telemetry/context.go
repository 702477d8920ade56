package telemetry

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"flightline/shared/job"
)

// Names of the headers that carry a trace context (W3C Trace Context).
const (
	HeaderParent = "traceparent"
	HeaderState  = "tracestate"
)

// maxState is the longest tracestate that is passed on, in bytes; the
// recommendation asks for 512 at least.
const maxState = 512

// Line is the trace context of ctx: its traceparent, and after a space its
// tracestate if it has one. It is "" if there is no span in ctx.
func Line(ctx context.Context) string { return lineOf(trace.SpanContextFromContext(ctx)) }

// unrecorded is what a job carries of a trace that is not recorded and that no
// caller named: that it is not. Nobody would ask for its ids, and a record is
// written and read several times.
const unrecorded = "0"

// Carry is what a job carries that is queued within ctx (job.Request.Trace):
// the Line, if anybody has a use for it.
func Carry(ctx context.Context) string {
	if _, ours := trace.SpanFromContext(ctx).(unrecordedRoot); ours {
		return unrecorded
	}
	return Line(ctx)
}

// unrecordedRoot is a span that is not recorded and begins a trace.
type unrecordedRoot struct{ trace.Span }

// Of is the context of the span that queued j's present attempt. It is invalid
// if the job carries no trace. Where the job carries only that its trace is not
// recorded, the ids are made from the job's: all who run and announce it have
// the same in their log lines, and its request has others.
func Of(j *job.Job) trace.SpanContext {
	if j.Trace != unrecorded {
		return Remote(j.Trace)
	}
	sum := sumOf(j.ID, j.Attempt, 0)
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: sum, SpanID: spanOf(sum), Remote: true})
}

func lineOf(sc trace.SpanContext) string {
	if !sc.IsValid() {
		return ""
	}
	const size = 55 // 00-<32>-<16>-<2>
	b, trace, span := make([]byte, 0, size), sc.TraceID(), sc.SpanID()
	b = hex.AppendEncode(append(b, "00-"...), trace[:])
	b = hex.AppendEncode(append(b, '-'), span[:])
	flags := "-00"
	if sc.IsSampled() {
		flags = "-01"
	}
	line := string(append(b, flags...))
	if state := sc.TraceState().String(); state != "" && len(state) <= maxState {
		line += " " + state
	}
	return line
}

// Headers are the values of the two headers for a line.
func Headers(line string) (parent, state string) {
	parent, state, _ = strings.Cut(line, " ")
	return parent, state
}

// SetHeaders sets the two headers of a request that is sent within ctx, if there is a span.
func SetHeaders(ctx context.Context, h http.Header) {
	parent, state := Headers(Line(ctx))
	if parent != "" {
		h.Set(HeaderParent, parent)
	}
	if state != "" {
		h.Set(HeaderState, state)
	}
}

// Remote reads a line. What is none is an invalid context.
func Remote(line string) trace.SpanContext {
	if line == "" {
		return trace.SpanContext{}
	}
	return remote(Headers(line))
}

// remote is the context that the two headers name. What is none is invalid.
func remote(parent, state string) trace.SpanContext {
	switch sc, ok := usual(parent); {
	case parent == "":
		return trace.SpanContext{}
	case ok && state == "":
		return trace.NewSpanContext(sc)
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{HeaderParent: parent, HeaderState: state}))
}

// usual reads a traceparent that is as nearly all are: of version 0, and right.
func usual(parent string) (sc trace.SpanContextConfig, ok bool) {
	const size = 55
	if len(parent) != size || parent[:3] != "00-" || parent[35] != '-' || parent[52:54] != "-0" || parent[54] < '0' || parent[54] > '3' {
		return sc, false
	}
	var err error
	if sc.TraceID, err = trace.TraceIDFromHex(parent[3:35]); err != nil {
		return sc, false
	}
	if sc.SpanID, err = trace.SpanIDFromHex(parent[36:52]); err != nil {
		return sc, false
	}
	sc.TraceFlags, sc.Remote = trace.TraceFlags(parent[54]-'0'), true
	return sc, true
}

// RunLine is the Line of the span of j's present run. It is "" if the job
// carries no trace.
func RunLine(j *job.Job) string { return lineOf(runOf(Of(j), j.ID, j.Attempt, j.Run)) }

// First is the context of the span of the job's first run, if the present one
// is another and the job carries the trace. The span itself is never seen if the
// worker that made it was killed.
func First(j *job.Job) (first trace.SpanContext, is bool) {
	if j.Attempt <= 1 && j.Run <= 1 {
		return first, false
	}
	origin := cmp.Or(j.Origin, j.Trace)
	first = runOf(Remote(origin), j.ID, 1, 1)
	return first, first.IsValid()
}

func runOf(queued trace.SpanContext, id job.ID, attempt, run int) trace.SpanContext {
	if !queued.IsValid() {
		return trace.SpanContext{}
	}
	return queued.WithSpanID(runID(id, attempt, run))
}

// runID is the id of the span of a run. Within a trace it is as good as random.
func runID(id job.ID, attempt, run int) trace.SpanID { return spanOf(sumOf(id, attempt, run)) }

func spanOf(sum [16]byte) (span trace.SpanID) {
	copy(span[:], sum[8:]) // the lower half is the better mixed one
	if !span.IsValid() {
		span[0] = 1
	}
	return span
}

func sumOf(id job.ID, attempt, run int) (sum [16]byte) {
	h := fnv.New128a()
	_, _ = h.Write([]byte(id))
	_, _ = h.Write(binary.AppendVarint(binary.AppendVarint(nil, int64(attempt)), int64(run)))
	h.Sum(sum[:0])
	return sum
}

// spanID is the key of an id that a span is to have.
type spanID struct{}

func withSpanID(ctx context.Context, id trace.SpanID) context.Context {
	return context.WithValue(ctx, spanID{}, id)
}

// SpanID is the id that the span that begins with ctx is to have, if it is not
// to be a random one.
func SpanID(ctx context.Context) (id trace.SpanID, given bool) {
	id, given = ctx.Value(spanID{}).(trace.SpanID)
	return id, given
}
