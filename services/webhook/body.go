package webhook

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"flightline/shared/deliveries"
	"flightline/shared/job"
)

// payload is the body of a webhook: the job as /status shows it, with its
// input. Times are in milliseconds.
type payload struct {
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
	// Omitted names what was left out of a body that would be too large, and
	// OutputURL is where the output can be read for as long as it is kept.
	Omitted   string `json:"omitted,omitempty"`
	OutputURL string `json:"outputUrl,omitempty"`
}

// encodeBody returns the body. If it would be larger than maxSize, it has a
// link instead of the output, and if it still is with the link, no input either. The
// other fields stay.
func encodeBody(c *deliveries.Task, maxSize int, publicURL string) ([]byte, error) {
	j := &c.Job
	p := payload{
		DelayTime: j.Delay().Milliseconds(), Error: j.Error, ExecutionTime: j.Execution(j.Finished).Milliseconds(), ID: j.ID,
		Input: c.Input, Output: j.Output, Retries: j.Retries(), Status: j.Status, Webhook: j.Webhook, WorkerID: j.Worker,
	}
	body, err := p.encode()
	if err != nil || len(body) <= maxSize {
		return body, err
	}
	why := fmt.Sprintf(": the body would have %d bytes, more than %d", len(body), maxSize)
	omitted := "input"
	if len(p.Output) > 0 {
		p.Output, p.Omitted = nil, "output"+why
		p.OutputURL = strings.TrimSuffix(publicURL, "/") + "/v2/" + url.PathEscape(j.Endpoint) + "/status/" + url.PathEscape(string(j.ID))
		if body, err = p.encode(); err != nil || len(body) <= maxSize {
			return body, err
		}
		omitted = "output, input"
	}
	p.Input, p.Omitted = nil, omitted+why
	return p.encode()
}

func (p *payload) encode() ([]byte, error) {
	body, err := job.AppendJSON(nil, p)
	if err != nil {
		return nil, fmt.Errorf("encode the webhook of job %s: %w", p.ID, err)
	}
	return body, nil
}
