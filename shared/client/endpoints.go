package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"flightline/shared/api"
	"flightline/shared/endpoint"
)

// Endpoints manages endpoints. Each call needs a key with the control
// permission.
type Endpoints struct{ c *Client }

// Endpoints returns the calls that manage endpoints.
func (c *Client) Endpoints() Endpoints { return Endpoints{c} }

// Endpoint is a name to submit jobs to, and its settings.
type Endpoint struct {
	ID   string
	Name string // for people; the id unless set
	// ExecutionTimeout and TTL hold for jobs whose policy names none. No setting
	// is zero here: the server fills in the defaults.
	ExecutionTimeout time.Duration
	TTL              time.Duration
	// Retention and SyncRetention are how long results can be read.
	Retention     time.Duration
	SyncRetention time.Duration
	// Lease is how long a silent worker keeps its job.
	Lease          time.Duration
	MaxLostWorkers int
	// MaxQueueBytes bounds the bytes of jobs that wait or run.
	MaxQueueBytes int64
	// MaxQueueJobs bounds the jobs that wait or run.
	MaxQueueJobs      int64
	RequestsPerWorker int
	// FailureBudget is how many jobs in a row may fail for one cause until the endpoint
	// is paused, 0 for any number.
	FailureBudget int
	WorkersMin    int
	WorkersMax    int
	StreamFormat  string
	// Limits are those that differ from the server's, by operation.
	Limits map[string]Limit
	// WebhookRetries are the pauses between attempts to deliver a webhook, nil
	// if they are the contract's: twice 10 s.
	WebhookRetries []time.Duration
	// Fleet is how its workers are started.
	Fleet Fleet
	// WebhookSecret signs webhooks. It is "" for callers who may not see it.
	WebhookSecret string
	Created       time.Time
	Version       int
	// Raw is the answer itself, for what this type does not name.
	Raw json.RawMessage
}

// Limit is how many requests an operation ("run", "runsync", "status", …) may get
// in any 10 s, and how many at once. 0 means no limit of that kind.
type Limit = endpoint.Limit

// EndpointSpec is what to make or change. Zero durations and "", and nil, mean
// the default when creating, and no change when updating; the bounds are those
// of the API. A pointer to "" takes away what the endpoint had.
type EndpointSpec struct {
	// ID matches [A-Za-z0-9_-]{1,64}. The server chooses one for "". It cannot
	// change.
	ID string
	// Name is for people: at most 191 characters. The default, and "", is the id.
	Name *string
	// ExecutionTimeout bounds a run of a job that names no timeout: 5 s to 7 d.
	// The default is 10 min.
	ExecutionTimeout time.Duration
	// TTL bounds the life of a job that names none, from its submission: 10 s to
	// 7 d. The default is 24 h.
	TTL time.Duration
	// Retention is how long a result can be read: 1 s to 7 d. The default is
	// 30 min.
	Retention time.Duration
	// SyncRetention is the same for jobs of RunSync: 1 s to 5 min. The default is
	// 1 min.
	SyncRetention time.Duration
	// Lease is how long a silent worker keeps its job: 10 s to 1 h. The default
	// is 30 s.
	Lease time.Duration
	// MaxLostWorkers is how many workers an attempt may lose before it is FAILED:
	// 1 to 100. The default is 3.
	MaxLostWorkers *int
	// MaxQueueBytes bounds the inputs of jobs that wait or run, in bytes: 32 MiB
	// to 10^12. The default is 10 GiB.
	MaxQueueBytes int64
	// MaxQueueJobs bounds the jobs that wait or run: 1 to 10^9. The default is
	// 1,000,000.
	MaxQueueJobs int64
	// RequestsPerWorker raises the rate limits by this many requests for each
	// running worker: 0 to 100,000. The default is 0, which raises nothing.
	RequestsPerWorker *int
	// FailureBudget is how many jobs in a row may fail for one cause until the endpoint
	// is paused: 0 to 1000. The default is 0: it never is for that.
	FailureBudget *int
	// WorkersMin and WorkersMax bound the fleet: 0 to 1000. The defaults are 0
	// and 3. WorkersMax 0 turns the fleet off.
	WorkersMin *int
	WorkersMax *int
	// StreamFormat is the form of /stream: "auto", "array" or "object". The
	// default is "auto".
	StreamFormat string
	// Limits replace all that the endpoint had; an empty map takes them away.
	Limits map[string]Limit
	// WebhookRetries are the pauses between attempts to deliver a webhook, at
	// most 20, of 1 s to 24 h; an empty one, not nil, means a single attempt.
	WebhookRetries []time.Duration
	// Fleet is how its workers are started.
	Fleet FleetSpec
}

// Create makes an endpoint. One of ID, Name and Fleet.TemplateID is required.
func (e Endpoints) Create(ctx context.Context, spec EndpointSpec) (*Endpoint, error) {
	return one[Endpoint](ctx, e.c, post(v1("endpoints"), wireEndpoint(spec)))
}

// Get returns the endpoint, or an *Error for which IsNotFound holds.
func (e Endpoints) Get(ctx context.Context, id string) (*Endpoint, error) {
	return one[Endpoint](ctx, e.c, get(v1("endpoints", id), nil))
}

// List returns all endpoints.
func (e Endpoints) List(ctx context.Context) ([]Endpoint, error) {
	return value[[]Endpoint](ctx, e.c, get(v1("endpoints"), nil))
}

// Update changes the settings that spec names.
func (e Endpoints) Update(ctx context.Context, id string, spec EndpointSpec) (*Endpoint, error) {
	spec.ID = ""
	return one[Endpoint](ctx, e.c, patch(v1("endpoints", id), wireEndpoint(spec)))
}

// Delete removes the endpoint. An endpoint that has jobs is kept and an Error
// returned, unless force says that they are to be cancelled.
func (e Endpoints) Delete(ctx context.Context, id string, force bool) error {
	var query url.Values
	if force {
		query = url.Values{"force": {"true"}}
	}
	return e.c.do(ctx, call{method: http.MethodDelete, path: v1("endpoints", id), query: query, wait: longWait}, nil)
}

// Fleet is how an endpoint's workers are started, and how many there may be.
type Fleet struct {
	// ScalerType is "QUEUE_DELAY" or "REQUEST_COUNT", ScalerValue its seconds or jobs.
	ScalerType  string
	ScalerValue int
	// IdleSeconds is how long a worker that is not needed may idle, SleepSeconds how long
	// it then sleeps before it is stopped, 0 for none.
	IdleSeconds  int
	SleepSeconds int
	// Driver is "process", "docker" or "external".
	Driver     string
	TemplateID string
	Image      string
	Command    []string
	// Env has "***" in place of secrets; sent back, that keeps the value.
	Env map[string]string
	// GPUs, VCPUs and MemoryGB are one worker's limits, 0 for none.
	GPUs     int
	VCPUs    float64
	MemoryGB float64
	// ModelCache are the models for which workers use the cache of their machine.
	ModelCache []string
	GPU        GPUNeeds
	// PausedUntil is zero if the endpoint is not paused. PauseReason says why it paused
	// itself, "" for a pause by request.
	PausedUntil time.Time
	PauseReason string
	// Rollout is "" for "replace", or "canary:10%". Canary is the last trial of a new
	// version, nil if there was none.
	Rollout string
	Canary  *Canary
}

// Canary is the last trial of a new version of the workers.
type Canary = api.Canary

// FleetSpec is what to set of a Fleet. "" and nil mean the default when
// creating, and no change when updating; a pointer to "" means none.
type FleetSpec struct {
	ScalerType  string
	ScalerValue *int
	// IdleSeconds is 1 to 3600.
	IdleSeconds *int
	// SleepSeconds is 1 to 604800, or 0: no worker is put to sleep.
	SleepSeconds *int
	Driver       string
	TemplateID   *string
	Image        *string
	// Command and Env replace what the endpoint had; empty ones take it away.
	Command  []string
	Env      map[string]string
	GPUs     *int
	VCPUs    *float64
	MemoryGB *float64
	// ModelCache are at most 20 models, like "Qwen/Qwen3-8B", for which workers use the cache
	// of their machine; empty ones mean those of the template.
	ModelCache []string
	GPU        GPUSpec
	// Rollout is how a new version comes: "replace", or "canary:10%" to try it on that
	// share of the workers first, 1 to 99.
	Rollout string
}

// GPUNeeds are which GPUs a worker needs, and who gets them first.
type GPUNeeds struct {
	// Types are the names of GPUs that will do, nil for any.
	Types []string
	// MinVRAMGB is the memory that it needs of each, MinCUDA the oldest CUDA, as "12.4";
	// 0 and "" for any. Share is the part of one GPU that it gets; 0 is all.
	MinVRAMGB float64
	MinCUDA   string
	Share     float64
	// SleepShare is the part of each GPU that it keeps while it sleeps, nil for all.
	SleepShare *float64
	// Priority is -2 to 2. MinHold and MaxSwapWait are 0 for the defaults.
	Priority             int
	MinHold, MaxSwapWait time.Duration
}

// GPUSpec is what to set of GPUNeeds; nil means no change, or the default.
type GPUSpec struct {
	// Types replace those there were; empty ones mean any.
	Types                []string
	MinVRAMGB            *float64
	MinCUDA              *string // "" means any
	Share                *float64
	SleepShare           *float64
	Priority             *int
	MinHold, MaxSwapWait time.Duration
}

// applyTo sets what is given.
func (s GPUSpec) applyTo(spec *api.EndpointSpec) {
	spec.MinVRAMGb, spec.MinCUDAVersion, spec.GPUShare, spec.Priority = s.MinVRAMGB, s.MinCUDA, s.Share, s.Priority
	spec.SleepGPUShare, spec.MinHoldMs, spec.MaxSwapWaitMs = s.SleepShare, optionalMillis(s.MinHold), optionalMillis(s.MaxSwapWait)
	if s.Types != nil {
		spec.GPUTypeIDs = &s.Types
	}
}

func gpuNeedsOf(f api.Fleet) GPUNeeds {
	return GPUNeeds{
		Types: f.GPUTypeIDs, MinVRAMGB: f.MinVRAMGb, MinCUDA: f.MinCUDAVersion, Share: f.GPUShare, SleepShare: f.SleepGPUShare, Priority: f.Priority,
		MinHold: ofMillis(f.MinHoldMs), MaxSwapWait: ofMillis(f.MaxSwapWaitMs),
	}
}

// Pause makes the endpoint hand out no jobs for this long, 1 s to 365 days;
// 0 means until Resume, at the latest after 365 days. Jobs are accepted meanwhile.
func (e Endpoints) Pause(ctx context.Context, id string, length time.Duration) (*Endpoint, error) {
	body := api.Pause{DurationMs: optionalMillis(length)}
	return one[Endpoint](ctx, e.c, post(v1("endpoints", id, "pause"), body))
}

// Resume ends a pause; that none exists is no error.
func (e Endpoints) Resume(ctx context.Context, id string) (*Endpoint, error) {
	return one[Endpoint](ctx, e.c, post(v1("endpoints", id, "resume"), nil))
}

// ScalingDecision is what the autoscaler decided, until the next one.
type ScalingDecision struct {
	At time.Time `json:"at"`
	// Wanted is how many workers there should be, Current how many there were.
	Wanted  int `json:"wanted"`
	Current int `json:"current"`
	// Queued counts the waiting jobs without low priority.
	Queued     int `json:"queued"`
	InProgress int `json:"inProgress"`
	// Reason is a word for programs, Text a sentence.
	Reason string `json:"reason"`
	Text   string `json:"text"`
	// Hold: a number was unknown, so nothing was started or stopped.
	Hold bool `json:"hold"`
}

// Scaling lists what was decided about the endpoint's workers, the newest
// first; limit is 1 to 100, 0 means 20.
func (e Endpoints) Scaling(ctx context.Context, id string, limit int) ([]ScalingDecision, error) {
	query := queryOf(map[string]string{"limit": countText(limit)})
	return value[[]ScalingDecision](ctx, e.c, get(v1("endpoints", id, "scaling"), query))
}

func wireEndpoint(s EndpointSpec) api.EndpointSpec {
	spec := api.EndpointSpec{
		ID: orAbsent(s.ID), Name: s.Name,
		ExecutionTimeoutMs: optionalMillis(s.ExecutionTimeout), TTLMs: optionalMillis(s.TTL),
		RetentionMs: optionalMillis(s.Retention), SyncRetentionMs: optionalMillis(s.SyncRetention),
		LeaseMs: optionalMillis(s.Lease), MaxLostWorkers: s.MaxLostWorkers,
		MaxQueueBytes: orAbsent(s.MaxQueueBytes), MaxQueueJobs: orAbsent(s.MaxQueueJobs),
		RequestsPerWorker: s.RequestsPerWorker, FailureBudget: s.FailureBudget, WorkersMin: s.WorkersMin, WorkersMax: s.WorkersMax, StreamFormat: orAbsent(s.StreamFormat),
		ScalerType: orAbsent(s.Fleet.ScalerType), ScalerValue: s.Fleet.ScalerValue, IdleTimeout: s.Fleet.IdleSeconds, SleepTimeout: s.Fleet.SleepSeconds,
		Driver: orAbsent(s.Fleet.Driver), TemplateID: s.Fleet.TemplateID, ImageName: s.Fleet.Image,
		GPUCount: s.Fleet.GPUs, VCPUCount: s.Fleet.VCPUs, MemoryInGb: s.Fleet.MemoryGB, Rollout: orAbsent(s.Fleet.Rollout),
	}
	s.Fleet.GPU.applyTo(&spec)
	if s.Fleet.ModelCache != nil {
		spec.ModelCache = &s.Fleet.ModelCache
	}
	if s.Limits != nil {
		spec.Limits = &s.Limits
	}
	if s.WebhookRetries != nil {
		spec.WebhookRetriesMs = new(mapped(s.WebhookRetries, time.Duration.Milliseconds))
	}
	if s.Fleet.Command != nil {
		spec.Command = &s.Fleet.Command
	}
	if s.Fleet.Env != nil {
		spec.Env = &s.Fleet.Env
	}
	return spec
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
	var wire api.Endpoint
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	fleet := Fleet{
		ScalerType: wire.ScalerType, ScalerValue: wire.ScalerValue, IdleSeconds: wire.IdleTimeout, SleepSeconds: wire.SleepTimeout,
		Driver: wire.Driver, TemplateID: wire.TemplateID, Image: wire.ImageName, Command: wire.Command, Env: wire.Env,
		GPUs: wire.GPUCount, VCPUs: wire.VCPUCount, MemoryGB: wire.MemoryInGb, ModelCache: wire.ModelCache, GPU: gpuNeedsOf(wire.Fleet),
		PauseReason: wire.PauseReason,
		Rollout:     wire.Rollout, Canary: wire.Canary,
	}
	if wire.PausedUntil != "" {
		at, err := time.Parse(time.RFC3339, wire.PausedUntil)
		if err != nil {
			return err
		}
		fleet.PausedUntil = at
	}
	*e = Endpoint{
		ID: wire.ID, Name: wire.Name,
		ExecutionTimeout: ofMillis(wire.ExecutionTimeoutMs), TTL: ofMillis(wire.TTLMs),
		Retention: ofMillis(wire.RetentionMs), SyncRetention: ofMillis(wire.SyncRetentionMs),
		Lease:          ofMillis(wire.LeaseMs),
		MaxLostWorkers: wire.MaxLostWorkers, MaxQueueBytes: wire.MaxQueueBytes, MaxQueueJobs: wire.MaxQueueJobs, RequestsPerWorker: wire.RequestsPerWorker, FailureBudget: wire.FailureBudget,
		WorkersMin: wire.WorkersMin, WorkersMax: wire.WorkersMax, StreamFormat: wire.StreamFormat, Limits: wire.Limits,
		WebhookRetries: mapped(wire.WebhookRetriesMs, ofMillis), Fleet: fleet,
		WebhookSecret: wire.WebhookSecret, Created: wire.CreatedAt, Version: wire.Version,
		Raw: bytes.Clone(data),
	}
	return nil
}

// MarshalJSON returns the answer as it came.
func (e Endpoint) MarshalJSON() ([]byte, error) { return rawOr(e.Raw) }
