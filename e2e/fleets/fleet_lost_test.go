package fleets

import (
	"net/http"
	"syscall"
	"testing"

	"flightline/e2e/site"
)

// TestALostWorkersJobsStartAnother kills the only worker of a fleet with the
// default scaler while it runs a job. Beside it a second endpoint idles.
func TestALostWorkersJobsStartAnother(t *testing.T) {
	t.Parallel()
	f, d := fleetDev(t)
	f.endpoint("lost", map[string]any{"leaseMs": 10_000})
	f.endpoint("beside", map[string]any{"leaseMs": 10_000})
	job := f.submit("lost", 1, 3000, nil)[0]
	f.running("lost", job)
	f.killWorkers(d, "lost")
	by := f.completed("lost", []string{job})
	if _, first := by["lost-0-1"]; first {
		t.Errorf("job %s: got it done by the worker that was killed: %v", job, by)
	}
	var got struct{ Retries int }
	if f.rest(http.MethodGet, "/v2/lost/status/"+job, nil, &got); got.Retries != 1 {
		t.Errorf("job %s: got %d retries, want 1", job, got.Retries)
	}
	f.size("lost", 0)
	if _, all := f.pods("beside"); len(all) > 0 {
		t.Errorf("the endpoint beside: got %d workers, want none", len(all))
	}
	d.Stop(site.StopWithin)
}

// running waits until the job is IN_PROGRESS.
func (f *fleetSite) running(endpoint, job string) {
	f.t.Helper()
	f.status(endpoint, job, "IN_PROGRESS")
}

// status waits until the job has it.
func (f *fleetSite) status(endpoint, job, want string) {
	f.t.Helper()
	f.await("job "+job+" "+want, func() string {
		var got struct{ Status string }
		if f.rest(http.MethodGet, "/v2/"+endpoint+"/status/"+job, nil, &got); got.Status == want {
			return ""
		}
		return got.Status
	})
}

// killWorkers sends SIGKILL to the workers of an endpoint that d runs.
func (f *fleetSite) killWorkers(d *site.Daemon, endpoint string) {
	f.t.Helper()
	killed := 0
	for pid, parent := range fleetProcesses(f.t, endpoint) {
		if parent != d.Cmd.Process.Pid {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			f.t.Fatal(err)
		}
		killed++
	}
	if killed == 0 {
		f.t.Fatalf("no worker of %s to kill", endpoint)
	}
}
