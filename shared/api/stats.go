package api

import (
	"time"

	"flightline/shared/job"
	"flightline/shared/stats"
)

// Stats answers stats. Instants are RFC 3339 in UTC.
type Stats struct {
	Endpoint string `json:"endpoint"`
	From     string `json:"from"`
	To       string `json:"to"`
	// Step is the time that a point stands for, in seconds: 60 or 3600.
	Step int `json:"step"`
	// Points are in the order of time. A time in which nothing happened has none.
	Points []StatsPoint `json:"points"`
}

// StatsPoint is what happened at an endpoint from At on, for one step (stats.Point).
type StatsPoint struct {
	At             string      `json:"at"`
	Submitted      int64       `json:"submitted"`
	Completed      int64       `json:"completed"`
	Failed         int64       `json:"failed"`
	TimedOut       int64       `json:"timedOut"`
	Cancelled      int64       `json:"cancelled"`
	Retried        int64       `json:"retried"`
	Lost           int64       `json:"lost"`
	DelayMs        Percentiles `json:"delayMs"`
	ExecutionMs    Percentiles `json:"executionMs"`
	Workers        int         `json:"workers"`
	GPUBusySeconds int64       `json:"gpuBusySeconds"`
}

// Percentiles are of Count values, in milliseconds; all are 0 if there is no value. They
// are wrong by 3.2 % at most.
type Percentiles struct {
	Count int64 `json:"count"`
	P50   int64 `json:"p50"`
	P95   int64 `json:"p95"`
	P99   int64 `json:"p99"`
}

// StatsPointOf is a point as it is answered.
func StatsPointOf(at time.Time, p stats.Point) StatsPoint {
	return StatsPoint{
		At: FormatTime(at), Submitted: p.Submitted, Completed: p.Completed, Failed: p.Failed, TimedOut: p.TimedOut, Cancelled: p.Cancelled,
		Retried: p.Retried, Lost: p.Lost, DelayMs: PercentilesOf(p.Delay), ExecutionMs: PercentilesOf(p.Execution),
		Workers: p.Workers, GPUBusySeconds: p.BusyGPUSeconds,
	}
}

// PercentilesOf reads a histogram.
func PercentilesOf(h stats.Histogram) Percentiles {
	at := func(q float64) int64 { return h.Quantile(q).Milliseconds() }
	return Percentiles{Count: h.Count(), P50: at(0.5), P95: at(0.95), P99: at(0.99)}
}

// FailureGroup is the failures of one cause at an endpoint (stats.Group).
type FailureGroup struct {
	Endpoint string `json:"endpoint"`
	// Fingerprint names the cause, 16 hexadecimal digits; it is "other" for those beyond
	// the 100 causes that an hour keeps apart.
	Fingerprint string `json:"fingerprint"`
	// Error is the line that says what went wrong, of the latest of them.
	Error   string `json:"error"`
	Count   int64  `json:"count"`
	FirstAt string `json:"firstAt"`
	LastAt  string `json:"lastAt"`
	// LastJobs are the jobs of the latest, the last one first, at most 5. They may be
	// gone.
	LastJobs []string `json:"lastJobs"`
}

// FailureGroupsOf are the failures of an endpoint as they are answered.
func FailureGroupsOf(endpoint string, list stats.Failures) []FailureGroup {
	all := make([]FailureGroup, 0, len(list))
	for _, g := range list {
		all = append(all, FailureGroup{
			Endpoint: endpoint, Fingerprint: g.Fingerprint, Error: g.Cause, Count: g.Count,
			FirstAt: FormatTime(time.UnixMilli(g.First)), LastAt: FormatTime(time.UnixMilli(g.Last)), LastJobs: g.LastJobs,
		})
	}
	return all
}

// FoundJob answers where a job is.
type FoundJob struct {
	Endpoint string     `json:"endpoint"`
	ID       job.ID     `json:"id"`
	Status   job.Status `json:"status"`
}

// Overview answers overview: how all endpoints stand, by their ids.
type Overview struct {
	At        string             `json:"at"`
	Endpoints []EndpointOverview `json:"endpoints"`
	// Cursor is there if there are more: it brings the next page.
	Cursor string `json:"cursor,omitempty"`
}

// EndpointOverview is how one endpoint stands.
type EndpointOverview struct {
	ID       string       `json:"id"`
	Name     string       `json:"name"`
	Paused   bool         `json:"paused"`
	Jobs     JobCounts    `json:"jobs"`
	Workers  WorkerCounts `json:"workers"`
	LastHour LastHour     `json:"lastHour"`
	// Attention is what needs a person, the most urgent first.
	Attention []Attention `json:"attention"`
}

// LastHour has a number for each of the last 60 minutes, the present one last.
type LastHour struct {
	Completed []int64 `json:"completed"`
	// Failed counts the attempts that ended FAILED or TIMED_OUT.
	Failed         []int64 `json:"failed"`
	DelayP50Ms     []int64 `json:"delayP50Ms"`
	DelayP95Ms     []int64 `json:"delayP95Ms"`
	ExecutionP50Ms []int64 `json:"executionP50Ms"`
	ExecutionP95Ms []int64 `json:"executionP95Ms"`
}

// Attention is one thing that needs a person.
type Attention struct {
	// Code is one of the Needs… constants, Text a sentence with the numbers.
	Code string `json:"code"`
	Text string `json:"text"`
}

// What may need a person.
const (
	NeedsQueue          = "queue_missing"   // its queue is missing or cannot be read
	NeedsWorkerLost     = "worker_lost"     // jobs whose worker fell silent
	NeedsBackoff        = "backoff"         // workers end soon after their start
	NeedsNoWorker       = "no_worker"       // jobs wait and no worker lives
	NeedsFailures       = "failures"        // a large share of the last hour's attempts failed
	NeedsOldestWait     = "oldest_wait"     // a job has waited for long
	NeedsWebhooksPaused = "webhooks_paused" // receivers of webhooks get nothing
	NeedsPaused         = "paused"          // the endpoint hands out no jobs
	NeedsScaling        = "scaling"         // the autoscaler cannot do what it wants
	NeedsGPU            = "no_gpu"          // jobs wait for a worker that waits for a GPU
)
