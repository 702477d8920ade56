package console

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"flightline/shared/api"
	"flightline/shared/client"
	"flightline/shared/registry"
)

// Each GPU is counted once, and a machine without any has no line.
func TestTheOverviewCountsGPUs(t *testing.T) {
	t.Parallel()
	claims, away := []api.GPUClaim{{PodID: "p", Share: 0.5}}, &api.GPUQuarantine{State: "quarantined"}
	d := gpusOf([]client.MachineInventory{
		{ID: "z", Hostname: "b<i>", GPUs: []client.MachineGPU{{Healthy: true, Claims: claims}, {Healthy: true}, {Healthy: true, Claims: claims, Quarantine: away}, {Problem: "fell off the bus"}}},
		{ID: "y"},
		{ID: "a", GPUs: []client.MachineGPU{{Healthy: true}}},
	})
	d.Waiting = []attention{{"ep", "no_gpu", "jobs that wait: 3"}}
	if len(d.Lines) != 2 || d.Lines[0] != (gpuLine{"a", "a", gpuCounts{Total: 1, Free: 1}}) ||
		d.Lines[1] != (gpuLine{"z", "b<i>", gpuCounts{Total: 4, Busy: 1, Free: 1, Quarantined: 1, Unhealthy: 1}}) || d.All.Total != 5 {
		t.Fatalf("got %+v", d)
	}
	s, err := New(Config{Log: slog.New(slog.DiscardHandler)}, Deps{Sessions: &registry.Sessions{}, Actions: &registry.Actions{}, Connect: func(string) (API, error) { return API{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := s.pages.ExecuteTemplate(&page, "overview-gpus", &view{V: &visit{}, D: &overviewData{GPUs: d}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`q=z">b&lt;i&gt;</a> 4 GPUs: 1 busy, 1 free, 1 quarantined, 1 unhealthy<`, `a</a> 1 GPU: 0 busy, 1 free<`, "jobs that wait: 3"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("got %s, want %q", page.String(), want)
		}
	}
	page.Reset()
	if err := s.pages.ExecuteTemplate(&page, "overview-gpus", &view{V: &visit{}, D: &overviewData{}}); err != nil || strings.Contains(page.String(), "GPUs</h2>") {
		t.Errorf("of a key that may not see machines: got %s, %v", page.String(), err)
	}
}
