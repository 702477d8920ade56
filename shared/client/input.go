package client

import (
	"context"
	"net/http"

	"flightline/shared/api"
	"flightline/shared/job"
)

// JobInput is what a job was given.
type JobInput = api.JobInput

// Input returns what a job was given, as long as it is kept: Input is nil once the job
// is COMPLETED or CANCELLED.
func (c *Client) Input(ctx context.Context, endpoint string, id job.ID) (*JobInput, error) {
	return one[JobInput](ctx, c, call{method: http.MethodGet, path: v2(endpoint, "input", string(id))})
}
