package ratelimit

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The largest values of a quota.
const (
	maxQuota        = 1_000_000_000
	maxWaitingBytes = 1_000_000_000_000
)

// What holds for a key without a quota of its own.
const (
	defaultEndpoints    = 2000
	defaultWaitingBytes = 10 << 30
	defaultWaitingJobs  = 1_000_000
)

// Quota bounds what one API key may ask for, at all endpoints together. A nil
// field means the default, 0 no bound, and the largest value is 10⁹, or 10¹² for
// WaitingBytes.
type Quota struct {
	// Requests to the queue API in Span. nil means that of the server's Table.
	Requests *int64 `json:"requests,omitempty"`
	// Concurrent requests to the queue API. nil means that of the server's Table.
	Concurrent *int64 `json:"concurrent,omitempty"`
	// Endpoints that the key created and that exist. nil means 2000.
	Endpoints *int64 `json:"endpoints,omitempty"`
	// WaitingBytes are the inputs of jobs that the key submitted and that wait or
	// run. nil means 10 GiB.
	WaitingBytes *int64 `json:"waitingBytes,omitempty"`
	// WaitingJobs are those jobs. nil means 1,000,000.
	WaitingJobs *int64 `json:"waitingJobs,omitempty"`
}

// Bounds are those of the key's requests; base holds where the quota is silent.
func (q Quota) Bounds(base Bounds) Bounds {
	return Bounds{Requests: int(or(q.Requests, int64(base.Requests))), Concurrent: int(or(q.Concurrent, int64(base.Concurrent)))}
}

// MaxEndpoints is how many endpoints the key may have created; 0 means no bound.
func (q Quota) MaxEndpoints() int { return int(or(q.Endpoints, defaultEndpoints)) }

// MaxWaiting is how many jobs of the key may wait or run, and how many bytes their
// inputs may have; 0 means no bound.
func (q Quota) MaxWaiting() (jobs, bytes int64) {
	return or(q.WaitingJobs, defaultWaitingJobs), or(q.WaitingBytes, defaultWaitingBytes)
}

func or(own *int64, standard int64) int64 {
	if own == nil {
		return standard
	}
	return *own
}

// quotaFields are the fields of a quota by their names, sorted.
var quotaFields = []quotaField{
	{"concurrent", maxQuota, func(q *Quota) **int64 { return &q.Concurrent }},
	{"endpoints", maxQuota, func(q *Quota) **int64 { return &q.Endpoints }},
	{"requests", maxQuota, func(q *Quota) **int64 { return &q.Requests }},
	{"waitingBytes", maxWaitingBytes, func(q *Quota) **int64 { return &q.WaitingBytes }},
	{"waitingJobs", maxQuota, func(q *Quota) **int64 { return &q.WaitingJobs }},
}

type quotaField struct {
	name string
	max  int64
	of   func(*Quota) **int64
}

// field returns the place of the field, nil for an unknown name.
func (q *Quota) field(name string) **int64 {
	for _, f := range quotaFields {
		if f.name == name {
			return f.of(q)
		}
	}
	return nil
}

// fieldNames are the names of all fields, for errors.
func fieldNames() string {
	var names []string
	for _, f := range quotaFields {
		names = append(names, f.name)
	}
	return strings.Join(names, ", ")
}

// Check returns an error that names the field, its value and the bounds.
func (q Quota) Check() error {
	for _, f := range quotaFields {
		if n := *f.of(&q); n != nil && (*n < 0 || *n > f.max) {
			return fmt.Errorf("quota.%s must be between 0 and %d, got %d", f.name, f.max, *n)
		}
	}
	return nil
}

// QuotaChange has new values for fields of a Quota; nil means the default.
type QuotaChange map[string]*int64

// Apply returns q with the change. Errors name the field, its value and what is
// allowed.
func (c QuotaChange) Apply(q Quota) (Quota, error) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		at := q.field(name)
		if at == nil {
			return Quota{}, fmt.Errorf("quota.%s is unknown: must be of %s", name, fieldNames())
		}
		*at = c[name]
	}
	return q, q.Check()
}

// ParseQuotaChange reads "requests=500,concurrent=default", in any order and with
// any of the fields. "default" alone names all fields. Errors name the field, its
// value and what is allowed.
func ParseQuotaChange(text string) (QuotaChange, error) {
	c := QuotaChange{}
	if text == "default" {
		for _, f := range quotaFields {
			c[f.name] = nil
		}
		return c, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(part, "=")
		if !found || new(Quota).field(name) == nil {
			return nil, fmt.Errorf("%q must be FIELD=NUMBER, with a field of %s", part, fieldNames())
		}
		if _, twice := c[name]; twice {
			return nil, fmt.Errorf("%s is given twice", name)
		}
		c[name] = nil
		if value == "default" {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s must be a whole number or default, got %q", name, value)
		}
		c[name] = &n
	}
	_, err := c.Apply(Quota{})
	return c, err
}

// ParseQuota reads "requests=500,concurrent=20,endpoints=3", as ParseQuotaChange.
func ParseQuota(text string) (Quota, error) {
	c, err := ParseQuotaChange(text)
	if err != nil {
		return Quota{}, err
	}
	return c.Apply(Quota{})
}

// String is the quota as ParseQuota reads it; "" for the default.
func (q Quota) String() string {
	var parts []string
	for _, f := range quotaFields {
		if n := *f.of(&q); n != nil {
			parts = append(parts, fmt.Sprintf("%s=%d", f.name, *n))
		}
	}
	return strings.Join(parts, ",")
}
