package api

import (
	"time"

	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// explainView answers explain. What does not apply is absent. Instants are RFC
// 3339 in UTC, the endings Ms are milliseconds.
type explainView struct {
	ID     job.ID     `json:"id"`
	Status job.Status `json:"status"`
	// Reason is a sentence for people; programs read the fields below.
	Reason   string        `json:"reason"`
	Queue    *placeView    `json:"queue,omitempty"`
	Workers  workerCounts  `json:"workers"`
	Endpoint boundsView    `json:"endpoint"`
	Scaling  *decisionView `json:"scaling,omitempty"`
	// Autoscaler tells whether one is active now.
	Autoscaler      bool           `json:"autoscaler"`
	LastWorkerError *workerFailure `json:"lastWorkerError,omitempty"`
	WorkerID        string         `json:"workerId,omitempty"`
	Error           string         `json:"error,omitempty"`
	Retries         int            `json:"retries"`
	LowPriority     bool           `json:"lowPriority"`
	SubmittedAt     string         `json:"submittedAt"`
	StartedAt       string         `json:"startedAt,omitempty"`
	// DeadlineAt is when a run times out, ExpiresAt when the job's ttl is over.
	DeadlineAt string `json:"deadlineAt,omitempty"`
	FinishedAt string `json:"finishedAt,omitempty"`
	ExpiresAt  string `json:"expiresAt"`
}

// placeView is where a job waits. Position 1 is the next one; where gaps in a
// long queue leave it open, the job is at PositionMost at the latest.
type placeView struct {
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

// boundsView are the endpoint's settings that decide how long a job waits.
type boundsView struct {
	WorkersMin  int    `json:"workersMin"`
	WorkersMax  int    `json:"workersMax"`
	ScalerType  string `json:"scalerType"`
	ScalerValue int    `json:"scalerValue"`
	LeaseMs     int64  `json:"leaseMs"`
	PausedUntil string `json:"pausedUntil,omitempty"`
}

// decisionView is what the autoscaler last decided.
type decisionView struct {
	At      string `json:"at"`
	Wanted  int    `json:"wanted"`
	Current int    `json:"current"`
	Reason  string `json:"reason"`
	Text    string `json:"text"`
	Hold    bool   `json:"hold"`
}

// workerFailure is how the worker ended that failed last.
type workerFailure struct {
	WorkerID string `json:"workerId"`
	At       string `json:"at"`
	Text     string `json:"text"`
}

func explainViewOf(x explanation) explainView {
	j := x.position.Job
	v := explainView{
		ID: j.ID, Status: j.Status, Reason: reasonOf(x), Workers: workersOf(x.workers), Autoscaler: x.alive,
		LastWorkerError: x.failure, Retries: j.Retries(), LowPriority: j.Class == job.LowPriority,
		SubmittedAt: web.Stamp(j.Submitted), FinishedAt: web.Stamp(j.Finished), ExpiresAt: web.Stamp(j.Expires),
		Endpoint: boundsView{
			WorkersMin: x.endpoint.WorkersMin, WorkersMax: x.endpoint.WorkersMax, ScalerType: x.endpoint.ScalerType,
			ScalerValue: x.endpoint.ScalerValue, LeaseMs: x.endpoint.Lease.Milliseconds(),
		},
	}
	if x.endpoint.Paused(x.now) {
		v.Endpoint.PausedUntil = web.Stamp(x.endpoint.PausedUntil)
	}
	if x.decision != nil {
		v.Scaling = decisionOf(*x.decision)
	}
	if j.Status == job.InQueue {
		v.Queue = placeOf(x)
		return v // what an earlier run left behind is no news
	}
	v.WorkerID, v.StartedAt = j.Worker, web.Stamp(j.Started)
	if j.Status == job.InProgress {
		v.DeadlineAt = web.Stamp(j.Deadline)
	} else {
		v.Error = j.Error
	}
	return v
}

func placeOf(x explanation) *placeView {
	p := x.position
	return &placeView{
		Position: p.Least + 1, PositionMost: p.Most + 1, JobsAhead: p.Least, JobsAheadMost: p.Most, Exact: p.Least == p.Most,
		InQueue: x.counts.Queued, InQueueLowPriority: x.counts.QueuedLow, Offered: p.Offered,
	}
}

func decisionOf(d registry.Decision) *decisionView {
	return &decisionView{At: web.Stamp(d.At), Wanted: d.Wanted, Current: d.Current, Reason: d.Reason, Text: d.Text, Hold: d.Hold}
}

// lasting is a length of time for people.
func lasting(d time.Duration) string {
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
