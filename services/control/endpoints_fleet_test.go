package control

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"flightline/shared/pod"
	"flightline/shared/testenv"
)

// The shape that RunPod's clients send: a template, a name, and what it says of scaling.
func TestAnEndpointFromATemplate(t *testing.T) {
	s := start(t)
	template := pod.Template{ID: "tpl", Name: "echo", Serverless: true, Spec: pod.Spec{Image: "echo:1", Env: map[string]string{"API_KEY": "hidden-value"}}}
	if err := s.registry.Templates.Create(t.Context(), template.ID, template); err != nil {
		t.Fatal(err)
	}
	got := s.do("POST", "/endpoints", `{"templateId":"tpl","name":"mine","computeType":"GPU","gpuTypeIds":["NVIDIA L4"],"gpuCount":1,
		"scalerType":"REQUEST_COUNT","scalerValue":2,"idleTimeout":60,"workersMax":5}`)
	s.expect("create", got, 200, "", "")
	for field, want := range map[string]any{"templateId": "tpl", "name": "mine", "gpuCount": 1.0, "scalerType": "REQUEST_COUNT", "scalerValue": 2.0, "idleTimeout": 60.0, "workersMax": 5.0} {
		if got.body[field] != want {
			t.Errorf("%s: got %v, want %v", field, got.body[field], want)
		}
	}
	id, _ := got.body["id"].(string)
	s.expect("the template alone will do", s.do("POST", "/endpoints", `{"templateId":"tpl"}`), 200, "", "")
	shown := s.do("GET", "/endpoints/"+id+"?includeTemplate=true", "")
	if inner, _ := shown.body["template"].(map[string]any); inner["imageName"] != "echo:1" || strings.Contains(shown.raw, "hidden-value") {
		t.Errorf("got %s", shown.raw)
	}
	if plain := s.do("GET", "/endpoints/"+id, ""); plain.body["template"] != nil || plain.body["workers"] != nil {
		t.Errorf("nobody asked for these: %s", plain.raw)
	}
	s.expect("a bad boolean", s.do("GET", "/endpoints?includeWorkers=perhaps", ""), 400, "invalid_request", "includeWorkers must be true or false")
	s.expect("another template", s.do("PATCH", "/endpoints/"+id, `{"templateId":"none"}`), 400, "invalid_request", "templateId is that of no template")
}

func TestAnEndpointSaysWhichGPUsItNeeds(t *testing.T) {
	s := start(t)
	got := s.do("POST", "/endpoints", `{"id":"ep","gpuCount":1,"gpuTypeIds":["NVIDIA L4"],"minVramGb":20.5,"minCudaVersion":"12.4","gpuShare":0.5,"sleepGpuShare":0,"priority":-2,"minHoldMs":5000,"maxSwapWaitMs":60000}`)
	s.expect("create", got, 200, "", "")
	got = s.do("PATCH", "/endpoints/ep", `{"priority":2}`)
	for field, want := range map[string]any{"minVramGb": 20.5, "minCudaVersion": "12.4", "gpuShare": 0.5, "sleepGpuShare": 0.0, "priority": 2.0, "minHoldMs": 5000.0, "maxSwapWaitMs": 60000.0} {
		if got.body[field] != want {
			t.Errorf("%s: got %v, want %v", field, got.body[field], want)
		}
	}
	if types, _ := got.body["gpuTypeIds"].([]any); len(types) != 1 || types[0] != "NVIDIA L4" {
		t.Errorf("got gpuTypeIds %v", got.body["gpuTypeIds"])
	}
}

// Who says which GPU a worker needs, and not how many, means one, as on RunPod.
func TestAGPUThatIsDescribedIsOne(t *testing.T) {
	s := start(t)
	for i, tc := range []struct {
		made, changed string
		want          any
	}{
		{`"gpuTypeIds":["NVIDIA L4"]`, ``, 1.0},
		{`"minVramGb":20`, ``, 1.0},
		{`"minCudaVersion":"12.4"`, ``, 1.0},
		{`"gpuShare":0.5`, ``, 1.0},
		{`"gpuTypeIds":[],"minVramGb":0,"minCudaVersion":"","priority":1`, ``, nil},
		{`"gpuTypeIds":["NVIDIA L4"],"gpuCount":2`, `"minVramGb":20`, 2.0},
		{`"gpuTypeIds":["NVIDIA L4"],"gpuCount":0`, ``, nil},
		{`"gpuTypeIds":["NVIDIA L4"]`, `"gpuCount":0`, nil},
		{`"name":"cpu"`, `"gpuTypeIds":["NVIDIA L4"]`, 1.0},
		{`"gpuTypeIds":["NVIDIA L4"],"gpuCount":0`, `"name":"cpu"`, nil},
	} {
		got := s.do("POST", "/endpoints", fmt.Sprintf(`{"id":"ep%d","driver":"process","command":["x"],%s}`, i, tc.made))
		s.expect(tc.made, got, 200, "", "")
		if tc.changed != "" {
			got = s.do("PATCH", fmt.Sprintf("/endpoints/ep%d", i), "{"+tc.changed+"}")
		}
		if got.body["gpuCount"] != tc.want {
			t.Errorf("%s, then %s: got gpuCount %v, want %v", tc.made, tc.changed, got.body["gpuCount"], tc.want)
		}
	}
}

func TestEndpointsShowTheirWorkers(t *testing.T) {
	s := start(t)
	for _, id := range []string{"a", "b"} {
		s.expect(id, s.do("POST", "/endpoints", `{"id":"`+id+`"}`), 200, "", "")
	}
	for id, p := range map[string]pod.Pod{
		"a-1": {Endpoint: "a", Status: pod.Running}, "a-2": {Endpoint: "a", Status: pod.Exited},
		"a-3": {Endpoint: "a", Status: pod.Terminated}, "free": {Status: pod.Running},
	} {
		p.ID, p.Created, p.Changed = id, time.Now(), time.Now()
		if err := s.registry.Pods.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Eventually(t, "the cache has them", func() bool {
		a := s.do("GET", "/endpoints/a?includeWorkers=true", "")
		workers, _ := a.body["workers"].([]any)
		return len(workers) == 2 && strings.Contains(a.raw, `"a-1"`) && strings.Contains(a.raw, `"a-2"`)
	})
	if b := s.do("GET", "/endpoints/b?includeWorkers=1", ""); !strings.Contains(b.raw, `"workers":[]`) {
		t.Errorf("got %s, want none", b.raw)
	}
	if list := s.do("GET", "/endpoints?includeWorkers=true", ""); strings.Count(list.raw, `"workers":[`) != 2 {
		t.Errorf("got %s", list.raw)
	}
}

// Secrets are shown to nobody, and survive an update that sends back what was shown.
func TestTheSecretsOfAnEndpointStay(t *testing.T) {
	s := start(t)
	made := s.do("POST", "/endpoints", `{"id":"ep","driver":"process","command":["python3","worker.py"],"env":{"HF_TOKEN":"sesame-open","MODEL":"small"}}`)
	s.expect("create", made, 200, "", "")
	for _, got := range []answer{
		made, s.do("GET", "/endpoints/ep", ""), s.do("GET", "/endpoints", ""),
		s.do("PATCH", "/endpoints/ep", `{"env":{"HF_TOKEN":"***","MODEL":"large"}}`), s.do("POST", "/endpoints/ep/pause", ""),
	} {
		if strings.Contains(got.raw, "sesame") || !strings.Contains(got.raw, `"HF_TOKEN":"***"`) {
			t.Errorf("got %s", got.raw)
		}
	}
	e, err := s.registry.Endpoints.Find(t.Context(), "ep")
	if err != nil || e.Env["HF_TOKEN"] != "sesame-open" || e.Env["MODEL"] != "large" || len(e.Fleet.Command) != 2 {
		t.Errorf("got %+v, %v", e, err)
	}
	s.expect("none is left", s.do("PATCH", "/endpoints/ep", `{"env":{}}`), 200, "", "")
	if e, err = s.registry.Endpoints.Find(t.Context(), "ep"); err != nil || len(e.Env) > 0 {
		t.Errorf("got %v, %v", e.Env, err)
	}
}
