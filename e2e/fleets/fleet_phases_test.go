package fleets

import (
	"fmt"
	"net/http"
	"testing"

	"flightline/shared/api"
	"flightline/shared/pod"
	"flightline/shared/testenv/program"
)

// The job whose submission started a worker says how that went; a later one of the same
// worker does not. Where workers crash, the job that waits says how often, and why.
func TestAJobTellsOfItsColdStart(t *testing.T) {
	t.Parallel()
	f, d := fleetDev(t)
	f.endpoint("cold", map[string]any{"idleTimeout": 600, "workersMax": 1})
	f.endpoint("crash", map[string]any{"env": map[string]string{asFleetWorker: "crash"}})
	waits := f.submit("crash", 1, 10, nil)[0]
	first := f.submit("cold", 1, 10, nil)
	f.completed("cold", first)
	var x api.Explanation
	f.await("the start of the job's worker", func() string {
		f.rest(http.MethodGet, "/v2/cold/explain/"+first[0], nil, &x)
		if c := x.ColdStart; c == nil || c.Phase != pod.Ready {
			return fmt.Sprintf("got %+v, want it ready", c)
		}
		return ""
	})
	if c := x.ColdStart; !c.PullingAt.IsZero() || c.StartingAt.IsZero() || c.LoadingAt.Before(c.StartingAt) || c.ReadyAt.Before(c.LoadingAt) {
		t.Errorf("got %+v, want when the process was started, ran and was ready", c)
	}
	second := f.submit("cold", 1, 10, nil)
	f.completed("cold", second)
	var warm api.Explanation
	if f.rest(http.MethodGet, "/v2/cold/explain/"+second[0], nil, &warm); warm.ColdStart != nil || warm.WorkerID != x.WorkerID {
		t.Errorf("got %+v of %s, want no cold start of %s", warm.ColdStart, warm.WorkerID, x.WorkerID)
	}
	var one api.Pod
	if f.rest(http.MethodGet, "/v1/pods/"+x.WorkerID, nil, &one); one.Startup == nil || *one.Startup != *x.ColdStart {
		t.Errorf("got %+v, want %+v also of the pod", one.Startup, x.ColdStart)
	}
	f.await("two crashes", func() string {
		f.rest(http.MethodGet, "/v2/crash/explain/"+waits, nil, &x)
		if e := x.LastWorkerError; e == nil || e.Count < 2 {
			return fmt.Sprintf("%+v", e)
		}
		return ""
	})
	d.Stop(program.StopWithin)
}
