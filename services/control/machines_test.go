package control

import (
	"errors"
	"fmt"
	"strings"
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
		}, Models: []pod.Model{{Name: "Qwen/Qwen3-8B", Bytes: 16381516776}, {Name: "gpt2"}}},
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
		`{"uuid":"GPU-2","vendor":"nvidia","name":"NVIDIA L4","memoryMb":24576,"healthy":false,"problem":"lost","freeShare":1,"claims":[]}],"models":[{"name":"Qwen/Qwen3-8B","bytes":16381516776},{"name":"gpt2"}]},` +
		`{"id":"m2","driver":"process","hostname":"box","gpus":[],"models":[]}]`
	if got.status != 200 || got.raw != want {
		t.Errorf("got %d %s\nwant %s", got.status, got.raw, want)
	}
}

func TestAGPUIsQuarantinedAndRestored(t *testing.T) {
	s := start(t)
	if err := s.registry.GPUs.Report(t.Context(), registry.Inventory{ID: "m1", Driver: pod.Process, GPUs: []pod.GPU{{UUID: "GPU-1"}, {UUID: "GPU-2"}}}); err != nil {
		t.Fatal(err)
	}
	const at = "/machines/m1/gpus/GPU-1"
	quarantined := func(body, want string, length time.Duration) {
		t.Helper()
		before := s.queue.Now()
		got := s.do("POST", at+"/quarantine", body)
		q, _ := got.body["quarantine"].(map[string]any)
		since, err := time.Parse(time.RFC3339, fmt.Sprint(q["since"]))
		until, err2 := time.Parse(time.RFC3339, fmt.Sprint(q["until"]))
		if got.status != 200 || err != nil || err2 != nil || until.Sub(since) != length || since.Before(before.Add(-time.Minute)) ||
			q["reason"] != want || q["state"] != "quarantined" || q["by"] != "request" || q["count"] != 0.0 {
			t.Errorf("got %d %s, want %s for %s", got.status, got.raw, want, length)
		}
	}
	quarantined("", "by request", time.Hour)
	quarantined(`{"durationMs":604800000,"reason":"its fan is loud"}`, "its fan is loud", 7*24*time.Hour)
	if err := s.registry.GPUs.Claim(t.Context(), "GPU-1", registry.GPUHolder{Pod: "p", Machine: "m1", Share: 100, Since: time.Now()}); !errors.Is(err, registry.ErrQuarantined) {
		t.Errorf("got %v, want ErrQuarantined", err)
	}
	if got := s.do("GET", "/machines", ""); !strings.Contains(got.raw, "its fan is loud") || strings.Count(got.raw, `"quarantine"`) != 1 {
		t.Errorf("got %s, want one quarantine", got.raw)
	}
	for body, text := range map[string]string{
		`{"durationMs":999}`:                            "durationMs must be between 1000 and 604800000, got 999",
		`{"durationMs":604800001}`:                      "durationMs must be between 1000 and 604800000, got 604800001",
		`{"for":"1h"}`:                                  "for is not a known field",
		`{"reason":"a\u0000b"}`:                         "reason must hold no control characters",
		`{"reason":"` + strings.Repeat("ä", 201) + `"}`: "reason must have at most 200 characters, got 201",
		`[]`: "the body must be a JSON object",
	} {
		s.expect(body, s.do("POST", at+"/quarantine", body), 400, "invalid_request", text)
	}
	for _, verb := range []string{"/quarantine", "/restore"} {
		s.expect("machine", s.do("POST", "/machines/m2/gpus/GPU-1"+verb, ""), 404, "not_found", "no such machine")
		s.expect("GPU", s.do("POST", "/machines/m1/gpus/GPU-3"+verb, ""), 404, "not_found", "no such GPU on this machine")
	}
	// Its machine may be away.
	if err := s.registry.GPUs.Withdraw(t.Context(), "m1"); err != nil {
		t.Fatal(err)
	}
	if got := s.do("POST", at+"/restore", ""); got.status != 200 || strings.Contains(got.raw, "quarantine") {
		t.Errorf("got %d %s, want no quarantine", got.status, got.raw)
	}
	s.expect("no machine", s.do("POST", at+"/restore", ""), 404, "not_found", "no such machine")
}
