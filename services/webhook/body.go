package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"flightline/shared/job"
	"flightline/shared/queue"
)

// view is the body of a webhook: the job as /status shows it, and what it was
// asked for. Times are milliseconds.
type view struct {
	DelayTime     int64           `json:"delayTime"`
	Error         string          `json:"error,omitempty"`
	ExecutionTime int64           `json:"executionTime"`
	ID            job.ID          `json:"id"`
	Input         json.RawMessage `json:"input,omitempty"`
	Output        json.RawMessage `json:"output,omitempty"`
	Retries       int             `json:"retries"`
	Status        job.Status      `json:"status"`
	Webhook       string          `json:"webhook"`
	WorkerID      string          `json:"workerId,omitempty"`

	// Omitted says what was left out of a body that would be too large, and
	// OutputURL where the output can be read for as long as it is kept.
	Omitted   string `json:"omitted,omitempty"`
	OutputURL string `json:"outputUrl,omitempty"`
}

// bodyOf is the body, with a link instead of the output if it would be larger
// than most, and without the input if that does not do.
func bodyOf(c *queue.Completion, most int, public string) ([]byte, error) {
	j := &c.Job
	v := view{
		DelayTime: j.Delay().Milliseconds(), ExecutionTime: j.Execution(j.Finished).Milliseconds(),
		ID: j.ID, Input: c.Input, Output: j.Output, Error: j.Error, Retries: j.Retries(),
		Status: j.Status, Webhook: j.Webhook, WorkerID: j.Worker,
	}
	body, err := encode(v)
	if err != nil || len(body) <= most {
		return body, err
	}
	size := len(body)
	var left []string
	if len(v.Output) > 0 {
		left = append(left, "output")
		v.Output = nil
		v.OutputURL = strings.TrimSuffix(public, "/") + "/v2/" + url.PathEscape(j.Endpoint) + "/status/" + url.PathEscape(string(j.ID))
	}
	if size-len(j.Output) > most {
		left = append(left, "input")
		v.Input = nil
	}
	v.Omitted = fmt.Sprintf("%s: the body would have %d bytes, more than %d", strings.Join(left, ", "), size, most)
	return encode(v)
}

func encode(v view) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the webhook of job %s: %w", v.ID, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
