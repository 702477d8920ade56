// Package endpoint says what an endpoint is: a name to submit jobs to, and its
// settings with their defaults and bounds, such as the length of a lease, the
// retention, and the bounds of its own webhook schedule (the default schedule is in
// services/webhook). It imports the standard library only.
package endpoint

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// ErrNotFound means that no endpoint of that id exists, or it is being deleted.
var ErrNotFound = errors.New("endpoint: not found")

// ErrExists means that the id is taken.
var ErrExists = errors.New("endpoint: exists already")

// ErrBusy means that the endpoint still has jobs; deleting it needs force.
var ErrBusy = errors.New("endpoint: has jobs")

// ErrInvalid is what every FieldError unwraps to; the API answers 400.
var ErrInvalid = errors.New("endpoint: invalid")

// FieldError names the setting that is wrong, by its JSON name, and what it may be.
type FieldError struct{ Field, Problem string }

func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

// Unwrap makes errors.Is(err, ErrInvalid) hold.
func (e *FieldError) Unwrap() error { return ErrInvalid }

// Endpoint is what exists under an id. Zero durations and counts mean the
// defaults named at the field.
type Endpoint struct {
	// ID matches [A-Za-z0-9_-]{1,64} and is neither "env" nor "drain".
	ID string `json:"id"`
	// Name has at most 191 characters and need not be unique.
	Name string `json:"name"`
	// ExecutionTimeout holds for jobs that name none. 0 means 10 min; 5 s to 7 d.
	ExecutionTimeout time.Duration `json:"executionTimeout"`
	// TTL holds for jobs that name none. 0 means 24 h; 10 s to 7 d.
	TTL time.Duration `json:"ttl"`
	// Retention is how long an async result can be read. 0 means 30 min; 1 s to 7 d.
	Retention time.Duration `json:"retention"`
	// SyncRetention is the same for /runsync. 0 means 1 min; 1 s to 5 min.
	SyncRetention time.Duration `json:"syncRetention"`
	// Lease is how long a worker that fell silent keeps its job. 0 means 30 s; 10 s to 1 h.
	Lease time.Duration `json:"lease"`
	// MaxLost is how many workers an attempt may lose before it is FAILED. 0 means 3; 1 to 100.
	MaxLost int `json:"maxLost"`
	// MaxQueueBytes bounds the inputs and queue messages of jobs that wait or run,
	// in bytes. 0 means 10 GiB; 32 MiB to 1 TB.
	MaxQueueBytes int64 `json:"maxQueueBytes,omitempty"`
	// MaxQueueJobs bounds the jobs that wait or run. 0 means 1,000,000; 1 to 10⁹.
	MaxQueueJobs int64 `json:"maxQueueJobs,omitempty"`
	// RequestsPerWorker raises the rate limits by running workers. 0 means none; to 100000.
	RequestsPerWorker int `json:"requestsPerWorker"`
	// WorkersMin and WorkersMax bound the autoscaler. WorkersMax 0 means 3, or
	// WorkersMin if that is more, but with NoWorkers none at all; to 1000.
	WorkersMin int  `json:"workersMin"`
	WorkersMax int  `json:"workersMax"`
	NoWorkers  bool `json:"noWorkers,omitempty"`
	// ScalerType is QueueDelay or RequestCount, "" means the former; ScalerValue
	// is its seconds or jobs, 0 means 4; to 100000.
	ScalerType  string `json:"scalerType"`
	ScalerValue int    `json:"scalerValue"`
	// IdleTimeout is how long a worker above WorkersMin may idle before it is
	// stopped, or put to sleep. 0 means 5 s; 1 s to 1 h.
	IdleTimeout time.Duration `json:"idleTimeout"`
	// SleepTimeout is how long a worker that can sleep does so before it is stopped. 0
	// means that none is put to sleep; 1 s to 7 d.
	SleepTimeout time.Duration `json:"sleepTimeout,omitempty"`
	// SleepGPUShare is the part of each GPU that a worker keeps while it sleeps, by memory,
	// 0 to 1. Nil means 1: it keeps all that it has.
	SleepGPUShare *float64 `json:"sleepGpuShare,omitempty"`
	// Fleet says how workers are started.
	Fleet Fleet `json:"fleet,omitzero"`
	// Owner is the id of the API key that created the endpoint; "" for one made
	// without a key. It counts for the quota of that key.
	Owner string `json:"owner,omitempty"`
	// Env is set for the workers, who alone see the secrets in it.
	Env map[string]string `json:"env,omitempty"`
	// PausedUntil is when the endpoint, whose jobs wait, hands them out again
	// by itself; zero means that it is not paused. In the past it is the moment from which
	// on failures count for FailureBudget.
	PausedUntil time.Time `json:"pausedUntil,omitzero"`
	// PauseReason says why the endpoint paused itself, "" for a pause by request.
	PauseReason string `json:"pauseReason,omitempty"`
	// FailureBudget is how many jobs in a row may fail for one cause until the endpoint
	// is paused. 0 means that it never is for that; to 1000.
	FailureBudget int `json:"failureBudget,omitempty"`
	// StreamFormat decides the form of /stream: "auto" (also ""), "array" or
	// "object" (docs/design/product.md#methods-and-forms).
	StreamFormat string `json:"streamFormat"`
	// Limits overrides rate limits by operation ("run", "runsync", "status", …).
	Limits map[string]Limit `json:"limits,omitempty"`
	// Partition is the number of the streams that hold its records, payloads
	// and output. It is chosen when the endpoint is made and never changes.
	Partition int `json:"partition"`
	// WebhookSecret signs webhooks. It is made with the endpoint and shown to
	// admins only.
	WebhookSecret string `json:"webhookSecret"`
	// WebhookSecretBefore signs too, until WebhookSecretBeforeUntil: receivers have
	// that long to learn the new one. "" means no earlier secret.
	WebhookSecretBefore      string    `json:"webhookSecretBefore,omitempty"`
	WebhookSecretBeforeUntil time.Time `json:"webhookSecretOverlap,omitzero"`
	// WebhookRetries are the pauses between attempts to deliver a webhook, so
	// there is one attempt more than pauses. Nil means twice 10 s, as the
	// contract has it; at most 20, of 1 s to 24 h each.
	WebhookRetries []time.Duration `json:"webhookRetries,omitzero"`
	// Created is set when the endpoint is made.
	Created time.Time `json:"created"`
	// Version counts changes, from 1.
	Version int `json:"version"`
	// Release is the Version that changed last what workers are started from: the version
	// of a worker and of its jobs. 0 means 1 (ReleaseVersion).
	Release int `json:"release,omitempty"`
	// QueueMade means that the endpoint's queue was made: if it is missing now,
	// it was lost.
	QueueMade bool `json:"queueMade,omitempty"`
	// CanaryPercent is the share of the workers that tries a new version first, in percent.
	// 0 means none: the others are replaced at once; to 99.
	CanaryPercent int `json:"canaryPercent,omitempty"`
	// Canary is the last trial of a new version.
	Canary Canary `json:"canary,omitzero"`
	// Deleting means that the endpoint takes no more jobs and will be gone soon; Force, that
	// its jobs are cancelled for that.
	Deleting bool `json:"deleting,omitempty"`
	Force    bool `json:"force,omitempty"`
}

// ForWorkers returns what workers may read of the endpoint: what they need to run
// its jobs, and no secret.
func (e Endpoint) ForWorkers() Endpoint {
	return Endpoint{
		ID: e.ID, Name: e.Name, Lease: e.Lease, MaxLost: e.MaxLost, Partition: e.Partition,
		Created: e.Created, Version: e.Version, Release: e.Release, QueueMade: e.QueueMade, Deleting: e.Deleting,
	}
}

// Limit is one operation's rate: Requests per 10 s, and how many at once.
// 0 means no limit of that kind.
type Limit struct {
	Requests   int `json:"requests"`
	Concurrent int `json:"concurrent"`
}

// Bounds and defaults.
const (
	MaxName              = 191
	defaultRetention     = 30 * time.Minute
	defaultSyncRetention = time.Minute
	MaxSyncRetention     = 5 * time.Minute
	MinRetention         = time.Second
	MaxRetention         = 7 * 24 * time.Hour
	DefaultLease         = 30 * time.Second
	MinLease             = 10 * time.Second
	MaxLease             = time.Hour
	defaultMaxLost       = 3
	DefaultWorkersMax    = 3
	defaultMaxQueueBytes = 10 << 30
	MinMaxQueueBytes     = 32 << 20
	MaxMaxQueueBytes     = 1_000_000_000_000
	defaultMaxQueueJobs  = 1_000_000
	MaxMaxQueueJobs      = 1_000_000_000
	maxFailureBudget     = 1000
)

// maxID is the longest id, in bytes.
const maxID = 64

// reserved are words of `flightline worker` (docs/design/product.md#command-worker).
var reserved = map[string]bool{"env": true, "drain": true}

// ValidID reports whether id may name an endpoint.
func ValidID(id string) bool {
	for _, c := range []byte(id) { // every request asks; a regexp takes 20 times as long
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return len(id) > 0 && len(id) <= maxID && !reserved[id]
}

// Complete returns e with its zero settings replaced by the defaults, or a
// *FieldError if a setting is out of its bounds.
func (e Endpoint) Complete() (Endpoint, error) {
	if !ValidID(e.ID) {
		return e, &FieldError{"id", fmt.Sprintf(`must match [A-Za-z0-9_-]{1,64} and be neither "env" nor "drain", got %.80q`, e.ID)}
	}
	e.Name = cmp.Or(e.Name, e.ID)
	if len([]rune(e.Name)) > MaxName {
		return e, &FieldError{"name", fmt.Sprintf("must have at most %d characters, got %d", MaxName, len([]rune(e.Name)))}
	}
	if strings.ContainsFunc(e.Name, unicode.IsControl) {
		return e, &FieldError{"name", "must hold no control characters"}
	}
	for _, d := range e.durations() {
		*d.value = cmp.Or(*d.value, d.standard)
		if *d.value < d.least || *d.value > d.most {
			return e, &FieldError{d.field, fmt.Sprintf("must be between %d and %d milliseconds, got %d", d.least.Milliseconds(), d.most.Milliseconds(), d.value.Milliseconds())}
		}
	}
	if err := e.checkWebhookRetries(); err != nil {
		return e, err
	}
	e, err := e.completeCounts()
	if err != nil {
		return e, err
	}
	return e.completeFleet()
}

type durationBound struct {
	field                 string
	value                 *time.Duration
	standard, least, most time.Duration
}

func (e *Endpoint) durations() []durationBound {
	const day = 24 * time.Hour
	return []durationBound{
		{"executionTimeoutMs", &e.ExecutionTimeout, 10 * time.Minute, 5 * time.Second, 7 * day},
		{"ttlMs", &e.TTL, day, 10 * time.Second, 7 * day},
		{"retentionMs", &e.Retention, defaultRetention, MinRetention, MaxRetention},
		{"syncRetentionMs", &e.SyncRetention, defaultSyncRetention, MinRetention, MaxSyncRetention},
		{"leaseMs", &e.Lease, DefaultLease, MinLease, MaxLease},
	}
}

// QueueBytesLimit is MaxQueueBytes with its default.
func (e Endpoint) QueueBytesLimit() int64 { return cmp.Or(e.MaxQueueBytes, defaultMaxQueueBytes) }

// QueueJobsLimit is MaxQueueJobs with its default.
func (e Endpoint) QueueJobsLimit() int64 { return cmp.Or(e.MaxQueueJobs, defaultMaxQueueJobs) }

func (e Endpoint) completeCounts() (Endpoint, error) {
	if e.MaxQueueBytes = e.QueueBytesLimit(); e.MaxQueueBytes < MinMaxQueueBytes || e.MaxQueueBytes > MaxMaxQueueBytes {
		return e, &FieldError{"maxQueueBytes", fmt.Sprintf("must be between %d and %d, got %d", int64(MinMaxQueueBytes), int64(MaxMaxQueueBytes), e.MaxQueueBytes)}
	}
	if e.MaxQueueJobs = e.QueueJobsLimit(); e.MaxQueueJobs < 1 || e.MaxQueueJobs > MaxMaxQueueJobs {
		return e, &FieldError{"maxQueueJobs", fmt.Sprintf("must be between 1 and %d, got %d", MaxMaxQueueJobs, e.MaxQueueJobs)}
	}
	e.MaxLost = cmp.Or(e.MaxLost, defaultMaxLost)
	switch {
	case e.WorkersMax != 0:
		e.NoWorkers = false
	case !e.NoWorkers:
		e.WorkersMax = max(DefaultWorkersMax, e.WorkersMin)
	}
	e.StreamFormat = cmp.Or(e.StreamFormat, "auto")
	for _, c := range []struct {
		field              string
		value, least, most int
	}{
		{"maxLostWorkers", e.MaxLost, 1, 100},
		{"requestsPerWorker", e.RequestsPerWorker, 0, 100_000},
		{"rollout", e.CanaryPercent, 0, maxCanaryPercent},
		{"failureBudget", e.FailureBudget, 0, maxFailureBudget},
		{"workersMax", e.WorkersMax, 0, 1000},
		{"workersMin", e.WorkersMin, 0, e.WorkersMax},
		{"partition", e.Partition, 0, 1023},
	} {
		if c.value < c.least || c.value > c.most {
			return e, &FieldError{c.field, fmt.Sprintf("must be between %d and %d, got %d", c.least, c.most, c.value)}
		}
	}
	switch e.StreamFormat {
	case "auto", "array", "object":
	default:
		return e, &FieldError{"streamFormat", fmt.Sprintf(`must be "auto", "array" or "object", got %.50q`, e.StreamFormat)}
	}
	for op, l := range e.Limits {
		if l.Requests < 0 || l.Concurrent < 0 {
			return e, &FieldError{"limits." + op, "must not be negative"}
		}
	}
	return e, nil
}
