//go:build nvml && cgo && linux

package host

import (
	"log/slog"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"

	"flightline/shared/pod"
)

func TestNVMLReadsAnA100(t *testing.T) {
	got, driver := readNVML(t.Context(), dgxa100.New(), slog.New(slog.DiscardHandler))
	if len(got) != 8 || driver == "" {
		t.Fatalf("got %d GPUs, driver %q, want the 8 of the mock", len(got), driver)
	}
	seen := map[string]bool{}
	for _, g := range got {
		if g.Vendor != pod.NVIDIA || g.Name == "" || g.MemoryMB == 0 || g.Driver != driver || g.CUDA == "" || seen[g.UUID] {
			t.Errorf("got %+v", g)
		}
		seen[g.UUID] = true
	}
}

func TestNVMLSaysWhichCardIsLost(t *testing.T) {
	server := dgxa100.New()
	lost, _ := server.DeviceGetHandleByIndex(3)
	lost.(*dgxa100.Device).GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_GPU_IS_LOST }
	got, _ := readNVML(t.Context(), server, slog.New(slog.DiscardHandler))
	for i, g := range got {
		if (g.Health != "") != (i == 3) {
			t.Errorf("GPU %d: got health %q", i, g.Health)
		}
	}
}
