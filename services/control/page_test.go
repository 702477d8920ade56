package control

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"flightline/shared/pod"
	"flightline/shared/testenv"
)

// A list is read to its end by its Link headers, and each thing is there once.
func TestListsComeInPages(t *testing.T) {
	s := start(t)
	now := s.queue.Now().UTC()
	var ids []string
	for i := range 7 {
		id := fmt.Sprintf("x%d", i)
		ids = append(ids, id)
		for _, err := range []error{
			s.registry.Pods.Create(t.Context(), pod.Pod{ID: id, Name: "a&b", Status: pod.Running, Created: now, Changed: now}),
			s.registry.Templates.Create(t.Context(), id, pod.Template{ID: id, Created: now}),
			s.registry.Volumes.Create(t.Context(), id, pod.Volume{ID: id, Created: now}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	testenv.Eventually(t, "all pods are seen", func() bool {
		pods, err := s.registry.Pods.List(t.Context())
		return err == nil && len(pods) == len(ids)
	})
	for _, path := range []string{"/pods?name=a%26b&name=c&limit=3", "/templates?limit=3", "/networkvolumes?limit=3"} {
		var got []string
		pages := 0
		for at := path; at != ""; pages++ {
			answer := s.do("GET", at, "")
			var list []struct {
				ID string `json:"id"`
			}
			if err := json.Unmarshal([]byte(answer.raw), &list); err != nil || len(list) > 3 {
				t.Fatalf("%s: got %d %s, want 3 at most", at, answer.status, answer.raw)
			}
			for _, x := range list {
				got = append(got, x.ID)
			}
			at = strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(answer.header.Get("Link"), "</v1"), `>; rel="next"`), "</v1")
		}
		if !slices.Equal(got, ids) || pages != 3 {
			t.Errorf("%s: got %q in %d pages, want %q in 3", path, got, pages, ids)
		}
		base, _, _ := strings.Cut(path, "?")
		if whole := s.do("GET", base, ""); whole.header.Get("Link") != "" || strings.Count(whole.raw, `"id":"x`) != len(ids) {
			t.Errorf("%s: got Link %q and %s, want all at once", base, whole.header.Get("Link"), whole.raw)
		}
		for query, text := range map[string]string{"limit=0": "limit must be", "limit=1001": "limit must be", "limit=x": "limit must be", "cursor=" + url.QueryEscape("a.b"): "cursor must be", "cursor=YS5i": "cursor must be"} {
			s.expect(base+" "+query, s.do("GET", base+"?"+query, ""), 400, "invalid_request", text)
		}
	}
}

func TestPodsAreListedByFilter(t *testing.T) {
	s := full(t)
	ctx := t.Context()
	for _, p := range []pod.Pod{
		{ID: "a", Name: "one two", Status: pod.Running, Driver: pod.Docker, Spec: pod.Spec{Image: "i1", GPUTypes: []string{"NVIDIA A40"}}, TemplateID: "t1", Created: born, Changed: born},
		{
			ID: "b", Name: "b", Status: pod.Exited, Driver: pod.Process, VolumeID: "v1", MachineID: "m1", Created: born, Changed: born,
			Machine: pod.Machine{CPU: pod.CPU{Model: "AMD EPYC 7763"}, VCPUs: 4},
		},
		{ID: "gone", Name: "gone", Status: pod.Terminated, Driver: pod.Docker, Spec: pod.Spec{Image: "i1"}, Created: born, Changed: born},
	} {
		if err := s.registry.Pods.Create(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Eventually(t, "all are listed", func() bool { return len(s.listed("?includeWorkers=true")) == 4 })
	for query, want := range map[string][]string{
		"":                                      {"a", "b"},
		"?includeWorkers=false":                 {"a", "b"},
		"?includeWorkers=true":                  {"a", "b", "full", "own"},
		"?includeWorkers=1&computeType=GPU":     {"full"},
		"?computeType=CPU":                      {"a", "b"},
		"?cpuFlavorId=cpu3c":                    {"b"},
		"?dataCenterId=EU-1":                    {"b"},
		"?desiredStatus=EXITED":                 {"b"},
		"?endpointId=upper":                     {},
		"?endpointId=upper&includeWorkers=1":    {"full", "own"},
		"?gpuTypeId=NVIDIA+L4&includeWorkers=1": {"full"},
		"?gpuTypeId=NVIDIA+A40":                 {"a"},
		"?desiredStatus=TERMINATED":             {"gone"},
		"?id=gone":                              {"gone"},
		"?id=a":                                 {"a"},
		"?id=a&id=b":                            {"a", "b"},
		"?imageName=i1":                         {"a"},
		"?name=one%20two":                       {"a"},
		"?networkVolumeId=v1":                   {"b"},
		"?templateId=t1":                        {"a"},
		"?templateId=t1&desiredStatus=EXITED":   {},
		"?templateId=":                          {"a", "b"},
	} {
		if got := s.listed(query); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
	cpu := s.do("GET", "/pods/b", "")
	if cpu.body["cpuFlavorId"] != "cpu3c" || cpu.body["costPerHr"] != 0.5 || cpu.body["vcpuCount"] != 4.0 {
		t.Errorf("got %s, want a flavour and 4 × 0.125 an hour", cpu.raw)
	}
}

func (s *env) listed(query string) []string {
	s.t.Helper()
	got := s.do("GET", "/pods"+query, "")
	ids := []string{}
	for _, part := range strings.Split(got.raw, `{"id":"`)[1:] {
		id, rest, _ := strings.Cut(part, `"`)
		if strings.HasPrefix(rest, `,"name"`) {
			ids = append(ids, id)
		}
	}
	return ids
}
