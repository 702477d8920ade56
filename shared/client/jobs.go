package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"flightline/shared/job"
)

// Request is a job to submit.
type Request struct {
	// Input is marshalled to a JSON object; json.RawMessage goes verbatim.
	// Required.
	Input any
	// Webhook is told when the job ends. "" tells nobody.
	Webhook string
	// Policy overrides the endpoint's settings for this job.
	Policy Policy
	// S3 is where the handler may store what it makes. nil gives it nothing.
	// Only the worker that runs the job sees it.
	S3 *S3Config
	// IdempotencyKey makes the submission repeatable: within 24 hours the same
	// key with the same request stands for the same job, which runs once. 1 to
	// 255 visible ASCII characters. "" makes each submission a job of its own.
	IdempotencyKey string
}

// Policy is how a job is to be treated. The zero value of a field means the
// endpoint's setting.
type Policy struct {
	// ExecutionTimeout ends a run that takes longer. 5 s to 7 days.
	ExecutionTimeout time.Duration
	// TTL ends the job in any status. Counted from submission, 10 s to 7 days.
	TTL time.Duration
	// LowPriority jobs run when nothing else waits.
	LowPriority bool
}

// S3Config is a bucket and the key to it.
type S3Config struct {
	AccessID     string `json:"accessId"`
	AccessSecret string `json:"accessSecret"`
	BucketName   string `json:"bucketName"`
	EndpointURL  string `json:"endpointUrl"`
	// ObjectPath is a folder within the bucket. "" leaves it to the handler.
	ObjectPath string `json:"objectPath,omitempty"`
}

// Job is what the API tells about a job. Fields the answer does not have are
// zero: a submission is answered with ID and Status only.
type Job struct {
	ID     job.ID
	Status job.Status
	// Delay is how long the attempt waited before it was picked up.
	Delay time.Duration
	// Execution is how long its run took, or has taken so far.
	Execution time.Duration
	// Output is the result, verbatim; while IN_PROGRESS the last progress.
	Output json.RawMessage
	// Error is why the job failed.
	Error string
	// Retries counts pick-ups beyond the first.
	Retries int
	// WorkerID is who ran it.
	WorkerID string
	// Raw is the answer itself, for what this type does not name.
	Raw json.RawMessage
}

// Health is an endpoint's counters, at most 1 s old.
type Health struct {
	Jobs    JobCounts    `json:"jobs"`
	Workers WorkerCounts `json:"workers"`
}

// JobCounts counts an endpoint's jobs. Completed, Failed and Retried only grow.
type JobCounts struct {
	Completed  int `json:"completed"`
	Failed     int `json:"failed"`
	InProgress int `json:"inProgress"`
	InQueue    int `json:"inQueue"`
	Retried    int `json:"retried"`
}

// WorkerCounts counts an endpoint's workers by what they do.
type WorkerCounts struct {
	Idle         int `json:"idle"`
	Initializing int `json:"initializing"`
	Ready        int `json:"ready"`
	Running      int `json:"running"`
	Throttled    int `json:"throttled"`
	Unhealthy    int `json:"unhealthy"`
}

// Run submits a job and returns at once; the job is stored durably by then. A
// repeated submission is answered with the first one's job.
func (c *Client) Run(ctx context.Context, endpoint string, r Request) (*Job, error) {
	return c.job(ctx, call{method: http.MethodPost, path: v2(endpoint, "run"), body: wireRequest(r), once: c.once(r)})
}

// once is the Idempotency-Key that r is sent with.
func (c *Client) once(r Request) string {
	if r.IdempotencyKey == "" && c.keyed {
		return "flightline-go-" + rand.Text()
	}
	return r.IdempotencyKey
}

// RunSync submits a job and returns when it has ended, or after wait with the
// job as it then stands: its Status says which. wait 0 means 90 s; 1 to 300 s. A
// server that restarts answers before; the rest is waited for with StatusSync.
func (c *Client) RunSync(ctx context.Context, endpoint string, r Request, wait time.Duration) (*Job, error) {
	end := time.Now().Add(held(wait))
	j, err := c.job(ctx, call{
		method: http.MethodPost, path: v2(endpoint, "runsync"), body: wireRequest(r),
		query: millis("wait", wait), wait: held(wait), once: c.once(r),
	})
	for look := 1; err == nil && c.patience > 0 && j.ID != "" && !j.Status.Terminal() && time.Until(end) > leastWait; look++ {
		if rest(ctx, min(lastPoll, firstPoll*time.Duration(look))) != nil {
			break // the caller's patience is over, and the job known
		}
		later, err := c.StatusSync(ctx, endpoint, j.ID, max(leastWait, time.Until(end).Truncate(time.Millisecond)))
		if err != nil {
			return j, nil //nolint:nilerr // what the submission was answered holds
		}
		j = later
	}
	return j, err
}

// Status returns the job as it stands, with its output.
func (c *Client) Status(ctx context.Context, endpoint string, id job.ID) (*Job, error) {
	return c.job(ctx, call{method: http.MethodGet, path: v2(endpoint, "status", string(id))})
}

// StatusSync returns when the job has ended, or after wait as it then stands.
// wait 0 means 90 s; 1 to 300 s. A server may not have it yet; Wait copes.
func (c *Client) StatusSync(ctx context.Context, endpoint string, id job.ID, wait time.Duration) (*Job, error) {
	return c.job(ctx, call{
		method: http.MethodGet, path: v2(endpoint, "status-sync", string(id)),
		query: millis("wait", wait), wait: held(wait),
	})
}

// SetTTL changes when the job expires, counted from its submission: 1 s to 7
// days. Saying it again changes nothing.
func (c *Client) SetTTL(ctx context.Context, endpoint string, id job.ID, ttl time.Duration) (*Job, error) {
	return c.job(ctx, call{
		method: http.MethodGet, path: v2(endpoint, "status", string(id)),
		query: url.Values{"ttl": {strconv.FormatInt(ttl.Milliseconds(), 10)}},
	})
}

// Cancel ends a job that waits or runs. A job that finished otherwise is an
// Error with CodeJobFinished; cancelling twice is fine.
func (c *Client) Cancel(ctx context.Context, endpoint string, id job.ID) (*Job, error) {
	return c.job(ctx, call{method: http.MethodPost, path: v2(endpoint, "cancel", string(id))})
}

// Retry queues a job that is FAILED or TIMED_OUT again, with its first input.
func (c *Client) Retry(ctx context.Context, endpoint string, id job.ID) (*Job, error) {
	return c.job(ctx, call{method: http.MethodPost, path: v2(endpoint, "retry", string(id))})
}

// PurgeQueue cancels every waiting job and returns how many it were. Running
// ones go on.
func (c *Client) PurgeQueue(ctx context.Context, endpoint string) (removed int, err error) {
	var purged struct {
		Removed int `json:"removed"`
	}
	err = c.do(ctx, call{method: http.MethodPost, path: v2(endpoint, "purge-queue")}, &purged)
	return purged.Removed, err
}

// Health returns the endpoint's counters.
func (c *Client) Health(ctx context.Context, endpoint string) (Health, error) {
	var h Health
	err := c.do(ctx, call{method: http.MethodGet, path: v2(endpoint, "health")}, &h)
	return h, err
}

func (c *Client) job(ctx context.Context, op call) (*Job, error) {
	var j Job
	if err := c.do(ctx, op, &j); err != nil {
		return nil, err
	}
	return &j, nil
}
