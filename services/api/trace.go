package api

import (
	"context"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/telemetry"
)

// traced has the job that submit queues carry the context of the span of its
// request. Without a span it is submit.
func traced(submit submitter) submitter {
	return func(ctx context.Context, e endpoint.Endpoint, id job.ID, mode job.Mode, r job.Request) (*job.Job, error) {
		r.Trace = telemetry.Carry(ctx)
		return submit(ctx, e, id, mode, r)
	}
}

// again is queue.Retry, with the same for the attempt, and a link.
func (s *Service) again(ctx context.Context, e endpoint.Endpoint, id job.ID) (*job.Job, error) {
	j, err := s.queue.Retry(ctx, e, id, telemetry.Carry(ctx))
	if err == nil {
		telemetry.Retried(ctx, j)
	}
	return j, err
}
