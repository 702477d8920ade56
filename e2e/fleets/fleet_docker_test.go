package fleets

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"flightline/shared/pod"
	"flightline/shared/testenv/program"
)

func sameNames(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// TestAFleetOfContainers is about dev and the driver docker: a burst, a pod
// beside it, and an engine that is killed.
func TestAFleetOfContainers(t *testing.T) {
	t.Parallel()
	e := newEngine(t, "vfs")
	f, d := fleetDev(t, "FLIGHTLINE_DRIVERS=docker", "FLIGHTLINE_DOCKER_HOST="+e.address())
	const image = "fleetworker:1"
	e.image(image, map[string]string{"/worker": f.worker}, "/worker")
	f.endpoint("ep", map[string]any{"driver": "docker", "imageName": image, "command": nil})
	low := f.submit("ep", 2, 10, map[string]any{"lowPriority": true})

	var made podView
	f.rest(http.MethodPost, "/v1/pods", map[string]any{"imageName": image, "env": map[string]string{"RUNPOD_PING_INTERVAL": "60000"}}, &made)
	e.runs(made.ID) // and none for low priority alone
	f.rest(http.MethodPost, "/v1/pods/"+made.ID+"/stop", nil, nil)
	e.runs()
	f.rest(http.MethodPost, "/v1/pods/"+made.ID+"/start", nil, nil)
	e.runs(made.ID)
	f.rest(http.MethodDelete, "/v1/pods/"+made.ID, nil, nil)
	e.runs()
	if _, all := f.pods("ep"); len(all) > 0 {
		t.Errorf("low-priority jobs alone: got %d workers, want none\n%s", len(all), f.decisions("ep"))
	}

	by := f.completed("ep", f.submit("ep", 30, 300, nil))
	if len(by) < 1 || len(by) > 3 {
		t.Errorf("30 jobs: got workers %v, want 1 to 3\n%s", by, f.decisions("ep"))
	}
	f.completed("ep", low)
	f.size("ep", 0)
	e.runs()
	theEngineIsKilled(f, e)
	d.Stop(program.StopWithin)
}

// theEngineIsKilled shows that a fleet is what it should be once the engine is
// back: it ends all that ran before.
func theEngineIsKilled(f *fleetSite, e *dockerEngine) {
	t := f.t
	t.Helper()
	f.rest(http.MethodPatch, "/v1/endpoints/ep", map[string]any{"workersMin": 2}, nil)
	f.size("ep", 2)
	before := fleetNames(f, "ep")
	e.runs(before...)
	f.completed("ep", f.submit("ep", 2, 10, nil)) // they have been heard of
	e.kill()
	jobs := f.submit("ep", 2, 10, nil)
	e.start()
	f.completed("ep", jobs)
	f.await("a new fleet of two", func() string {
		now := fleetNames(f, "ep")
		running, all := e.containers()
		if len(now) == 2 && sameNames(now, running) && len(all) == 2 {
			return ""
		}
		return strings.Join(append(now, all...), " ")
	})
	_, all := f.pods("ep")
	for _, p := range all {
		if slices.Contains(before, p.ID) && p.Status == pod.Exited && !strings.Contains(p.Change, "ended by itself") {
			t.Errorf("pod %s: got %q, want that it ended by itself", p.ID, p.Change)
		}
	}
	f.completed("ep", f.submit("ep", 4, 10, nil))
	f.rest(http.MethodPatch, "/v1/endpoints/ep", map[string]any{"workersMin": 0}, nil)
	f.size("ep", 0)
	e.runs()
}

// fleetNames are those of the pods that should run.
func fleetNames(f *fleetSite, id string) []string {
	f.t.Helper()
	running, _ := f.pods(id)
	var all []string
	for _, p := range running {
		all = append(all, p.ID)
	}
	return all
}
