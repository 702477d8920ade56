package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"flightline/shared/api"
	"flightline/shared/job"
	"flightline/shared/retry"
)

// Request is a job to submit.
type Request struct {
	// Input is marshalled to a JSON object; json.RawMessage goes verbatim.
	// Required.
	Input any
	// Webhook is the address that is called when the job ends. "" means none.
	Webhook string
	// Policy overrides the endpoint's settings for this job.
	Policy Policy
	// S3 is where the handler may store what it makes: an S3Config, or another JSON
	// object of at most 16 KiB; json.RawMessage keeps its fields as they are. nil gives it
	// nothing. Only the worker that runs the job sees it.
	S3 any
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

// Job is what the API answers about a job. Fields the answer does not have are
// zero: a submission is answered with ID and Status only.
type Job struct {
	ID     job.ID
	Status job.Status
	// Delay is how long the attempt waited before it was picked up, in whole
	// milliseconds; 0 while it waits.
	Delay time.Duration
	// Execution is how long its run took, or has taken so far, in whole
	// milliseconds; 0 before the first run.
	Execution time.Duration
	// Output is the result, verbatim; while IN_PROGRESS the last progress.
	Output json.RawMessage
	// Error is why the job failed, at most 64 KB; "" unless it is FAILED or
	// TIMED_OUT.
	Error string
	// Retries counts the pick-ups of all attempts beyond the first.
	Retries int
	// WorkerID is the worker of the last run, "" before the first.
	WorkerID string
	// WorkerLost says that the worker of an IN_PROGRESS job fell silent, or does not name
	// it; "" while it runs.
	WorkerLost string
	// Raw is the answer itself, for what this type does not name.
	Raw json.RawMessage
}

// Health is an endpoint's counters, at most 1 s old.
type Health = api.Health

// JobCounts counts an endpoint's jobs. Completed, Failed and Retried only grow.
type JobCounts = api.JobCounts

// WorkerCounts counts an endpoint's workers by what they do.
type WorkerCounts = api.WorkerCounts

// Run submits a job and returns at once; the job is stored durably by then. A
// repeated submission is answered with the first one's job.
func (c *Client) Run(ctx context.Context, endpoint string, r Request) (*Job, error) {
	return one[Job](ctx, c, call{method: http.MethodPost, path: v2(endpoint, "run"), body: wireRequest(r), once: c.once(r)})
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
	j, err := one[Job](ctx, c, call{
		method: http.MethodPost, path: v2(endpoint, "runsync"), body: wireRequest(r),
		query: millis("wait", wait), wait: held(wait), once: c.once(r),
	})
	for look := 1; err == nil && c.patience > 0 && j.ID != "" && !j.Status.Terminal() && time.Until(end) > leastWait; look++ {
		if retry.Sleep(ctx, min(lastPoll, firstPoll*time.Duration(look))) != nil {
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
	return one[Job](ctx, c, get(v2(endpoint, "status", string(id)), nil))
}

// StatusSync returns when the job has ended, or after wait as it then stands.
// wait 0 means 90 s; 1 to 300 s. A server that restarts answers before, and one of
// another make may not have it; Wait copes with both.
func (c *Client) StatusSync(ctx context.Context, endpoint string, id job.ID, wait time.Duration) (*Job, error) {
	return one[Job](ctx, c, call{
		method: http.MethodGet, path: v2(endpoint, "status-sync", string(id)),
		query: millis("wait", wait), wait: held(wait),
	})
}

// SetTTL changes when the job expires, counted from its submission: 1 s to 7
// days. Saying it again changes nothing.
func (c *Client) SetTTL(ctx context.Context, endpoint string, id job.ID, ttl time.Duration) (*Job, error) {
	query := url.Values{"ttl": {strconv.FormatInt(ttl.Milliseconds(), 10)}}
	return one[Job](ctx, c, get(v2(endpoint, "status", string(id)), query))
}

// Cancel ends a job that waits or runs. A job that finished otherwise is an
// Error with CodeJobFinished; cancelling twice is fine.
func (c *Client) Cancel(ctx context.Context, endpoint string, id job.ID) (*Job, error) {
	return one[Job](ctx, c, post(v2(endpoint, "cancel", string(id)), nil))
}

// Retry queues a job that is FAILED or TIMED_OUT again, with its first input.
func (c *Client) Retry(ctx context.Context, endpoint string, id job.ID) (*Job, error) {
	return one[Job](ctx, c, post(v2(endpoint, "retry", string(id)), nil))
}

// JobInput is what a job was given.
type JobInput = api.JobInput

// Input returns what a job was given, as long as it is kept: Input is nil once the job
// is COMPLETED or CANCELLED, unless it has a webhook.
func (c *Client) Input(ctx context.Context, endpoint string, id job.ID) (*JobInput, error) {
	return one[JobInput](ctx, c, get(v2(endpoint, "input", string(id)), nil))
}

// PurgeQueue cancels every waiting job and returns how many it were. Running
// ones go on. It takes as long as there are many, an hour at most.
func (c *Client) PurgeQueue(ctx context.Context, endpoint string) (removed int, err error) {
	purged, err := value[api.Purged](ctx, c, call{method: http.MethodPost, path: v2(endpoint, "purge-queue"), wait: longWait})
	return purged.Removed, err
}

// Health returns the endpoint's counters.
func (c *Client) Health(ctx context.Context, endpoint string) (Health, error) {
	return value[Health](ctx, c, get(v2(endpoint, "health"), nil))
}

// requestBody is Request as the API wants it.
type requestBody struct {
	Input    any         `json:"input"`
	Webhook  string      `json:"webhook,omitempty"`
	Policy   *policyBody `json:"policy,omitempty"`
	S3Config any         `json:"s3Config,omitempty"`
}

type policyBody struct {
	ExecutionTimeout *int64 `json:"executionTimeout,omitempty"`
	TTL              *int64 `json:"ttl,omitempty"`
	LowPriority      bool   `json:"lowPriority,omitempty"`
}

func wireRequest(r Request) requestBody {
	body := requestBody{Input: r.Input, Webhook: r.Webhook, S3Config: r.S3}
	if r.Policy != (Policy{}) {
		body.Policy = &policyBody{
			ExecutionTimeout: optionalMillis(r.Policy.ExecutionTimeout),
			TTL:              optionalMillis(r.Policy.TTL),
			LowPriority:      r.Policy.LowPriority,
		}
	}
	return body
}

// UnmarshalJSON reads the API's job record.
func (j *Job) UnmarshalJSON(data []byte) error {
	var wire api.Job
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*j = Job{
		ID: wire.ID, Status: wire.Status,
		Delay: ofOptionalMillis(wire.DelayTime), Execution: ofOptionalMillis(wire.ExecutionTime),
		Output: wire.Output, Error: wire.Error, Retries: wire.Retries, WorkerID: wire.WorkerID, WorkerLost: wire.WorkerLost,
		Raw: bytes.Clone(data),
	}
	return nil
}

// MarshalJSON returns the answer as it came.
func (j Job) MarshalJSON() ([]byte, error) { return rawOr(j.Raw) }

// statusWait is how long one request of Wait is held: below the 60 s after
// which many proxies cut a silent connection.
const statusWait = 50 * time.Second

// leastWait is the shortest wait that the API allows.
const leastWait = time.Second

// Pauses between two looks at a server without status-sync.
const (
	firstPoll = 50 * time.Millisecond
	lastPoll  = 2 * time.Second
)

// Wait returns the job once it has ended. It sits out a server that is busy or
// has lost its JetStream, for as long as ctx allows; at the end of ctx it
// returns ctx's error. A job that expired meanwhile is an Error with
// CodeJobNotFound.
func (c *Client) Wait(ctx context.Context, endpoint string, id job.ID) (*Job, error) {
	return c.WaitEach(ctx, endpoint, id, nil)
}

// WaitEach is Wait that calls each, unless it is nil, with the job each time it
// looked, the last time included. With each it looks at least once a second.
func (c *Client) WaitEach(ctx context.Context, endpoint string, id job.ID, each func(*Job)) (*Job, error) {
	hold := statusWait
	if each != nil {
		hold = leastWait
	}
	polling := false
	for look := 1; ; look++ {
		j, err := c.look(ctx, endpoint, id, hold, &polling)
		var refused *Error
		if err != nil && (!errors.As(err, &refused) || !refused.Temporary()) {
			return nil, err
		}
		if err == nil && each != nil {
			each(j)
		}
		if err == nil && j.Status.Terminal() {
			return j, nil
		}
		if err := retry.Sleep(ctx, pauseAfter(look, polling, refused)); err != nil {
			return nil, err
		}
	}
}

// look asks once, held if the server can, and learns if it cannot.
func (c *Client) look(ctx context.Context, endpoint string, id job.ID, hold time.Duration, polling *bool) (*Job, error) {
	if !*polling {
		j, err := c.StatusSync(ctx, endpoint, id, hold)
		if !noSuchOperation(err) {
			return j, err
		}
		*polling = true
	}
	return c.Status(ctx, endpoint, id)
}

// noSuchOperation reports whether the server lacks the operation, and not the
// job or endpoint.
func noSuchOperation(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Status == http.StatusMethodNotAllowed || e.Status == http.StatusNotImplemented ||
		e.Status == http.StatusNotFound && e.Code != CodeJobNotFound && e.Code != CodeEndpointNotFound
}

// pauseAfter is the pause after the nth look, from 1. A held look needs none,
// and there is no hurry with a server that is away.
func pauseAfter(look int, polling bool, refused *Error) time.Duration {
	switch {
	case refused != nil:
		return max(refused.RetryAfter, time.Second)
	case polling:
		return min(lastPoll, firstPoll*time.Duration(look))
	}
	return 0
}
