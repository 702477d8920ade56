package fleets

import (
	"path/filepath"
	"testing"

	"flightline/shared/pod"
	"flightline/shared/testenv/program"
)

// TestAFleetOfThePublishedPythonWorker is the README's way: the endpoint's
// command is a handler on RunPod's package.
func TestAFleetOfThePublishedPythonWorker(t *testing.T) {
	t.Parallel()
	python := publishedPython(t)
	f, d := fleetDev(t)
	f.endpoint("plain", map[string]any{"command": []string{python, plainHandler(t)}, "env": nil})
	f.burstFromZero("plain")
	d.Stop(program.StopWithin)
}

// TestAFleetOfThePublishedPythonWorkerInContainers is the same handler in an
// image, with the driver docker.
func TestAFleetOfThePublishedPythonWorkerInContainers(t *testing.T) {
	t.Parallel()
	python := publishedPython(t)
	e := newEngine(t, "")
	f, d := fleetDev(t, "FLIGHTLINE_DRIVERS=process,docker", "FLIGHTLINE_DOCKER_HOST="+e.address())
	files, entrypoint, env := pythonFiles(t, python, plainHandler(t))
	const image = "pythonworker:1"
	e.image(image, files, entrypoint...)
	f.endpoint("plain", map[string]any{"driver": "docker", "imageName": image, "command": nil, "env": env})
	f.burstFromZero("plain")
	e.runs()
	d.Stop(program.StopWithin)
}

func plainHandler(t *testing.T) string {
	t.Helper()
	script, err := filepath.Abs("../workers/plain.py")
	if err != nil {
		t.Fatal(err)
	}
	return script
}

// burstFromZero is what a fleet of workersMax 3 does: nothing for low priority
// alone, a burst of 30 jobs, and back to no worker.
func (f *fleetSite) burstFromZero(id string) {
	f.t.Helper()
	low := f.submit(id, 2, 0, map[string]any{"lowPriority": true})
	f.noneFor(id)
	f.completed(id, f.submit(id, 30, 0, nil))
	f.completed(id, low)
	f.size(id, 0)
	_, all := f.pods(id)
	if len(all) < 1 || len(all) > 3 {
		f.t.Errorf("got %d workers ever, want 1 to 3\n%s", len(all), f.decisions(id))
	}
	for _, p := range all {
		if p.Status != pod.Terminated {
			f.t.Errorf("pod %s: got %s (%s), want it TERMINATED", p.ID, p.Status, p.Change)
		}
	}
}

// noneFor waits until the autoscaler has twice decided about another endpoint,
// and fails if it has started workers for this one.
func (f *fleetSite) noneFor(id string) {
	f.t.Helper()
	f.endpoint("canary", map[string]any{"workersMin": 1})
	f.size("canary", 1)
	f.rest("PATCH", "/v1/endpoints/canary", map[string]any{"workersMin": 0}, nil)
	f.size("canary", 0)
	if _, all := f.pods(id); len(all) > 0 {
		f.t.Fatalf("low-priority jobs alone: got %d workers, want none\n%s", len(all), f.decisions(id))
	}
}
