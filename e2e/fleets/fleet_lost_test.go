package fleets

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"flightline/shared/testenv/program"
)

// TestALostWorkersJobsStartAnother kills the only worker of a fleet with the
// default scaler while it runs a job. Its driver sees that: the job runs elsewhere long before
// its lease is over. Beside it a second endpoint idles.
func TestALostWorkersJobsStartAnother(t *testing.T) {
	t.Parallel()
	f, d := fleetDev(t)
	killed := filepath.Join(t.TempDir(), "killed") // till then the job runs
	f.endpoint("lost", map[string]any{"leaseMs": 3_600_000, "env": map[string]string{asFleetWorker: "yes", "FLEET_TEST_UNTIL": killed}})
	f.endpoint("beside", map[string]any{"leaseMs": 10_000})
	job := f.submit("lost", 1, 0, nil)[0]
	f.held("lost", job)
	f.killWorkers(d, "lost")
	if err := os.WriteFile(killed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
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
	d.Stop(program.StopWithin)
}

// TestManyLostWorkersAtOnceStartOthers kills all workers of two fleets, one of
// which has reached its maximum, while jobs run and wait.
func TestManyLostWorkersAtOnceStartOthers(t *testing.T) {
	t.Parallel()
	f, d := fleetDev(t)
	jobs, killed := map[string][]string{}, filepath.Join(t.TempDir(), "killed") // till then jobs run
	for id, most := range map[string]int{"three": 3, "one": 1} {
		f.endpoint(id, map[string]any{
			"leaseMs": 10_000, "workersMax": most, "env": map[string]string{asFleetWorker: "yes", "FLEET_TEST_UNTIL": killed},
		})
		jobs[id] = f.submit(id, 3, 0, nil)
		f.await("workers of "+id+" at work", func() string {
			var got struct{ Workers struct{ Running int } }
			if f.rest(http.MethodGet, "/v2/"+id+"/health", nil, &got); got.Workers.Running == most {
				return ""
			}
			return fmt.Sprint(got, f.decisions(id))
		})
	}
	for id := range jobs {
		f.killWorkers(d, id)
	}
	if err := os.WriteFile(killed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for id := range jobs {
		f.completed(id, jobs[id])
		f.size(id, 0)
	}
	d.Stop(program.StopWithin)
}

// TestALostWorkerOfItsOwnerIsAskedForAgain kills a worker that its owner
// started: /scale, which the owner goes by, asks for another.
func TestALostWorkerOfItsOwnerIsAskedForAgain(t *testing.T) {
	t.Parallel()
	s := program.New(t)
	f, d := fleetDevOf(t, s)
	f.endpoint("own", map[string]any{"driver": "external", "command": nil, "env": nil, "leaseMs": 10_000})
	first := s.Start("worker", "own", "--", "sleep", "600")
	first.Line(program.WorkerReady)
	job := f.submit("own", 1, 0, nil)[0]
	f.held("own", job)
	first.Kill()
	// A number of before is none that was asked for now.
	f.rest(http.MethodPatch, "/v1/endpoints/own", map[string]any{"workersMax": 0}, nil)
	f.wanted("own", 0)
	f.rest(http.MethodPatch, "/v1/endpoints/own", map[string]any{"workersMax": 3}, nil)
	f.await("no worker", func() string {
		workers, err := f.registry.Workers.List(t.Context(), "own")
		if err == nil && len(workers) == 0 {
			return ""
		}
		return fmt.Sprint(workers, err)
	})
	f.wanted("own", 1)
	var why struct{ Reason string }
	f.rest(http.MethodGet, "/v2/own/explain/"+job, nil, &why)
	if !strings.HasPrefix(why.Reason, "waiting for a worker to take it over: worker ") {
		t.Errorf("explain: got %q, want that its worker is lost", why.Reason)
	}
	f.counts("own", 0, 1)
	d.Stop(program.StopWithin)
}

// wanted waits until /scale wants so many workers.
func (f *fleetSite) wanted(endpoint string, n int) {
	f.t.Helper()
	f.await(fmt.Sprintf("/scale of %s wants %d", endpoint, n), func() string {
		var got struct {
			Known  bool
			Wanted int
			Text   string
		}
		if f.rest(http.MethodGet, "/v2/"+endpoint+"/scale", nil, &got); got.Known && got.Wanted == n {
			return ""
		}
		return fmt.Sprintf("%+v\n%s", got, f.decisions(endpoint))
	})
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
func (f *fleetSite) killWorkers(d *program.Process, endpoint string) {
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
