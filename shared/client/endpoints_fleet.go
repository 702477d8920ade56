package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Fleet is how an endpoint's workers are started, and how many there may be.
type Fleet struct {
	// ScalerType is "QUEUE_DELAY" or "REQUEST_COUNT", ScalerValue its seconds or jobs.
	ScalerType  string `json:"scalerType"`
	ScalerValue int    `json:"scalerValue"`
	// IdleSeconds is how long a worker that is not needed may idle.
	IdleSeconds int `json:"idleTimeout"`
	// Driver is "process", "docker" or "external".
	Driver     string   `json:"driver"`
	TemplateID string   `json:"templateId"`
	Image      string   `json:"imageName"`
	Command    []string `json:"command"`
	// Env has "***" in place of secrets; sent back, that keeps the value.
	Env map[string]string `json:"env"`
	// GPUs, VCPUs and MemoryGB are one worker's limits, 0 for none.
	GPUs     int     `json:"gpuCount"`
	VCPUs    float64 `json:"vcpuCount"`
	MemoryGB float64 `json:"memoryInGb"`
	// PausedUntil is zero if the endpoint is not paused.
	PausedUntil time.Time `json:"pausedUntil"`
}

// FleetSpec is what to set of a Fleet. "" and nil mean the default when
// creating, and no change when updating.
type FleetSpec struct {
	ScalerType  string `json:"scalerType,omitempty"`
	ScalerValue *int   `json:"scalerValue,omitempty"`
	// IdleSeconds is 1 to 3600.
	IdleSeconds *int   `json:"idleTimeout,omitempty"`
	Driver      string `json:"driver,omitempty"`
	TemplateID  string `json:"templateId,omitempty"`
	Image       string `json:"imageName,omitempty"`
	// Command and Env replace what the endpoint had; empty ones take it away.
	Command  []string          `json:"command,omitzero"`
	Env      map[string]string `json:"env,omitzero"`
	GPUs     *int              `json:"gpuCount,omitempty"`
	VCPUs    *float64          `json:"vcpuCount,omitempty"`
	MemoryGB *float64          `json:"memoryInGb,omitempty"`
}

// Pause makes the endpoint hand out no jobs for this long, 1 s to 365 days;
// 0 means until Resume, at the latest after 365 days. Jobs are accepted meanwhile.
func (e Endpoints) Pause(ctx context.Context, id string, length time.Duration) (*Endpoint, error) {
	body := map[string]int64{}
	if length != 0 {
		body["durationMs"] = length.Milliseconds()
	}
	return one[Endpoint](ctx, e.c, call{method: http.MethodPost, path: v1("endpoints", id, "pause"), body: body})
}

// Resume ends a pause; that there is none is no error.
func (e Endpoints) Resume(ctx context.Context, id string) (*Endpoint, error) {
	return one[Endpoint](ctx, e.c, call{method: http.MethodPost, path: v1("endpoints", id, "resume")})
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
	query := url.Values{}
	if limit != 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	var list []ScalingDecision
	err := e.c.do(ctx, call{method: http.MethodGet, path: v1("endpoints", id, "scaling"), query: query}, &list)
	return list, err
}
