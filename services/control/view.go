package control

import (
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/limit"
	"flightline/shared/registry"
)

// endpointView is an endpoint as RunPod's REST API shows it, as far as it has
// the field, and what is ours.
type endpointView struct {
	ID                 string    `json:"id"`
	Name               string    `json:"name"`
	CreatedAt          time.Time `json:"createdAt"`
	Version            int       `json:"version"`
	WorkersMin         int       `json:"workersMin"`
	WorkersMax         int       `json:"workersMax"`
	ExecutionTimeoutMs int64     `json:"executionTimeoutMs"`
	TTLMs              int64     `json:"ttlMs"`
	LeaseMs            int64     `json:"leaseMs"`
	RetentionMs        int64     `json:"retentionMs"`
	SyncRetentionMs    int64     `json:"syncRetentionMs"`
	MaxLostWorkers     int       `json:"maxLostWorkers"`
	MaxQueueBytes      int64     `json:"maxQueueBytes"`
	MaxQueueJobs       int64     `json:"maxQueueJobs"`
	RequestsPerWorker  int       `json:"requestsPerWorker"`
	StreamFormat       string    `json:"streamFormat"`
	// Limits are those that differ from the server's.
	Limits    map[string]endpoint.Limit `json:"limits"`
	Partition int                       `json:"partition"`
	// WebhookSecret is shown here only: everything beneath /v1 needs control.
	WebhookSecret string `json:"webhookSecret"`
	// WebhookRetriesMs are the pauses between attempts, if they are not the contract's.
	WebhookRetriesMs []int64 `json:"webhookRetriesMs,omitzero"`
	// fleetView says how workers are started, and how many.
	fleetView
	// Workers and Template are there if they were asked for.
	Workers  *[]podView    `json:"workers,omitempty"`
	Template *templateView `json:"template,omitempty"`
}

func viewOf(e endpoint.Endpoint, now time.Time) endpointView {
	limits := e.Limits
	if limits == nil {
		limits = map[string]endpoint.Limit{}
	}
	var retries []int64
	if e.WebhookRetries != nil {
		retries = make([]int64, len(e.WebhookRetries))
		for i, d := range e.WebhookRetries {
			retries[i] = d.Milliseconds()
		}
	}
	return endpointView{
		ID: e.ID, Name: e.Name, CreatedAt: e.Created, Version: e.Version,
		WorkersMin: e.WorkersMin, WorkersMax: e.WorkersMax,
		ExecutionTimeoutMs: e.ExecutionTimeout.Milliseconds(), TTLMs: e.TTL.Milliseconds(),
		LeaseMs: e.Lease.Milliseconds(), RetentionMs: e.Retention.Milliseconds(),
		SyncRetentionMs: e.SyncRetention.Milliseconds(), MaxLostWorkers: e.MaxLost, MaxQueueBytes: e.QueueBytes(),
		MaxQueueJobs:      e.QueueJobs(),
		RequestsPerWorker: e.RequestsPerWorker, StreamFormat: e.StreamFormat,
		Limits: limits, Partition: e.Partition, WebhookSecret: e.WebhookSecret, WebhookRetriesMs: retries,
		fleetView: fleetViewOf(e, now),
	}
}

// keyView is a key without what is secret about it.
type keyView struct {
	ID        string           `json:"id"`
	Name      string           `json:"name"`
	Scopes    []registry.Scope `json:"scopes"`
	Last4     string           `json:"last4"`
	CreatedAt time.Time        `json:"createdAt"`
	Quota     limit.Quota      `json:"quota,omitzero"` // what is not the default
	// Key is the key itself, in the answer that makes it and never again.
	Key string `json:"key,omitempty"`
}

func keyViewOf(k registry.Key) keyView {
	return keyView{ID: k.ID, Name: k.Name, Scopes: k.Scopes, Last4: k.Last4, CreatedAt: k.Created, Quota: k.Quota}
}
