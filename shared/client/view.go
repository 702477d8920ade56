package client

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"

	"flightline/shared/job"
)

// v2 is the path of an operation of the queue API.
func v2(endpoint string, rest ...string) string { return escaped("/v2", endpoint, rest...) }

// v1 is the path of a thing of the REST API.
func v1(kind string, rest ...string) string { return escaped("/v1", kind, rest...) }

func escaped(root, first string, rest ...string) string {
	var path strings.Builder
	path.WriteString(root + "/" + url.PathEscape(first))
	for _, part := range rest {
		path.WriteString("/" + url.PathEscape(part))
	}
	return path.String()
}

// millis is a query of one duration in ms; 0 leaves it to the server.
func millis(name string, d time.Duration) url.Values {
	if d == 0 {
		return nil
	}
	return url.Values{name: {strconv.FormatInt(d.Milliseconds(), 10)}}
}

// held is how long the server will hold an answer for which wait was asked.
func held(wait time.Duration) time.Duration {
	if wait == 0 {
		return job.DefaultWait
	}
	return wait
}

// requestBody is Request as the API wants it.
type requestBody struct {
	Input    any         `json:"input"`
	Webhook  string      `json:"webhook,omitempty"`
	Policy   *policyBody `json:"policy,omitempty"`
	S3Config *S3Config   `json:"s3Config,omitempty"`
}

type policyBody struct {
	ExecutionTimeout int64 `json:"executionTimeout,omitempty"`
	TTL              int64 `json:"ttl,omitempty"`
	LowPriority      bool  `json:"lowPriority,omitempty"`
}

func wireRequest(r Request) requestBody {
	body := requestBody{Input: r.Input, Webhook: r.Webhook, S3Config: r.S3}
	if r.Policy != (Policy{}) {
		body.Policy = &policyBody{
			ExecutionTimeout: r.Policy.ExecutionTimeout.Milliseconds(),
			TTL:              r.Policy.TTL.Milliseconds(),
			LowPriority:      r.Policy.LowPriority,
		}
	}
	return body
}

// UnmarshalJSON reads the API's job record.
func (j *Job) UnmarshalJSON(data []byte) error {
	var wire struct {
		ID            job.ID          `json:"id"`
		Status        job.Status      `json:"status"`
		DelayTime     int64           `json:"delayTime"`
		ExecutionTime int64           `json:"executionTime"`
		Output        json.RawMessage `json:"output"`
		Error         string          `json:"error"`
		Retries       int             `json:"retries"`
		WorkerID      string          `json:"workerId"`
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*j = Job{
		ID: wire.ID, Status: wire.Status,
		Delay: ofMillis(wire.DelayTime), Execution: ofMillis(wire.ExecutionTime),
		Output: wire.Output, Error: wire.Error, Retries: wire.Retries, WorkerID: wire.WorkerID,
		Raw: bytes.Clone(data),
	}
	return nil
}

// MarshalJSON returns the answer as it came.
func (j Job) MarshalJSON() ([]byte, error) { return rawOr(j.Raw) }

func ofMillis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// rawOr is raw, or null if there is none.
func rawOr(raw json.RawMessage) ([]byte, error) {
	if raw == nil {
		return []byte("null"), nil
	}
	return raw, nil
}
