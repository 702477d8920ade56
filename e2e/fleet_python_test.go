package e2e

import (
	"path/filepath"
	"testing"

	"flightline/shared/pod"
)

// TestAFleetOfThePublishedPythonWorker is the README's way: the endpoint's
// command is a handler on RunPod's package.
func TestAFleetOfThePublishedPythonWorker(t *testing.T) {
	t.Parallel()
	python := publishedPython(t)
	script, err := filepath.Abs("workers/plain.py")
	if err != nil {
		t.Fatal(err)
	}
	f, d := fleetDev(t)
	f.endpoint("plain", map[string]any{"command": []string{python, script}, "env": nil})
	low := f.submit("plain", 2, 0, map[string]any{"lowPriority": true})
	f.noneFor("plain")
	f.completed("plain", f.submit("plain", 30, 0, nil))
	f.completed("plain", low)
	f.size("plain", 0)
	_, all := f.pods("plain")
	if len(all) < 1 || len(all) > 3 {
		t.Errorf("got %d workers ever, want 1 to 3\n%s", len(all), f.decisions("plain"))
	}
	for _, p := range all {
		if p.Status != pod.Terminated {
			t.Errorf("pod %s: got %s (%s), want it TERMINATED", p.ID, p.Status, p.Change)
		}
	}
	d.stop(stopWithin)
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
