package api

import (
	"testing"

	"flightline/shared/registry"
)

// A job that was handed out is what its status says: in the queue while no worker
// has picked it up, and after one gave it back; in progress while its record
// names a worker, also one that is gone.
func TestHealthCountsJobsAsTheirStatusSays(t *testing.T) {
	s := start(t)
	back, silent := s.submit(), s.submit()
	held := s.take()
	s.take()
	if err := held.GiveBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	statuses := map[any]float64{}
	for _, id := range []string{back, silent} {
		statuses[s.do("GET", "/ep/status/"+id, "").body["status"]]++
	}
	if statuses["IN_QUEUE"] != 1 || statuses["IN_PROGRESS"] != 1 {
		t.Fatalf("got %v, want one of each", statuses)
	}
	s.scaler(registry.Decision{})
	eventually(t, "health, scale and explain agree with the statuses", patience, func() bool {
		health, _ := s.do("GET", "/ep/health", "").body["jobs"].(map[string]any)
		scale := s.do("GET", "/ep/scale", "").body
		queue := s.explained(back).Queue
		return health["inQueue"] == 1.0 && health["inProgress"] == 1.0 && scale["queued"] == 1.0 && scale["inProgress"] == 1.0 &&
			queue != nil && queue.InQueue == 1
	})
}
