package api

import (
	"context"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/telemetry"
)

// traced puts what submit does into a span whose context goes with the job.
// Without a tracer it is submit.
func traced(t *telemetry.Tracer, submit submitter) submitter {
	if t == nil {
		return submit
	}
	return func(ctx context.Context, e endpoint.Endpoint, id job.ID, mode job.Mode, r job.Request) (*job.Job, error) {
		ctx, span := t.Publish(ctx, e.ID, id)
		r.Trace = telemetry.Line(ctx)
		j, err := submit(ctx, e, id, mode, r)
		telemetry.Published(span, j, err) //nolint:contextcheck // it reads a line, no more
		return j, err
	}
}

// again is queue.Retry, in such a span.
func (s *Service) again(ctx context.Context, e endpoint.Endpoint, id job.ID) (*job.Job, error) {
	if s.cfg.Tracer == nil {
		return s.queue.Retry(ctx, e, id)
	}
	ctx, span := s.cfg.Tracer.Publish(ctx, e.ID, id)
	j, err := s.queue.RetryIn(ctx, e, id, telemetry.Line(ctx))
	telemetry.Published(span, j, err) //nolint:contextcheck // it reads a line, no more
	return j, err
}
