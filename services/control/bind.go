package control

import (
	"maps"
	"slices"
	"strings"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/limit"
	"flightline/shared/web"
)

// endpointBody makes or changes an endpoint. What is null or missing stays as
// it is, or is the default; so does "" mean that, but 0 is a number like any
// other. Unknown fields are RunPod's: they pass.
type endpointBody struct {
	ID                 *string                    `json:"id"`
	Name               *string                    `json:"name"`
	ExecutionTimeoutMs *int64                     `json:"executionTimeoutMs"`
	TTLMs              *int64                     `json:"ttlMs"`
	LeaseMs            *int64                     `json:"leaseMs"`
	RetentionMs        *int64                     `json:"retentionMs"`
	SyncRetentionMs    *int64                     `json:"syncRetentionMs"`
	MaxLostWorkers     *int                       `json:"maxLostWorkers"`
	MaxQueueBytes      *int64                     `json:"maxQueueBytes"`
	MaxQueueJobs       *int64                     `json:"maxQueueJobs"`
	RequestsPerWorker  *int                       `json:"requestsPerWorker"`
	WorkersMin         *int                       `json:"workersMin"`
	WorkersMax         *int                       `json:"workersMax"`
	StreamFormat       *string                    `json:"streamFormat"`
	Limits             *map[string]endpoint.Limit `json:"limits"`
	// WebhookRetriesMs replaces the whole schedule; [] means no second attempt.
	WebhookRetriesMs *[]int64 `json:"webhookRetriesMs"`

	// What follows says how workers are started, and how many; see bind_fleet.go.
	ScalerType  *string `json:"scalerType"`
	ScalerValue *int    `json:"scalerValue"`
	// IdleTimeout is in seconds, as RunPod's is.
	IdleTimeout *int64             `json:"idleTimeout"`
	Driver      *string            `json:"driver"`
	TemplateID  *string            `json:"templateId"`
	ImageName   *string            `json:"imageName"`
	Command     *[]string          `json:"command"`
	Env         *map[string]string `json:"env"`
	GPUCount    *int               `json:"gpuCount"`
	VCPUCount   *float64           `json:"vcpuCount"`
	MemoryInGb  *float64           `json:"memoryInGb"`
}

// endpoint is what a new endpoint is made from.
func (b *endpointBody) endpoint() (endpoint.Endpoint, error) {
	if blank(b.ID) && blank(b.Name) && blank(b.TemplateID) {
		return endpoint.Endpoint{}, web.Errorf(web.InvalidRequest, "name or id is required, or templateId")
	}
	if err := b.check(); err != nil {
		return endpoint.Endpoint{}, err
	}
	e, err := b.onto(endpoint.Endpoint{})
	if err != nil {
		return e, err
	}
	if b.ID != nil {
		e.ID = *b.ID
	}
	if e.ID == "" {
		e.ID = newID()
	}
	return e, nil
}

// check refuses limits of operations that there are not. All else is checked
// by endpoint.Complete.
func (b *endpointBody) check() error {
	if b.Limits == nil {
		return nil
	}
	for _, operation := range slices.Sorted(maps.Keys(*b.Limits)) {
		if !limit.Known(operation) {
			return web.Errorf(web.InvalidRequest, "limits.%s is no operation: must be of %s", operation, strings.Join(limit.Operations(), ", "))
		}
	}
	return nil
}

func blank(given *string) bool { return given == nil || *given == "" }

// onto returns e with what the body gives, or an *endpoint.FieldError.
func (b *endpointBody) onto(e endpoint.Endpoint) (endpoint.Endpoint, error) {
	set(&e.Name, b.Name)
	setMillis(&e.ExecutionTimeout, positive(b.ExecutionTimeoutMs))
	setMillis(&e.TTL, positive(b.TTLMs))
	setMillis(&e.Lease, positive(b.LeaseMs))
	setMillis(&e.Retention, positive(b.RetentionMs))
	setMillis(&e.SyncRetention, positive(b.SyncRetentionMs))
	set(&e.MaxLost, positive(b.MaxLostWorkers))
	set(&e.MaxQueueBytes, positive(b.MaxQueueBytes))
	set(&e.MaxQueueJobs, positive(b.MaxQueueJobs))
	set(&e.RequestsPerWorker, b.RequestsPerWorker)
	set(&e.WorkersMin, b.WorkersMin)
	if b.WorkersMax != nil {
		e.WorkersMax, e.NoWorkers = *b.WorkersMax, *b.WorkersMax == 0
	}
	set(&e.StreamFormat, b.StreamFormat)
	set(&e.Limits, b.Limits)
	if b.WebhookRetriesMs != nil {
		e.WebhookRetries = make([]time.Duration, len(*b.WebhookRetriesMs))
		for i := range e.WebhookRetries {
			setMillis(&e.WebhookRetries[i], &(*b.WebhookRetriesMs)[i])
		}
	}
	return b.ontoFleet(e)
}

// positive is what is given of a setting that must be: a 0 is as wrong as what
// is below it, while to an Endpoint it would mean the default.
func positive[T int | int64](given *T) *T {
	if given != nil && *given == 0 {
		return new(T(-1))
	}
	return given
}

func set[T any](to, given *T) {
	if given != nil {
		*to = *given
	}
}

// setMillis keeps what a Duration cannot hold out of bounds in either direction.
func setMillis(to *time.Duration, given *int64) {
	const far = int64(365 * 24 * time.Hour / time.Millisecond)
	if given != nil {
		*to = time.Duration(min(max(*given, -far), far)) * time.Millisecond
	}
}

// keyBody makes a key.
type keyBody struct {
	Name   string      `json:"name"`
	Scopes []string    `json:"scopes"`
	Quota  limit.Quota `json:"quota"`
}

// keyChange changes a key. Fields of the quota that are missing stay, null means
// the default.
type keyChange struct {
	Quota limit.QuotaChange `json:"quota"`
}
