// Package telemetry makes the spans that show a job's way: from the request
// through the queue to the worker, and on to the webhook. It knows the API of
// OpenTelemetry only; package otlp sends what is made.
//
// A job carries the W3C trace context of the span that queued it (job.Trace),
// as a line. The span of a run has an id that is made from the job, the attempt
// and the run. So whoever is told of a run, in whichever process, can name its
// span: a run that follows another one links to it, and nothing is written to
// make that possible.
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
	tracer   trace.Tracer
	beginner Beginner // tracer itself, nil if it is none
}

// New returns a tracer for a provider. For the links between runs to be right,
// the provider takes its span ids from SpanID.
func New(p trace.TracerProvider) *Tracer {
	t := p.Tracer("flightline")
	b, _ := t.(Beginner)
	return &Tracer{t, b}
}

// Start begins a span of any kind, as trace.Tracer does.
func (t *Tracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, name, opts...)
}

// Publish begins the span of queueing a job. The Line of the context that it
// returns is what goes with the job; Published ends it.
func (t *Tracer) Publish(ctx context.Context, endpoint string, id job.ID) (context.Context, trace.Span) {
	b := beginning()
	b.Name, b.Kind, b.Parent = "publish "+endpoint, trace.SpanKindProducer, trace.SpanContextFromContext(ctx)
	b.messaging("publish", "send", endpoint, id)
	span := t.begin(ctx, b)
	return trace.ContextWithSpan(ctx, span), span
}

// Request begins the span of a request of that method, in the trace that its
// two headers name, if they name one. What else it is about is told later.
func (t *Tracer) Request(ctx context.Context, method, parent, state string) (context.Context, trace.Span) {
	b := beginning()
	b.Name, b.Kind, b.Parent = method, trace.SpanKindServer, remote(parent, state)
	b.Attributes = append(b.Attributes, attribute.String("http.request.method", method))
	span := t.begin(ctx, b)
	return trace.ContextWithSpan(ctx, span), span
}

// Published ends a span of Publish: j is the job that was queued, nil if err
// says why none was. The span of a retry links to the submission's.
func Published(span trace.Span, j *job.Job, err error) {
	switch {
	case err != nil:
		span.SetStatus(codes.Error, "not queued")
	case j.Origin != "":
		span.AddLink(trace.Link{SpanContext: Remote(j.Origin)})
	}
	span.End()
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

// Ran tells of a run after it has ended, at once and now: one that began at
// began, by the local clock.
func (t *Tracer) Ran(ctx context.Context, j *job.Job, began time.Time, outcome string) {
	if t == nil {
		return
	}
	end(t.process(ctx, j, began), outcome)
}

func (t *Tracer) process(ctx context.Context, j *job.Job, began time.Time) trace.Span {
	b := beginning()
	b.Name, b.Kind, b.Parent = "process "+j.Endpoint, trace.SpanKindConsumer, Remote(j.Trace) //nolint:contextcheck // it reads a line, no more
	b.ID, b.At = runID(j.ID, j.Attempt, j.Run), began
	b.Link, _ = First(j) //nolint:contextcheck // it reads a line, no more
	b.messaging("process", "process", j.Endpoint, j.ID)
	b.Attributes = append(b.Attributes,
		attribute.Int(keyAttempt, j.Attempt), attribute.Int(keyRun, j.Run), attribute.String(keyWorker, j.Worker))
	return t.begin(ctx, b)
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

func (b *Beginning) messaging(operation, kind, endpoint string, id job.ID) {
	b.Attributes = append(b.Attributes,
		attribute.String(keySystem, "nats"), attribute.String(keyOperation, operation), attribute.String(keyType, kind),
		attribute.String(keyDestination, endpoint), attribute.String(keyMessage, string(id)))
}

// Within is ctx with the span that is in from. Without one it is ctx.
func Within(ctx, from context.Context) context.Context {
	if span := trace.SpanFromContext(from); span.SpanContext().IsValid() {
		return trace.ContextWithSpan(ctx, span)
	}
	return ctx
}
