package api

import (
	"fmt"
	"time"

	"flightline/shared/endpoint"
)

// EndpointSpec makes or changes an endpoint. What is null or missing stays as
// it is, or is the default; so does "" mean that, but 0 is a number like any
// other. Unknown fields are RunPod's: they pass.
type EndpointSpec struct {
	ID                 *string                    `json:"id,omitempty"`
	Name               *string                    `json:"name,omitempty"`
	ExecutionTimeoutMs *int64                     `json:"executionTimeoutMs,omitempty"`
	TTLMs              *int64                     `json:"ttlMs,omitempty"`
	RetentionMs        *int64                     `json:"retentionMs,omitempty"`
	SyncRetentionMs    *int64                     `json:"syncRetentionMs,omitempty"`
	LeaseMs            *int64                     `json:"leaseMs,omitempty"`
	MaxLostWorkers     *int                       `json:"maxLostWorkers,omitempty"`
	MaxQueueBytes      *int64                     `json:"maxQueueBytes,omitempty"`
	MaxQueueJobs       *int64                     `json:"maxQueueJobs,omitempty"`
	RequestsPerWorker  *int                       `json:"requestsPerWorker,omitempty"`
	FailureBudget      *int                       `json:"failureBudget,omitempty"`
	Rollout            *string                    `json:"rollout,omitempty"`
	WorkersMin         *int                       `json:"workersMin,omitempty"`
	WorkersMax         *int                       `json:"workersMax,omitempty"`
	StreamFormat       *string                    `json:"streamFormat,omitempty"`
	Limits             *map[string]endpoint.Limit `json:"limits,omitempty"`
	// WebhookRetriesMs replaces the whole schedule; [] means no second attempt.
	WebhookRetriesMs *[]int64 `json:"webhookRetriesMs,omitempty"`

	// What follows says how workers are started, and how many.
	ScalerType  *string `json:"scalerType,omitempty"`
	ScalerValue *int    `json:"scalerValue,omitempty"`
	// IdleTimeout is in seconds, as RunPod's is.
	IdleTimeout *int `json:"idleTimeout,omitempty"`
	// SleepTimeout is in seconds; 0 means that no worker is put to sleep.
	SleepTimeout *int `json:"sleepTimeout,omitempty"`
	// SleepGPUShare is 0 to 1; nil means 1.
	SleepGPUShare *float64           `json:"sleepGpuShare,omitempty"`
	Driver        *string            `json:"driver,omitempty"`
	TemplateID    *string            `json:"templateId,omitempty"`
	ImageName     *string            `json:"imageName,omitempty"`
	Command       *[]string          `json:"command,omitempty"`
	Env           *map[string]string `json:"env,omitempty"`
	GPUCount      *int               `json:"gpuCount,omitempty"`
	VCPUCount     *float64           `json:"vcpuCount,omitempty"`
	MemoryInGb    *float64           `json:"memoryInGb,omitempty"`
	ModelCache    *[]string          `json:"modelCache,omitempty"`

	// What follows says which GPUs a worker needs, and who gets them first.
	GPUTypeIDs     *[]string `json:"gpuTypeIds,omitempty"`
	MinVRAMGb      *float64  `json:"minVramGb,omitempty"`
	MinCUDAVersion *string   `json:"minCudaVersion,omitempty"`
	GPUShare       *float64  `json:"gpuShare,omitempty"`
	Priority       *int      `json:"priority,omitempty"`
	MinHoldMs      *int64    `json:"minHoldMs,omitempty"`
	MaxSwapWaitMs  *int64    `json:"maxSwapWaitMs,omitempty"`
}

// Endpoint is an endpoint as RunPod's REST API shows it, as far as it has
// the field, and what is ours.
type Endpoint struct {
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
	FailureBudget      int       `json:"failureBudget,omitempty"`
	StreamFormat       string    `json:"streamFormat"`
	// Limits are those that differ from the server's.
	Limits    map[string]endpoint.Limit `json:"limits"`
	Partition int                       `json:"partition"`
	// WebhookSecret is shown here only: everything beneath /v1 needs control.
	WebhookSecret string `json:"webhookSecret"`
	// WebhookRetriesMs are the pauses between attempts, if they are not the contract's.
	WebhookRetriesMs []int64 `json:"webhookRetriesMs,omitzero"`
	// Fleet says how workers are started, and how many.
	Fleet
	// Workers and Template are there if they were asked for.
	Workers  *[]Pod    `json:"workers,omitempty"`
	Template *Template `json:"template,omitempty"`
}

// Fleet is the part of an endpoint that says how workers are started. What
// the endpoint does not set is absent.
type Fleet struct {
	ScalerType  string `json:"scalerType"`
	ScalerValue int    `json:"scalerValue"`
	// IdleTimeout and SleepTimeout are in seconds.
	IdleTimeout  int `json:"idleTimeout"`
	SleepTimeout int `json:"sleepTimeout,omitempty"`
	// SleepGPUShare is nil for 1.
	SleepGPUShare *float64 `json:"sleepGpuShare,omitempty"`
	Driver        string   `json:"driver"`
	TemplateID    string   `json:"templateId,omitempty"`
	ImageName     string   `json:"imageName,omitempty"`
	Command       []string `json:"command,omitempty"`
	// Env has pod.Hidden in place of secrets.
	Env        map[string]string `json:"env"`
	GPUCount   int               `json:"gpuCount,omitempty"`
	VCPUCount  float64           `json:"vcpuCount,omitempty"`
	MemoryInGb float64           `json:"memoryInGb,omitempty"`
	ModelCache []string          `json:"modelCache,omitempty"`

	GPUTypeIDs     []string `json:"gpuTypeIds,omitempty"`
	MinVRAMGb      float64  `json:"minVramGb,omitempty"`
	MinCUDAVersion string   `json:"minCudaVersion,omitempty"`
	GPUShare       float64  `json:"gpuShare,omitempty"`
	Priority       int      `json:"priority,omitempty"`
	MinHoldMs      int64    `json:"minHoldMs,omitempty"`
	MaxSwapWaitMs  int64    `json:"maxSwapWaitMs,omitempty"`
	// Rollout is there if it is a canary's, Canary once a version was tried.
	Rollout string  `json:"rollout,omitempty"`
	Canary  *Canary `json:"canary,omitempty"`
	// PausedUntil is there while the endpoint is paused, PauseReason if it paused itself.
	PausedUntil string `json:"pausedUntil,omitempty"`
	PauseReason string `json:"pauseReason,omitempty"`
}

// Canary is the last trial of a new version of the workers beside the former one.
type Canary struct {
	// State is "running", "promoted" or "rolled_back".
	State         string `json:"state"`
	Version       int    `json:"version"`
	FormerVersion int    `json:"formerVersion"`
	// BeganAt is when the first worker of the new version was there, EndedAt when it was
	// over; Text says why.
	BeganAt time.Time `json:"beganAt,omitzero"`
	EndedAt time.Time `json:"endedAt,omitzero"`
	Text    string    `json:"text,omitempty"`
}

// CanaryOf is the canary of an endpoint, nil if it had none.
func CanaryOf(c endpoint.Canary) *Canary {
	if c.State == "" {
		return nil
	}
	return &Canary{State: c.State, Version: c.Version, FormerVersion: c.FormerVersion, BeganAt: c.Began, EndedAt: c.Ended, Text: c.Text}
}

// String is a sentence for people.
func (c Canary) String() string {
	switch c.State {
	case endpoint.CanaryRunning:
		return fmt.Sprintf("version %d is tried beside version %d", c.Version, c.FormerVersion)
	case endpoint.CanaryPromoted:
		return fmt.Sprintf("version %d was promoted: %s", c.Version, c.Text)
	}
	return fmt.Sprintf("version %d was rolled back to version %d: %s", c.Version, c.FormerVersion, c.Text)
}

// Pause says how long an endpoint is paused. Without DurationMs it is paused until
// it is resumed, for endpoint.MaxPause at most.
type Pause struct {
	DurationMs *int64 `json:"durationMs,omitempty"`
}
