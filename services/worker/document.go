package worker

import (
	"encoding/json"

	sdk "flightline/shared/worker"
)

// document is the job as a command or a server gets it.
type document struct {
	ID       string          `json:"id"`
	Input    json.RawMessage `json:"input"`
	Webhook  string          `json:"webhook,omitempty"`
	S3Config json.RawMessage `json:"s3Config,omitempty"`
	Policy   policy          `json:"policy"`
}

// policy is in milliseconds, as the contract has it.
type policy struct {
	ExecutionTimeout int64 `json:"executionTimeout"`
	TTL              int64 `json:"ttl"`
	LowPriority      bool  `json:"lowPriority"`
}

func documentOf(j *sdk.Job) ([]byte, error) {
	return json.Marshal(document{
		ID: j.ID, Input: j.Input, Webhook: j.Webhook, S3Config: j.RawS3Config(),
		Policy: policy{
			ExecutionTimeout: j.ExecutionTimeout.Milliseconds(),
			TTL:              j.TTL.Milliseconds(),
			LowPriority:      j.LowPriority,
		},
	})
}
