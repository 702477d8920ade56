package client

import (
	"context"
	"encoding/json"
	"time"

	"flightline/shared/api"
	"flightline/shared/job"
)

// Explanation says why a job is where it is.
type Explanation struct {
	ID     job.ID     `json:"id"`
	Status job.Status `json:"status"`
	// Reason is a sentence for people.
	Reason string `json:"reason"`
	// TraceID names the trace of the request that queued the attempt, "" if that is not
	// recorded.
	TraceID string `json:"traceId"`
	// Queue is nil unless the job waits.
	Queue   *QueuePlace `json:"queue"`
	Workers struct {
		Idle         int `json:"idle"`
		Running      int `json:"running"`
		Initializing int `json:"initializing"`
		Throttled    int `json:"throttled"`
		Unhealthy    int `json:"unhealthy"`
	} `json:"workers"`
	// Autoscaler reports whether one is active; Scaling is what it last decided,
	// nil for nothing.
	Autoscaler bool             `json:"autoscaler"`
	Scaling    *ScalingDecision `json:"scaling"`
	// LastWorkerError is how the worker ended that ended last, nil for none.
	LastWorkerError *struct {
		WorkerID string    `json:"workerId"`
		At       time.Time `json:"at"`
		Text     string    `json:"text"`
		// Count is how many workers failed in the last hour.
		Count int `json:"count"`
	} `json:"lastWorkerError"`
	// Endpoint has a canary while a new version is tried, and once it was rolled back.
	Endpoint struct {
		Canary *Canary `json:"canary"`
	} `json:"endpoint"`
	// Starting are the workers that are not ready yet, while the job waits.
	Starting []StartingWorker `json:"starting"`
	// ColdStart is the start of the job's worker, nil if that began before the job was
	// submitted.
	ColdStart *Startup `json:"coldStart"`
	WorkerID  string   `json:"workerId"`
	// Version is the one of the endpoint that this worker was started from, 0 if it is
	// not known.
	Version  int       `json:"version"`
	Deadline time.Time `json:"deadlineAt"`
	// Expires is when the job can no longer be read: at the end of its ttl, or of its
	// retention if that is earlier.
	Expires time.Time `json:"expiresAt"`
	// Finished is when the last attempt ended, zero before.
	Finished time.Time `json:"finishedAt"`
	// Raw is the answer itself, for what this type does not name.
	Raw json.RawMessage `json:"-"`
}

// QueuePlace is where a job waits. Position 1 is the next; in a long queue with
// gaps the job is at PositionMost at the latest.
type QueuePlace = api.QueuePlace

// Startup is how the last start of a pod went, by phase.
type Startup = api.Startup

// Sleep is that a worker sleeps, or wakes.
type Sleep = api.Sleep

// StartingWorker is a worker that is not ready yet.
type StartingWorker = api.StartingWorker

// Explain says why a job is where it is: how many come first, who works, what
// the autoscaler decided. It needs the read permission.
func (c *Client) Explain(ctx context.Context, endpoint string, id job.ID) (*Explanation, error) {
	return one[Explanation](ctx, c, get(v2(endpoint, "explain", string(id)), nil))
}

// UnmarshalJSON reads the API's answer.
func (x *Explanation) UnmarshalJSON(data []byte) error {
	type plain Explanation
	return unmarshalWithRaw(data, (*plain)(x), &x.Raw)
}

// MarshalJSON returns the answer as it came.
func (x Explanation) MarshalJSON() ([]byte, error) { return rawOr(x.Raw) }
