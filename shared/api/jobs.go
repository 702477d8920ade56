package api

import (
	"encoding/json"

	"flightline/shared/job"
)

// JobStatus answers run, cancel and retry.
type JobStatus struct {
	ID     job.ID     `json:"id"`
	Status job.Status `json:"status"`
}

// Job answers runsync, status and status-sync. Times are milliseconds.
type Job struct {
	// DelayTime is there once the job was picked up, or is over.
	DelayTime *int64 `json:"delayTime,omitempty"`
	// Error is there only when the job is over: clients stop waiting at it.
	Error string `json:"error,omitempty"`
	// ExecutionTime is there once the job is over.
	ExecutionTime *int64 `json:"executionTime,omitempty"`
	ID            job.ID `json:"id"`
	// Output is the result, or while IN_PROGRESS the last progress.
	Output   json.RawMessage `json:"output,omitempty"`
	Retries  int             `json:"retries,omitempty"`
	Status   job.Status      `json:"status"`
	WorkerID string          `json:"workerId,omitempty"`
	// WorkerLost says of a job that is IN_PROGRESS that its worker fell silent, or does
	// not name it: another one gets it once the lease is over.
	WorkerLost string `json:"workerLost,omitempty"`
	// Version is the one of the endpoint that the worker of WorkerID was started from. It
	// is there only if it was asked for, and while the worker is on record.
	Version int `json:"version,omitempty"`
}

// RequestsPage answers requests.
type RequestsPage struct {
	Requests []ListedJob `json:"requests"`
	Limit    int         `json:"limit"`
	HasMore  bool        `json:"hasMore"`
	// Cursor is there if there is more: it brings the next page.
	Cursor string `json:"cursor,omitempty"`
}

// ListedJob is a job without its input and output. Times between are
// milliseconds; instants are RFC 3339 in UTC.
type ListedJob struct {
	ID            job.ID     `json:"id"`
	Status        job.Status `json:"status"`
	DelayTime     *int64     `json:"delayTime,omitempty"`
	ExecutionTime *int64     `json:"executionTime,omitempty"`
	Retries       int        `json:"retries,omitempty"`
	WorkerID      string     `json:"workerId,omitempty"`
	// Error is the line of a failed job's error that says what went wrong, Fingerprint
	// names that cause.
	Error       string `json:"error,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	SubmittedAt string `json:"submittedAt"`
	StartedAt   string `json:"startedAt,omitempty"`
	FinishedAt  string `json:"finishedAt,omitempty"`
}

// Purged answers purge-queue: how many waiting jobs it cancelled.
type Purged struct {
	Removed int    `json:"removed"`
	Status  string `json:"status"`
}

// StreamEnd says how a stream ended.
type StreamEnd struct {
	ID     job.ID     `json:"id"`
	Status job.Status `json:"status,omitempty"` // "" means that the job is gone
	Error  string     `json:"error,omitempty"`
}

// Health is what RunPod's service answers; clients insist on every number.
type Health struct {
	Jobs    JobCounts    `json:"jobs"`
	Workers WorkerCounts `json:"workers"`
}

// JobCounts counts an endpoint's jobs. Completed, Failed and Retried only grow.
type JobCounts struct {
	// Completed counts the attempts that ended COMPLETED.
	Completed int `json:"completed"`
	// Failed counts the attempts that ended FAILED or TIMED_OUT.
	Failed int `json:"failed"`
	// InProgress counts the jobs that are IN_PROGRESS, also after their worker
	// was lost.
	InProgress int `json:"inProgress"`
	// InQueue counts the jobs that are IN_QUEUE, of both priorities.
	InQueue int `json:"inQueue"`
	// Retried counts the retries, and the pick-ups of an attempt after its first.
	Retried int `json:"retried"`
	// WorkerLost counts those of InProgress whose worker fell silent, or does not name
	// them.
	WorkerLost int `json:"workerLost,omitempty"`
}

// WorkerCounts counts an endpoint's workers by state. Ready workers are up and free,
// as idle ones are. Sleeping ones are in none of the contract's numbers, and absent if
// there are none.
type WorkerCounts struct {
	Idle         int `json:"idle"`
	Initializing int `json:"initializing"`
	Ready        int `json:"ready"`
	Running      int `json:"running"`
	Throttled    int `json:"throttled"`
	Unhealthy    int `json:"unhealthy"`
	Sleeping     int `json:"sleeping,omitempty"`
}

// JobInput answers input.
type JobInput struct {
	ID     job.ID     `json:"id"`
	Status job.Status `json:"status"`
	// Input is absent once nothing keeps it: the job is COMPLETED or CANCELLED and has no
	// webhook.
	Input json.RawMessage `json:"input,omitempty"`
}
