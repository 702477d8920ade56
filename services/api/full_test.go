package api

import (
	"strings"
	"testing"
	"time"

	"flightline/shared/endpoint"
)

// A queue that holds as many bytes as it may refuses jobs, with what to know
// about it; the jobs it holds can be read, and end.
func TestAFullQueueIsA429(t *testing.T) {
	t.Parallel()
	s := start(t)
	e, err := s.registry.Endpoints.Update(t.Context(), "ep", func(e endpoint.Endpoint) (endpoint.Endpoint, error) {
		e.MaxQueueBytes = endpoint.MinMaxQueueBytes
		return e, nil
	})
	if err != nil || e.MaxQueueBytes != endpoint.MinMaxQueueBytes {
		t.Fatal(e, err)
	}
	body := `{"input":{"text":"` + strings.Repeat("x", 8<<20) + `"}}`
	var first string
	var got answer
	for end := time.Now().Add(patience); got.status != 429; {
		if got = s.do("POST", "/ep/run", body); got.status == 200 && first == "" {
			first = got.id()
		}
		if time.Now().After(end) {
			t.Fatalf("got %d %s, want 429", got.status, got.raw)
		}
	}
	if got.body["code"] != "too_many_requests" || !strings.Contains(got.raw, "the queue of endpoint ep is full") ||
		!strings.Contains(got.raw, "maxQueueBytes is 33554432") || got.header.Get("Retry-After") == "" {
		t.Errorf("got %s with %v, want the endpoint, the limit and Retry-After", got.raw, got.header)
	}
	if got := s.do("GET", "/ep/status/"+first, ""); got.body["status"] != "IN_QUEUE" {
		t.Errorf("the first job: got %s, want it in the queue", got.raw)
	}
}
