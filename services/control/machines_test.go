package control

import (
	"testing"
	"time"

	"flightline/shared/pod"
	"flightline/shared/registry"
)

func TestMachinesShowTheirGPUsAndWhoHoldsThem(t *testing.T) {
	s := start(t)
	at := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for _, m := range []registry.Inventory{
		{ID: "m2", Driver: pod.Process, Hostname: "box"},
		{ID: "m1", Driver: pod.Docker, Hostname: "box", GPUs: []pod.GPU{
			{UUID: "GPU-1", Vendor: pod.NVIDIA, Name: "NVIDIA L4", MemoryMB: 24576, Driver: "570.1", CUDA: "12.8"},
			{UUID: "GPU-2", Vendor: pod.NVIDIA, Name: "NVIDIA L4", MemoryMB: 24576, Health: "lost"},
			{Name: "without a UUID"},
		}},
	} {
		if err := s.registry.GPUs.Report(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range []registry.GPUHolder{{Pod: "a-0-1", Endpoint: "a", Machine: "m1", Share: 25, Since: at}, {Pod: "lone", Machine: "m1", Share: 50, Since: at}} {
		if err := s.registry.GPUs.Claim(t.Context(), "GPU-1", h); err != nil {
			t.Fatal(err)
		}
	}
	got := s.do("GET", "/machines", "")
	want := `[{"id":"m1","driver":"docker","hostname":"box","gpus":[` +
		`{"uuid":"GPU-1","vendor":"nvidia","name":"NVIDIA L4","memoryMb":24576,"driverVersion":"570.1","cudaVersion":"12.8","healthy":true,"freeShare":0.25,"claims":[` +
		`{"podId":"a-0-1","endpointId":"a","share":0.25,"claimedAt":"2026-11-25T12:00:00.000Z"},{"podId":"lone","share":0.5,"claimedAt":"2026-11-25T12:00:00.000Z"}]},` +
		`{"uuid":"GPU-2","vendor":"nvidia","name":"NVIDIA L4","memoryMb":24576,"healthy":false,"problem":"lost","freeShare":1,"claims":[]}]},` +
		`{"id":"m2","driver":"process","hostname":"box","gpus":[]}]`
	if got.status != 200 || got.raw != want {
		t.Errorf("got %d %s\nwant %s", got.status, got.raw, want)
	}
}
