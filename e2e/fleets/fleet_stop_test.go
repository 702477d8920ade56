package fleets

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"flightline/shared/testenv/program"
)

// TestAStopEndsTheJobsOfItsWorkersOrGivesThemBack stops a dev whose workers,
// which die of SIGTERM, are busy: what can be ended within the grace is, the
// rest waits again at once, and no worker counts as lost. The next dev starts a
// worker for it.
func TestAStopEndsTheJobsOfItsWorkersOrGivesThemBack(t *testing.T) {
	t.Parallel()
	s := program.New(t)
	f, d := fleetDevOf(t, s, "FLIGHTLINE_WORKER_SHUTDOWN_TIMEOUT=8s")
	f.endpoint("ep", map[string]any{"maxLostWorkers": 1, "leaseMs": 10_000})
	long := f.submit("ep", 1, 300_000, nil)[0]
	f.held("ep", long)
	short := f.submit("ep", 1, 3000, nil)[0]
	f.held("ep", short)
	d.Terminate()
	f.await("/readyz that says so while the workers end", func() string {
		if code, err := program.Readyz(t.Context(), f.url); code != http.StatusServiceUnavailable {
			return fmt.Sprint(code, err)
		}
		return ""
	})
	d.Ends(8*time.Second + 2*program.StopWithin)

	f, d = fleetDevOf(t, s, "FLIGHTLINE_DRIVERS=none")
	f.status("ep", short, "COMPLETED")
	f.status("ep", long, "IN_QUEUE")
	f.counts("ep", 1, 0)
	f.size("ep", 0)
	d.Stop(program.StopWithin)

	f, d = fleetDevOf(t, s, "FLIGHTLINE_DRIVERS=process", "FLIGHTLINE_WORKER_SHUTDOWN_TIMEOUT=1s")
	f.held("ep", long)
	f.running("ep", long)
	f.counts("ep", 0, 1)
	d.Terminate()
	d.Ends(time.Second + 2*program.StopWithin)
}

// counts waits until /health counts so many jobs.
func (f *fleetSite) counts(endpoint string, inQueue, inProgress int) {
	f.t.Helper()
	f.await("/health of "+endpoint, func() string {
		var got struct {
			Jobs struct{ InQueue, InProgress int }
		}
		f.rest(http.MethodGet, "/v2/"+endpoint+"/health", nil, &got)
		if got.Jobs.InQueue == inQueue && got.Jobs.InProgress == inProgress {
			return ""
		}
		return fmt.Sprintf("%+v, want %d in the queue and %d in progress", got.Jobs, inQueue, inProgress)
	})
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
