package client

import (
	"bytes"
	"encoding/json"
	"time"
)

// endpointBody is EndpointSpec as the API wants it.
type endpointBody struct {
	ID                 string `json:"id,omitempty"`
	Name               string `json:"name,omitempty"`
	ExecutionTimeoutMs int64  `json:"executionTimeoutMs,omitempty"`
	TTLMs              int64  `json:"ttlMs,omitempty"`
	RetentionMs        int64  `json:"retentionMs,omitempty"`
	SyncRetentionMs    int64  `json:"syncRetentionMs,omitempty"`
	LeaseMs            int64  `json:"leaseMs,omitempty"`
	MaxLostWorkers     *int   `json:"maxLostWorkers,omitempty"`
	MaxQueueBytes      int64  `json:"maxQueueBytes,omitempty"`
	MaxQueueJobs       int64  `json:"maxQueueJobs,omitempty"`
	RequestsPerWorker  *int   `json:"requestsPerWorker,omitempty"`
	WorkersMin         *int   `json:"workersMin,omitempty"`
	WorkersMax         *int   `json:"workersMax,omitempty"`
	StreamFormat       string `json:"streamFormat,omitempty"`

	Limits map[string]Limit `json:"limits,omitzero"`

	WebhookRetriesMs []int64 `json:"webhookRetriesMs,omitzero"`

	FleetSpec
}

func wireEndpoint(s EndpointSpec) endpointBody {
	return endpointBody{
		ID: s.ID, Name: s.Name,
		ExecutionTimeoutMs: s.ExecutionTimeout.Milliseconds(), TTLMs: s.TTL.Milliseconds(),
		RetentionMs: s.Retention.Milliseconds(), SyncRetentionMs: s.SyncRetention.Milliseconds(),
		LeaseMs:        s.Lease.Milliseconds(),
		MaxLostWorkers: s.MaxLostWorkers, MaxQueueBytes: s.MaxQueueBytes, MaxQueueJobs: s.MaxQueueJobs, RequestsPerWorker: s.RequestsPerWorker,
		WorkersMin: s.WorkersMin, WorkersMax: s.WorkersMax, StreamFormat: s.StreamFormat, Limits: s.Limits,
		WebhookRetriesMs: mapped(s.WebhookRetries, time.Duration.Milliseconds), FleetSpec: s.Fleet,
	}
}

// mapped keeps nil apart from empty.
func mapped[A, B any](list []A, of func(A) B) []B {
	if list == nil {
		return nil
	}
	made := make([]B, len(list))
	for i, v := range list {
		made[i] = of(v)
	}
	return made
}

// UnmarshalJSON reads the API's endpoint.
func (e *Endpoint) UnmarshalJSON(data []byte) error {
	var wire struct {
		ID                 string `json:"id"`
		Name               string `json:"name"`
		ExecutionTimeoutMs int64  `json:"executionTimeoutMs"`
		TTLMs              int64  `json:"ttlMs"`
		RetentionMs        int64  `json:"retentionMs"`
		SyncRetentionMs    int64  `json:"syncRetentionMs"`
		LeaseMs            int64  `json:"leaseMs"`
		MaxLostWorkers     int    `json:"maxLostWorkers"`
		MaxQueueBytes      int64  `json:"maxQueueBytes"`
		MaxQueueJobs       int64  `json:"maxQueueJobs"`
		RequestsPerWorker  int    `json:"requestsPerWorker"`
		WorkersMin         int    `json:"workersMin"`
		WorkersMax         int    `json:"workersMax"`
		StreamFormat       string `json:"streamFormat"`
		WebhookSecret      string `json:"webhookSecret"`

		Limits    map[string]Limit `json:"limits"`
		CreatedAt time.Time        `json:"createdAt"`
		Version   int              `json:"version"`

		WebhookRetriesMs []int64 `json:"webhookRetriesMs"`
		Fleet
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*e = Endpoint{
		ID: wire.ID, Name: wire.Name,
		ExecutionTimeout: ofMillis(wire.ExecutionTimeoutMs), TTL: ofMillis(wire.TTLMs),
		Retention: ofMillis(wire.RetentionMs), SyncRetention: ofMillis(wire.SyncRetentionMs),
		Lease:          ofMillis(wire.LeaseMs),
		MaxLostWorkers: wire.MaxLostWorkers, MaxQueueBytes: wire.MaxQueueBytes, MaxQueueJobs: wire.MaxQueueJobs, RequestsPerWorker: wire.RequestsPerWorker,
		WorkersMin: wire.WorkersMin, WorkersMax: wire.WorkersMax, StreamFormat: wire.StreamFormat, Limits: wire.Limits,
		WebhookRetries: mapped(wire.WebhookRetriesMs, ofMillis), Fleet: wire.Fleet,
		WebhookSecret: wire.WebhookSecret, Created: wire.CreatedAt, Version: wire.Version,
		Raw: bytes.Clone(data),
	}
	return nil
}

// MarshalJSON returns the answer as it came.
func (e Endpoint) MarshalJSON() ([]byte, error) { return rawOr(e.Raw) }
