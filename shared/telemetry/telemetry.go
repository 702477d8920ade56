// Package telemetry makes the spans that show a job's way: from the request
// through the queue to the worker, and on to the webhook. It knows the API of
// OpenTelemetry only; package otlp sends what is made.
//
// A job carries the W3C trace context of the span that queued it (job.Trace),
// as a line, or only that its trace is not recorded (Carry). The span of a run
// has an id that is made from the job, the attempt and the run. So each process
// that knows a run can name its span: a run that follows
// another one links to it, and nothing is written to make that possible.
//
// Beside that it has what logs share: a logger that waits for no output (NewLogger), the trace
// of each line (Logs) and a bound of the lines of one thing (LogLimit).
//
// Where traces are off there is no Tracer, and what is called here costs
// neither memory nor a goroutine.
package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"flightline/shared/job"
)

// Names of attributes; those without the prefix flightline are OpenTelemetry's
// semantic conventions.
const (
	keyAttempt = "flightline.job.attempt"
	keyRun     = "flightline.job.run"
	keyOutcome = "flightline.job.outcome"
	keyWorker  = "flightline.worker.id"
	keyError   = "error.type"

	keySystem      = "messaging.system"
	keyOperation   = "messaging.operation.name"
	keyType        = "messaging.operation.type"
	keyDestination = "messaging.destination.name"
	keyMessage     = "messaging.message.id"
)

// Outcomes of a run besides the statuses in which it may end.
const (
	// GivenBack: the worker stops, and the job waits again.
	GivenBack = "GIVEN_BACK"
	// Lost: somebody else ended the job or runs it, or nobody knows.
	Lost = "LOST"
)

// Tracer makes spans. It is safe for concurrent use. Of a nil one only Process
// and Ran may be called, which do nothing then.
type Tracer struct {
	tracer      trace.Tracer
	parentBased bool
}

// New returns a tracer for a provider. For the links between runs to be right,
// the provider takes its span ids from SpanID.
func New(p trace.TracerProvider) *Tracer { return &Tracer{tracer: p.Tracer("flightline")} }

// NewParentBased is New for a provider whose sampler records nothing beneath a
// span that is not recorded. So a job of such a trace carries next to nothing
// (Carry), and its run makes no span.
func NewParentBased(p trace.TracerProvider) *Tracer {
	t := New(p)
	t.parentBased = true
	return t
}

// Start begins a span of any kind, as trace.Tracer does.
func (t *Tracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, name, opts...)
}

// Request begins the span of a request of that method, in the trace that its
// two headers name, if they name one. Its attributes are added later.
// Carry returns what a job that the request queues takes with it.
func (t *Tracer) Request(ctx context.Context, method, parent, state string) (context.Context, trace.Span) {
	caller := remote(parent, state)
	ctx, span := t.tracer.Start(trace.ContextWithSpanContext(ctx, caller), method,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attribute.String("http.request.method", method)))
	if t.parentBased && !caller.IsValid() && !span.SpanContext().IsSampled() {
		span = unrecordedRoot{span}
		ctx = trace.ContextWithSpan(ctx, span)
	}
	return ctx, span
}

// Queued says in the span in ctx, if there is one, that the job of its request
// was accepted just now: for a request that goes on to wait for the job.
func Queued(ctx context.Context) { trace.SpanFromContext(ctx).AddEvent("queued") }

// Retried links the span in ctx, if there is one, to that of the submission of
// j, which its request queued again.
func Retried(ctx context.Context, j *job.Job) {
	if origin := Remote(j.Origin); origin.IsValid() { //nolint:contextcheck // it reads a line, no more
		trace.SpanFromContext(ctx).AddLink(trace.Link{SpanContext: origin})
	}
}

// Process begins the span of the run for which a worker has picked j up. It is
// a child of the span that queued the attempt. Unless the run is the job's
// first one, it links to that. End ends it.
func (t *Tracer) Process(ctx context.Context, j *job.Job) context.Context {
	if t == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, t.process(ctx, j, time.Time{}))
}

// Ran makes the span of a run that has ended, at once and now: a run that began at
// began, by the local clock.
func (t *Tracer) Ran(ctx context.Context, j *job.Job, began time.Time, outcome string) {
	if t == nil {
		return
	}
	end(t.process(ctx, j, began), outcome)
}

func (t *Tracer) process(ctx context.Context, j *job.Job, began time.Time) trace.Span {
	queued := Of(j) //nolint:contextcheck // it reads a line, no more
	if t.parentBased && queued.IsValid() && !queued.IsSampled() {
		return trace.SpanFromContext(trace.ContextWithSpanContext(ctx, queued))
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String(keySystem, "nats"), attribute.String(keyOperation, "process"), attribute.String(keyType, "process"),
		attribute.String(keyDestination, j.Endpoint), attribute.String(keyMessage, string(j.ID)),
		attribute.Int(keyAttempt, j.Attempt), attribute.Int(keyRun, j.Run), attribute.String(keyWorker, j.Worker))}
	if !began.IsZero() {
		options = append(options, trace.WithTimestamp(began))
	}
	if first, linked := First(j); linked { //nolint:contextcheck // it reads a line, no more
		options = append(options, trace.WithLinks(trace.Link{SpanContext: first}))
	}
	ctx = withSpanID(ctx, runID(j.ID, j.Attempt, j.Run))
	_, span := t.tracer.Start(trace.ContextWithSpanContext(ctx, queued), "process "+j.Endpoint, options...)
	return span
}

// End ends the span in ctx, if there is one: outcome is the status in which the
// run left the job, GivenBack or Lost. Only the first End counts.
func End(ctx context.Context, outcome string) { end(trace.SpanFromContext(ctx), outcome) }

func end(span trace.Span, outcome string) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String(keyOutcome, outcome))
	if outcome != string(job.Completed) && outcome != string(job.Cancelled) && outcome != GivenBack {
		span.SetAttributes(attribute.String(keyError, outcome))
		span.SetStatus(codes.Error, outcome)
	}
	span.End()
}

// Within is ctx with the span that is in from. Without one it is ctx.
func Within(ctx, from context.Context) context.Context {
	if span := trace.SpanFromContext(from); span.SpanContext().IsValid() {
		return trace.ContextWithSpan(ctx, span)
	}
	return ctx
}
