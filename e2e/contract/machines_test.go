package contract

import (
	"encoding/json"
	"net/http"
	"strings"
)

const (
	contractGPU  = "GPU-contract-1"
	contractGPUs = `[{"uuid": "` + contractGPU + `", "vendor": "nvidia", "name": "NVIDIA L4", "memoryMb": 24576}]`
)

// machineRows are the GPUs of machines that are kept from pods (docs/gpus.md).
func machineRows() map[string]scenario {
	return map[string]scenario{
		"a GPU is quarantined and restored": func(s *run) {
			p := s.endpoint("")
			at := p.gpuPath(s)
			a := s.send(call{method: "POST", path: at + "/quarantine", body: `{"durationMs":600000,"reason":"its fan is loud"}`})
			p.want(a, http.StatusOK, "uuid", contractGPU, "quarantine", "its fan is loud")
			for _, part := range []string{`"state":"quarantined"`, `"by":"request"`, `"count":0`} {
				if !strings.Contains(a.raw, part) {
					s.Errorf("got %s, want %s", a.raw, part)
				}
			}
			if a = s.send(call{method: "GET", path: "/v1/machines"}); !strings.Contains(a.raw, "its fan is loud") {
				s.Errorf("got %s, want the quarantine", a.raw)
			}
			for _, wrong := range []string{`{"durationMs":999}`, `{"durationMs":604800001}`, `{"for":"1h"}`, `{"reason":"` + strings.Repeat("x", 201) + `"}`} {
				p.want(s.send(call{method: "POST", path: at + "/quarantine", body: wrong, wrong: true}), http.StatusBadRequest, "code", "invalid_request")
			}
			for range 2 { // it may be asked for twice
				if a = s.send(call{method: "POST", path: at + "/restore"}); a.status != http.StatusOK || strings.Contains(a.raw, "quarantine") {
					s.Errorf("got %d %s, want no quarantine", a.status, a.raw)
				}
			}
		},
		"what is unknown": func(s *run) {
			p := s.endpoint("")
			at := p.gpuPath(s)
			for _, path := range []string{"/v1/machines/nobody/gpus/" + contractGPU, strings.Replace(at, contractGPU, "GPU-none", 1)} {
				for _, verb := range []string{"/quarantine", "/restore"} {
					p.want(s.send(call{method: "POST", path: path + verb}), http.StatusNotFound, "code", "not_found")
				}
			}
			p.refused(map[string]string{"POST " + at + "/quarantine": "", "POST " + at + "/restore": ""})
		},
	}
}

// gpuPath is the path of the GPU of dev, once its machine reports it.
func (p *testEndpoint) gpuPath(s *run) string {
	s.Helper()
	var path string
	p.eventually("the machine reports its GPU", func() bool {
		var machines []struct {
			ID   string `json:"id"`
			GPUs []struct {
				UUID string `json:"uuid"`
			} `json:"gpus"`
		}
		a := s.send(call{method: "GET", path: "/v1/machines"})
		if err := json.Unmarshal([]byte(a.raw), &machines); err != nil {
			return false
		}
		for _, m := range machines {
			for _, g := range m.GPUs {
				if g.UUID == contractGPU {
					path = "/v1/machines/" + m.ID + "/gpus/" + g.UUID
				}
			}
		}
		return path != ""
	})
	return path
}
