package limit

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxQuota is the largest value of a quota.
const maxQuota = 1_000_000_000

// defaultEndpoints is Quota.Endpoints of a key that has none of its own.
const defaultEndpoints = 2000

// Quota bounds what one API key may ask for, at all endpoints together. A nil
// field means the default, 0 no bound, and the largest value is 10⁹.
type Quota struct {
	// Requests to the queue API in Span. nil means that of the server's Table.
	Requests *int `json:"requests,omitempty"`
	// Concurrent requests to the queue API. nil means that of the server's Table.
	Concurrent *int `json:"concurrent,omitempty"`
	// Endpoints that the key created and that exist. nil means 2000.
	Endpoints *int `json:"endpoints,omitempty"`
}

// quotaFields are the names of a quota's fields, sorted.
var quotaFields = []string{"concurrent", "endpoints", "requests"}

// Bounds are those of the key's requests; base holds where the quota is silent.
func (q Quota) Bounds(base Bounds) Bounds {
	return Bounds{Requests: or(q.Requests, base.Requests), Concurrent: or(q.Concurrent, base.Concurrent)}
}

// MaxEndpoints is how many endpoints the key may have created; 0 means no bound.
func (q Quota) MaxEndpoints() int { return or(q.Endpoints, defaultEndpoints) }

func or(own *int, standard int) int {
	if own == nil {
		return standard
	}
	return *own
}

// field returns the place of the field, nil for an unknown name.
func (q *Quota) field(name string) **int {
	switch name {
	case "requests":
		return &q.Requests
	case "concurrent":
		return &q.Concurrent
	case "endpoints":
		return &q.Endpoints
	}
	return nil
}

// Check returns an error that names the field, its value and the bounds.
func (q Quota) Check() error {
	for _, name := range quotaFields {
		if n := *q.field(name); n != nil && (*n < 0 || *n > maxQuota) {
			return fmt.Errorf("quota.%s must be between 0 and %d, got %d", name, maxQuota, *n)
		}
	}
	return nil
}

// QuotaChange has new values for fields of a Quota; nil means the default.
type QuotaChange map[string]*int

// Apply returns q with the change. Errors name the field, its value and what is
// allowed.
func (c QuotaChange) Apply(q Quota) (Quota, error) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		at := q.field(name)
		if at == nil {
			return Quota{}, fmt.Errorf("quota.%s is unknown: must be of %s", name, strings.Join(quotaFields, ", "))
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
		for _, name := range quotaFields {
			c[name] = nil
		}
		return c, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(part, "=")
		if !found || !slices.Contains(quotaFields, name) {
			return nil, fmt.Errorf("%q must be FIELD=NUMBER, with a field of %s", part, strings.Join(quotaFields, ", "))
		}
		if _, twice := c[name]; twice {
			return nil, fmt.Errorf("%s is given twice", name)
		}
		c[name] = nil
		if value == "default" {
			continue
		}
		n, err := strconv.Atoi(value)
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
	for _, name := range quotaFields {
		if n := *q.field(name); n != nil {
			parts = append(parts, fmt.Sprintf("%s=%d", name, *n))
		}
	}
	return strings.Join(parts, ",")
}
