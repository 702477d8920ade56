package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/limit"
	"flightline/shared/web"
)

// endpointBody makes or changes an endpoint. What is null or missing stays as
// it is, 0 and "" mean the default, and unknown fields are RunPod's: they pass.
type endpointBody struct {
	ID                 *string                    `json:"id"`
	Name               *string                    `json:"name"`
	ExecutionTimeoutMs *int64                     `json:"executionTimeoutMs"`
	TTLMs              *int64                     `json:"ttlMs"`
	LeaseMs            *int64                     `json:"leaseMs"`
	RetentionMs        *int64                     `json:"retentionMs"`
	SyncRetentionMs    *int64                     `json:"syncRetentionMs"`
	MaxLostWorkers     *int                       `json:"maxLostWorkers"`
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
	setMillis(&e.ExecutionTimeout, b.ExecutionTimeoutMs)
	setMillis(&e.TTL, b.TTLMs)
	setMillis(&e.Lease, b.LeaseMs)
	setMillis(&e.Retention, b.RetentionMs)
	setMillis(&e.SyncRetention, b.SyncRetentionMs)
	set(&e.MaxLost, b.MaxLostWorkers)
	set(&e.RequestsPerWorker, b.RequestsPerWorker)
	set(&e.WorkersMin, b.WorkersMin)
	set(&e.WorkersMax, b.WorkersMax)
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
	Name   string   `json:"name"`
	Scopes []string `json:"scopes"`
}

// bind reads the body, whatever its content type says. An error names the
// field that is wrong. What it returns shares no memory with the request.
func bind[T any](c *fiber.Ctx) (T, error) {
	var body T
	raw := c.Request().Body()
	err := json.Unmarshal(raw, &body)
	if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if mistyped.Field == "" {
			return body, web.Errorf(web.InvalidRequest, "the body must be a JSON object")
		}
		return body, web.Errorf(web.InvalidRequest, "%s must be %s", mistyped.Field, wanted(mistyped.Type))
	}
	if err != nil {
		return body, web.Errorf(web.InvalidRequest, "the body is not valid JSON")
	}
	if isNull(raw) {
		return body, web.Errorf(web.InvalidRequest, "the body must be a JSON object")
	}
	return body, nil
}

// wanted says in JSON's words what a field takes.
func wanted(t reflect.Type) string {
	switch t.Kind() { //nolint:exhaustive // no other kind is in a body
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "an array"
	default:
		return "an object"
	}
}

func isNull(raw []byte) bool { return string(bytes.TrimSpace(raw)) == "null" }
