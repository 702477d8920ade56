package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// admitted are the endpoints that have series of their own.
type admitted struct {
	mu  sync.RWMutex
	ids map[string]bool
}

// label is the endpoint's id, or otherEndpoints if there are too many.
func (a *admitted) label(endpoint string) string {
	a.mu.RLock()
	known, full := a.ids[endpoint], len(a.ids) >= MaxEndpoints
	a.mu.RUnlock()
	switch {
	case known:
		return endpoint
	case full:
		return otherEndpoints
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.ids) >= MaxEndpoints {
		return otherEndpoints
	}
	a.ids[endpoint] = true
	return endpoint
}

// retain forgets the endpoints that are not in alive and returns them.
func (a *admitted) retain(alive map[string]bool) (gone []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id := range a.ids {
		if !alive[id] {
			delete(a.ids, id)
			gone = append(gone, id)
		}
	}
	return gone
}

// Retain removes the series of all endpoints that are not in alive.
func (r *Registry) Retain(alive map[string]bool) {
	for _, id := range r.endpoints.retain(alive) {
		labels := prometheus.Labels{byEndpoint: id}
		for _, vec := range []*prometheus.CounterVec{r.submitted, r.stale, r.finished, r.redeliveries} {
			vec.DeletePartialMatch(labels)
		}
		r.delay.DeletePartialMatch(labels)
		r.execution.DeletePartialMatch(labels)
	}
}
