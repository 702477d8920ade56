package fleets

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"flightline/e2e/site"
)

// TestAStopEndsTheJobsOfItsWorkersOrGivesThemBack stops a dev whose workers,
// which die of SIGTERM, are busy: what can be ended within the grace is, the
// rest waits again at once, and no worker counts as lost.
func TestAStopEndsTheJobsOfItsWorkersOrGivesThemBack(t *testing.T) {
	t.Parallel()
	s := site.New(t)
	f, d := fleetDevOf(t, s, "FLIGHTLINE_FLEET_GRACE=8s")
	f.endpoint("ep", map[string]any{"scalerType": "REQUEST_COUNT", "maxLostWorkers": 1, "leaseMs": 60_000})
	long := f.submit("ep", 1, 300_000, nil)[0]
	f.held("ep", long)
	short := f.submit("ep", 1, 3000, nil)[0]
	f.held("ep", short)
	d.Terminate()
	f.await("/readyz that says so while the workers end", func() string {
		if code, err := site.Readyz(t.Context(), f.url); code != http.StatusServiceUnavailable {
			return fmt.Sprint(code, err)
		}
		return ""
	})
	d.Ends(8*time.Second + 2*site.StopWithin)

	f, d = fleetDevOf(t, s, "FLIGHTLINE_DRIVERS=none")
	for job, want := range map[string]string{short: "COMPLETED", long: "IN_QUEUE"} {
		f.await("job "+job+" "+want, func() string {
			var got struct{ Status string }
			if f.rest(http.MethodGet, "/v2/ep/status/"+job, nil, &got); got.Status == want {
				return ""
			}
			return got.Status
		})
	}
	f.size("ep", 0)
	d.Stop(site.StopWithin)
}

// held waits until a worker says that it has the job.
func (f *fleetSite) held(id, job string) {
	f.t.Helper()
	f.await("worker that holds "+job, func() string {
		workers, err := f.registry.Workers.List(f.t.Context(), id)
		for _, w := range workers {
			if slices.Contains(w.Running, job) {
				return ""
			}
		}
		return fmt.Sprint(workers, err)
	})
}
