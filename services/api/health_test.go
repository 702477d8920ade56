package api

import (
	"testing"

	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// A job that was handed out is what its status says: in the queue while no worker
// has picked it up, and after one gave it back; in progress while its record
// names a worker, also a worker that is gone.
func TestHealthCountsJobsAsTheirStatusSays(t *testing.T) {
	t.Parallel()
	s := start(t)
	back, silent := s.submit(), s.submit()
	held := s.take()
	s.take()
	if err := held.Release(t.Context()); err != nil {
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
	testenv.Eventually(t, "health, scale and explain agree with the statuses", func() bool {
		health, _ := s.do("GET", "/ep/health", "").body["jobs"].(map[string]any)
		scale := s.do("GET", "/ep/scale", "").body
		queue := s.explained(back).Queue
		return health["inQueue"] == 1.0 && health["inProgress"] == 1.0 && scale["queued"] == 1.0 && scale["inProgress"] == 1.0 &&
			queue != nil && queue.InQueue == 1
	})
}

// The last heartbeat of a worker may be older than the end of its job.
func TestNoMoreWorkersRunThanJobsAreInProgress(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit()
	s.take()
	for _, id := range []string{"a", "b"} {
		if err := s.registry.Workers.Beat(t.Context(), registry.Worker{ID: id, Endpoint: "ep", State: registry.WorkerRunning}); err != nil {
			t.Fatal(err)
		}
	}
	var got map[string]any
	testenv.Eventually(t, "one worker runs, and the other is idle", func() bool {
		got, _ = s.do("GET", "/ep/health", "").body["workers"].(map[string]any)
		return got["running"] == 1.0 && got["idle"] == 1.0 && got["ready"] == 1.0
	})
}
