package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/telemetry"
)

// traceRun makes the span of a run whose end was written: now is the job as it
// stands. The worker makes none itself, and the instance that handed the job out
// need not be this one.
func (s *Service) traceRun(ctx context.Context, lease *queue.Lease, now *job.Job) {
	began := time.Now().Add(s.queue.Until(lease.Job.Started))
	s.cfg.Tracer.Ran(ctx, &lease.Job, began, string(now.Status))
}

// fail ends the job and its span. Output may be nil.
func (s *Service) fail(ctx context.Context, lease *queue.Lease, reason string, output json.RawMessage) error {
	now, err := lease.FailWith(ctx, reason, output)
	if err == nil {
		s.traceRun(ctx, lease, now)
	}
	return err
}

// complete ends the job and its span.
func (s *Service) complete(ctx context.Context, lease *queue.Lease, output json.RawMessage) error {
	now, err := lease.Complete(ctx, output)
	if err == nil {
		s.traceRun(ctx, lease, now)
	}
	return err
}

// writeTrace adds the trace context of the run, so that a handler may continue
// it. Most handlers look at the input only.
func writeTrace(b *bytes.Buffer, j *job.Job) {
	if j.Trace == "" {
		return
	}
	parent, state := telemetry.Headers(telemetry.RunLine(j))
	if parent == "" {
		return
	}
	member(b, telemetry.HeaderParent, parent)
	if state != "" {
		member(b, telemetry.HeaderState, state)
	}
}
