package api

import "flightline/shared/job"

// Explanation answers explain. What does not apply is absent. Instants are RFC
// 3339 in UTC, the endings Ms are milliseconds.
type Explanation struct {
	ID     job.ID     `json:"id"`
	Status job.Status `json:"status"`
	// Reason is a sentence for people; programs read the fields below.
	Reason   string            `json:"reason"`
	Queue    *QueuePlace       `json:"queue,omitempty"`
	Workers  WorkerCounts      `json:"workers"`
	Endpoint ExplainedEndpoint `json:"endpoint"`
	Scaling  *LastDecision     `json:"scaling,omitempty"`
	// Autoscaler reports whether one is active now.
	Autoscaler      bool           `json:"autoscaler"`
	LastWorkerError *WorkerFailure `json:"lastWorkerError,omitempty"`
	// Starting are the endpoint's workers that are not ready yet, the first to begin
	// first, at most 100. Of a job that waits.
	Starting []StartingWorker `json:"starting,omitempty"`
	// ColdStart is the start of the job's worker, if it began after the job was submitted.
	ColdStart *Startup `json:"coldStart,omitempty"`
	WorkerID  string   `json:"workerId,omitempty"`
	// Version is the one of the endpoint that this worker was started from, 0 if it is no
	// longer on record.
	Version     int    `json:"version,omitempty"`
	Error       string `json:"error,omitempty"`
	Retries     int    `json:"retries"`
	LowPriority bool   `json:"lowPriority"`
	// TraceID names the trace of the request that queued the attempt, 32 hexadecimal digits;
	// absent if that is not recorded.
	TraceID     string `json:"traceId,omitempty"`
	SubmittedAt string `json:"submittedAt"`
	StartedAt   string `json:"startedAt,omitempty"`
	// DeadlineAt is when a run times out. ExpiresAt is when the job can no longer be read:
	// at the end of its ttl, or of its retention if that is earlier.
	DeadlineAt string `json:"deadlineAt,omitempty"`
	FinishedAt string `json:"finishedAt,omitempty"`
	ExpiresAt  string `json:"expiresAt"`
}

// QueuePlace is where a job waits. Position 1 is the next one; where gaps in a
// long queue leave it open, the job is at PositionMost at the latest.
type QueuePlace struct {
	Position      int  `json:"position"`
	PositionMost  int  `json:"positionMost"`
	JobsAhead     int  `json:"jobsAhead"`
	JobsAheadMost int  `json:"jobsAheadMost"`
	Exact         bool `json:"exact"`
	// InQueue counts all jobs that wait, InQueueLowPriority some of them.
	InQueue            int `json:"inQueue"`
	InQueueLowPriority int `json:"inQueueLowPriority"`
	// Offered: it was handed out and not picked up, and comes again.
	Offered bool `json:"offered"`
}

// ExplainedEndpoint are the endpoint's settings that decide how long a job waits.
type ExplainedEndpoint struct {
	WorkersMin  int    `json:"workersMin"`
	WorkersMax  int    `json:"workersMax"`
	ScalerType  string `json:"scalerType"`
	ScalerValue int    `json:"scalerValue"`
	LeaseMs     int64  `json:"leaseMs"`
	PausedUntil string `json:"pausedUntil,omitempty"`
	PauseReason string `json:"pauseReason,omitempty"`
	// Canary is there while a new version of the workers is tried, and once it was rolled
	// back.
	Canary *Canary `json:"canary,omitempty"`
}

// LastDecision is what the autoscaler last decided.
type LastDecision struct {
	At      string `json:"at"`
	Wanted  int    `json:"wanted"`
	Current int    `json:"current"`
	Reason  string `json:"reason"`
	Text    string `json:"text"`
	Hold    bool   `json:"hold"`
}

// WorkerFailure is how the worker ended that failed last.
type WorkerFailure struct {
	WorkerID string `json:"workerId"`
	At       string `json:"at"`
	Text     string `json:"text"`
	// Count is how many workers of the endpoint failed in the last hour.
	Count int `json:"count"`
}

// Scale answers scale: the numbers by which a scaler starts workers.
// Wanted is how many there should be.
type Scale struct {
	Known      bool   `json:"known"`
	Wanted     int    `json:"wanted"`
	Current    int    `json:"current"`
	Starting   int    `json:"starting"`
	Idle       int    `json:"idle"`
	Running    int    `json:"running"`
	Unhealthy  int    `json:"unhealthy"`
	Queued     int    `json:"queued"`
	QueuedLow  int    `json:"queuedLowPriority"`
	InProgress int    `json:"inProgress"`
	WorkersMin int    `json:"workersMin"`
	WorkersMax int    `json:"workersMax"`
	Reason     string `json:"reason"`
	Text       string `json:"text"`
	// Hold: a number was unknown, and Wanted is what it was before.
	Hold bool `json:"hold"`
	// At is when it was decided; wanted, reason, text and hold are that decision's,
	// until another one. All else is as it is now, at most a few seconds old.
	At string `json:"at"`
}

// UnknownScale is the answer while nobody decides. It has no number, so that a
// scaler that reads wanted keeps what there is.
type UnknownScale struct {
	Known bool   `json:"known"`
	Text  string `json:"text"`
}

// ScalingDecision is a decision of the autoscaler.
type ScalingDecision struct {
	At           string `json:"at"`
	Wanted       int    `json:"wanted"`
	Current      int    `json:"current"`
	Starting     int    `json:"starting"`
	Idle         int    `json:"idle"`
	Running      int    `json:"running"`
	Unhealthy    int    `json:"unhealthy"`
	Draining     int    `json:"draining"`
	Queued       int    `json:"queued"`
	QueuedLow    int    `json:"queuedLowPriority"`
	InProgress   int    `json:"inProgress"`
	OldestWaitMs int64  `json:"oldestWaitMs"`
	Reason       string `json:"reason"`
	Text         string `json:"text"`
	Hold         bool   `json:"hold"`
	ScalerType   string `json:"scalerType"`
	ScalerValue  int    `json:"scalerValue"`
	WorkersMin   int    `json:"workersMin"`
	WorkersMax   int    `json:"workersMax"`
}
