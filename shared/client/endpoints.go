package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// Endpoints manages endpoints. Each call needs a key with the control
// permission.
type Endpoints struct{ c *Client }

// Endpoints returns the calls that manage endpoints.
func (c *Client) Endpoints() Endpoints { return Endpoints{c} }

// Endpoint is a name to submit jobs to, and its settings.
type Endpoint struct {
	ID   string
	Name string
	// ExecutionTimeout and TTL hold for jobs whose policy names none.
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
	WorkersMin        int
	WorkersMax        int
	StreamFormat      string
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
type Limit struct {
	Requests   int `json:"requests"`
	Concurrent int `json:"concurrent"`
}

// EndpointSpec is what to make or change. Zero durations and "", and nil, mean
// the default when creating, and no change when updating; the bounds are those
// of the API.
type EndpointSpec struct {
	// ID is chosen by the server if it is "". It cannot change.
	ID                string
	Name              string
	ExecutionTimeout  time.Duration
	TTL               time.Duration
	Retention         time.Duration
	SyncRetention     time.Duration
	Lease             time.Duration
	MaxLostWorkers    *int
	MaxQueueBytes     int64
	MaxQueueJobs      int64
	RequestsPerWorker *int
	WorkersMin        *int
	WorkersMax        *int
	StreamFormat      string
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
	return one[Endpoint](ctx, e.c, call{method: http.MethodPost, path: v1("endpoints"), body: wireEndpoint(spec)})
}

// Get returns the endpoint.
func (e Endpoints) Get(ctx context.Context, id string) (*Endpoint, error) {
	return one[Endpoint](ctx, e.c, call{method: http.MethodGet, path: v1("endpoints", id)})
}

// List returns all endpoints.
func (e Endpoints) List(ctx context.Context) ([]Endpoint, error) {
	var list []Endpoint
	err := e.c.do(ctx, call{method: http.MethodGet, path: v1("endpoints")}, &list)
	return list, err
}

// Update changes the settings that spec names.
func (e Endpoints) Update(ctx context.Context, id string, spec EndpointSpec) (*Endpoint, error) {
	spec.ID = ""
	return one[Endpoint](ctx, e.c, call{method: http.MethodPatch, path: v1("endpoints", id), body: wireEndpoint(spec)})
}

// Delete removes the endpoint. One that has jobs is kept and an Error
// returned, unless force says that they are to be cancelled.
func (e Endpoints) Delete(ctx context.Context, id string, force bool) error {
	var query url.Values
	if force {
		query = url.Values{"force": {"true"}}
	}
	return e.c.do(ctx, call{method: http.MethodDelete, path: v1("endpoints", id), query: query}, nil)
}
