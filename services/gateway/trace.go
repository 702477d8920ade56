package gateway

import (
	"bytes"
	"context"
	"time"

	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/telemetry"
)

// ran makes the span of a run whose end was written, if err is nil: now is the
// job as it stands. The worker makes none itself, and the instance that handed
// the job out need not be this one.
func (s *Service) ran(ctx context.Context, lease *queue.Lease) func(now *job.Job, err error) error {
	return func(now *job.Job, err error) error {
		if err == nil {
			began := time.Now().Add(s.queue.Until(lease.Job.Started))
			s.cfg.Tracer.Ran(ctx, &lease.Job, began, string(now.Status))
		}
		return err
	}
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
