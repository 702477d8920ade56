package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

func TestAPodIsMadeChangedStoppedStartedAndDeleted(t *testing.T) {
	s := start(t)
	made := s.do("POST", "/pods", `{"imageName":"busybox","env":{"A":"1","API_KEY":"s3cret"},"gpuCount":0,"ports":["80/http"],"cloudType":"SECURE"}`)
	s.expect("create", made, 201, "", "")
	id, _ := made.body["id"].(string)
	if made.body["name"] != "my pod" || made.body["desiredStatus"] != "RUNNING" || made.body["driver"] != "docker" || made.body["consumerUserId"] == nil {
		t.Errorf("got %s, want it RUNNING by docker with RunPod's name", made.raw)
	}
	if strings.Contains(made.raw, "s3cret") {
		t.Errorf("got %s, want the secret hidden", made.raw)
	}
	one := "/pods/" + id
	changed := s.do("PATCH", one, `{"name":"n","env":{"A":"2","API_KEY":"***"},"vcpuCount":1.5}`)
	s.expect("patch", changed, 200, "", "")
	stored, err := s.registry.Pods.Get(t.Context(), id)
	if err != nil || stored.Spec.Env["API_KEY"] != "s3cret" || stored.Spec.Env["A"] != "2" || stored.Name != "n" || stored.Spec.VCPUs != 1.5 {
		t.Errorf("got %+v %v, want the secret kept and the rest changed", stored, err)
	}
	s.expect("update", s.do("POST", one+"/update", `{"dockerStartCmd":["sleep","1"]}`), 200, "", "")
	for _, step := range []struct{ verb, status, change string }{
		{"stop", "EXITED", "Stopped by request: "},
		{"stop", "EXITED", "Stopped by request: "},
		{"start", "RUNNING", "Started by request: "},
		{"restart", "RUNNING", "Restarted by request: "},
		{"stop", "EXITED", "Stopped by request: "},
		{"reset", "RUNNING", "Restarted by request: "},
	} {
		got := s.do("POST", one+"/"+step.verb, "")
		change, _ := got.body["lastStatusChange"].(string)
		if got.status != 200 || got.body["desiredStatus"] != step.status || !strings.HasPrefix(change, step.change) {
			t.Errorf("%s: got %d %s, want %v", step.verb, got.status, got.raw, step)
		}
	}
	if p, err := s.registry.Pods.Get(t.Context(), id); err != nil || p.Starts != 3 {
		t.Errorf("got %d starts, %v, want 3: each start, restart and reset is a new one", p.Starts, err)
	}
	for range 2 {
		s.expect("delete", s.do("DELETE", one, ""), 204, "", "")
	}
	if got := s.do("GET", one, ""); got.body["desiredStatus"] != "TERMINATED" {
		t.Errorf("got %s, want it readable still", got.raw)
	}
	s.expect("start what is gone", s.do("POST", one+"/start", ""), 409, "pod_conflict", "cannot start a pod that is TERMINATED")
	s.expect("restart what is gone", s.do("POST", one+"/restart", ""), 409, "pod_conflict", "cannot restart a pod that is TERMINATED")
	s.expect("change what is gone", s.do("PATCH", one, `{"name":"x"}`), 409, "pod_conflict", "TERMINATED")
}

func TestAPodWhoseMachineIsGoneIsStartedByAnother(t *testing.T) {
	s := start(t)
	beats, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.registry.Instances.Announce(beats, registry.Instance{ID: "alive", Role: registry.DriverRole(pod.Process)})
	}()
	defer func() { stop(); <-done }()
	testenv.Eventually(t, "a machine", func() bool {
		machines, err := s.registry.Instances.Machines(t.Context())
		return err == nil && slices.Equal(machines[pod.Process], []string{"alive"})
	})
	for machine, want := range map[string]string{"alive": "alive", "gone": ""} {
		p := pod.Pod{ID: machine, Name: machine, Driver: pod.Process, MachineID: machine, Machine: pod.Machine{Hostname: machine}, Status: pod.Exited}
		if err := s.registry.Pods.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		verb := map[string]string{"alive": "start", "gone": "restart"}[machine]
		s.expect(verb, s.do("POST", "/pods/"+machine+"/"+verb, ""), 200, "", "")
		if p, err := s.registry.Pods.Get(t.Context(), machine); err != nil || p.MachineID != want || p.Machine.Hostname != want || p.Starts != 1 {
			t.Errorf("%s: got %+v, %v; want it on %q", machine, p, err, want)
		}
	}
}

func TestAPodThatNamesKindsOfGPUsGetsOne(t *testing.T) {
	s := start(t)
	for body, want := range map[string]float64{
		`"gpuTypeIds":["NVIDIA L4"]`:              1,
		`"gpuTypeIds":["NVIDIA L4"],"gpuCount":2`: 2,
		`"gpuTypeIds":["NVIDIA L4"],"gpuCount":0`: 0,
		`"gpuTypeIds":[]`:                         0,
	} {
		made := s.do("POST", "/pods", `{"imageName":"busybox",`+body+`}`)
		got := 0.0
		if gpu, found := made.body["gpu"].(map[string]any); found {
			got, _ = gpu["count"].(float64)
		}
		if made.status != 201 || got != want {
			t.Errorf("%s: got %d and %v GPUs, want 201 and %v", body, made.status, got, want)
		}
	}
}

func TestALockedPodIsNeitherStoppedNorDeleted(t *testing.T) {
	s := start(t)
	id, _ := s.do("POST", "/pods", `{"imageName":"busybox","locked":true}`).body["id"].(string)
	s.expect("stop", s.do("POST", "/pods/"+id+"/stop", ""), 409, "pod_conflict", "locked")
	s.expect("delete", s.do("DELETE", "/pods/"+id, ""), 409, "pod_conflict", "locked")
	s.expect("unlock", s.do("PATCH", "/pods/"+id, `{"locked":false}`), 200, "", "")
	s.expect("stop", s.do("POST", "/pods/"+id+"/stop", ""), 200, "", "")
}

func TestThePodOfAWorkerIsItsOwners(t *testing.T) {
	s := full(t)
	s.do("POST", "/endpoints", `{"id":"upper"}`)
	for _, verb := range []string{"start", "stop"} {
		s.expect(verb, s.do("POST", "/pods/own/"+verb, ""), 409, "pod_conflict", "its owner runs it")
	}
	s.expect("start a fleet's", s.do("POST", "/pods/full/start", ""), 409, "pod_conflict", "autoscaler")
	s.expect("spec", s.do("PATCH", "/pods/own", `{"env":{"A":"1"}}`), 409, "pod_conflict", "only name and locked")
	s.expect("name", s.do("PATCH", "/pods/own", `{"name":"mine","env":{}}`), 200, "", "")

	beat := registry.Worker{ID: "own", Endpoint: "upper", State: registry.WorkerIdle}
	if err := s.registry.Workers.Beat(t.Context(), beat); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the worker is seen", func() bool {
		list, err := s.registry.Workers.List(t.Context(), "upper")
		return err == nil && len(list) == 1
	})
	s.expect("delete one that speaks NATS", s.do("DELETE", "/pods/own", ""), 409, "pod_conflict", "stop it there")
	s.do("POST", "/endpoints/upper/workers", `{"id":"own"}`)
	s.expect("delete one with a token", s.do("DELETE", "/pods/own", ""), 204, "", "")
	if got := s.do("GET", "/endpoints/upper/workers", ""); got.raw != "[]" {
		t.Errorf("got %s, want its token revoked", got.raw)
	}
}

func TestBadPodsNameTheField(t *testing.T) {
	s := full(t)
	for _, tc := range []struct{ call, body, text string }{
		{"GET /pods/full?includeMachine=maybe", "", "includeMachine must be true or false"},
		{"GET /pods/full?includeWorkers=", "", "includeWorkers must be true or false"},
		{"GET /pods?includeTemplate=2", "", "includeTemplate"},
		{"GET /pods?includeNetworkVolume=x", "", "includeNetworkVolume"},
		{"GET /pods?includeSavingsPlans=x", "", "includeSavingsPlans"},
		{"GET /pods?desiredStatus=LOST", "", "desiredStatus must be RUNNING or EXITED or TERMINATED"},
		{"GET /pods?computeType=TPU", "", "computeType must be GPU or CPU"},
		{"GET /pods/a.b", "", "podId must be"},
		{"GET /pods/" + strings.Repeat("x", 129), "", "podId must be"},
		{"POST /pods", `[]`, "JSON object"},
		{"POST /pods", `{}`, "imageName is needed by the driver docker"},
		{"POST /pods", `{"driver":"process"}`, "dockerStartCmd is needed by the driver process"},
		{"POST /pods", `{"driver":"external"}`, "driver must be"},
		{"POST /pods", `{"imageName":"i","name":"` + strings.Repeat("é", 192) + `"}`, "name must have 1 to 191 characters"},
		{"POST /pods", `{"imageName":"i","name":1}`, "name must be a string"},
		{"POST /pods", `{"imageName":"i","locked":"yes"}`, "locked must be true or false"},
		{"POST /pods", `{"imageName":"i","vcpuCount":"1"}`, "vcpuCount must be a number"},
		{"POST /pods", `{"imageName":"i","gpuCount":65}`, "gpuCount must be between 0 and 64"},
		{"POST /pods", `{"imageName":"i","ports":["80"]}`, `ports[0] must be "<port>/http"`},
		{"POST /pods", `{"imageName":"i","env":{"A":1}}`, "must be a string"},
		{"POST /pods", `{"imageName":"i","env":{"A=B":"1"}}`, "env has a name"},
		{"POST /pods", `{"imageName":"i","env":{"TOKEN":"***"}}`, "env.TOKEN"},
		{"POST /pods", `{"imageName":"i","templateId":"none"}`, "templateId is that of no template"},
		{"POST /pods", `{"imageName":"i","networkVolumeId":"none"}`, "networkVolumeId is that of no network volume"},
		{"POST /templates", `{"imageName":"i"}`, "name must have"},
		{"POST /templates", `{"name":"n","category":"TPU"}`, "category must be"},
		{"POST /networkvolumes", `{"name":"n"}`, "size must be between"},
		{"POST /networkvolumes", `{"name":"n","size":-1}`, "size must be between"},
		{"POST /pods", `{"imageName":"i","dockerStartCmd":["sh","` + strings.Repeat("x", pod.MaxWordBytes) + `"]}`, "dockerStartCmd must be at most 65536 bytes"},
		{"POST /networkvolumes", `{"name":"n","size":1,"path":"a/b"}`, "path must be"},
		{"POST /networkvolumes", `{"name":"n","size":1,"path":"/etc"}`, `path must be empty, got "/etc": this installation has no --volume-root`},
		{"PATCH /networkvolumes/v1", `{"path":"/"}`, "no --volume-root"},
		{"POST /pods", `{"imageName":"i","capabilities":["cap_chown"]}`, "capabilities[0] must be a capability like CHOWN"},
		{"POST /pods", `{"imageName":"i","capabilities":"CHOWN"}`, "capabilities must be"},
		{"POST /templates", `{"name":"n","capabilities":["CHOWN","a"]}`, "capabilities[1] must be"},
		{"PATCH /networkvolumes/v1", `{"size":99}`, "does not shrink"},
	} {
		method, path, _ := strings.Cut(tc.call, " ")
		s.expect(tc.call+" "+tc.body, s.do(method, path, tc.body), 400, "invalid_request", tc.text)
	}
	s.expect("what is fixed", s.do("PATCH", "/pods/full", `{"volumeEncrypted":false}`), 409, "pod_conflict", "volumeEncrypted can be set when the pod is made only")
	for _, path := range []string{"/pods/nobody", "/pods/nobody/update", "/pods/nobody/start"} {
		method := map[bool]string{true: "GET", false: "POST"}[path == "/pods/nobody"]
		s.expect(path, s.do(method, path, "{}"), 404, "pod_not_found", "no such pod")
	}
}

func TestAVolumeIsDirectlyBelowTheVolumeRoot(t *testing.T) {
	s := start(t)
	s.service.cfg.VolumeRoot = "/srv/volumes"
	has := func(what string, got answer, path string) {
		t.Helper()
		if s.expect(what, got, 200, "", ""); got.body["path"] != path {
			t.Errorf("%s: got %s, want the path %s", what, got.raw, path)
		}
	}
	has("below it", s.do("POST", "/networkvolumes", `{"name":"n","size":1,"path":"/srv/volumes/a"}`), "/srv/volumes/a")
	id, _ := s.do("POST", "/networkvolumes", `{"name":"n","size":1}`).body["id"].(string)
	for _, path := range []string{"/", "/srv", "/srv/volumes", "/srv/volumes/a/b", "/srv/volumes/../x", "/srv/volumes2/a", "/var/run/docker.sock"} {
		body := fmt.Sprintf(`{"name":"n","size":1,"path":%q}`, path)
		s.expect("make "+path, s.do("POST", "/networkvolumes", body), 400, "invalid_request", "path must be")
		s.expect("change to "+path, s.do("PATCH", "/networkvolumes/"+id, body), 400, "invalid_request", "path must be")
	}
	has("change", s.do("PATCH", "/networkvolumes/"+id, `{"path":"/srv/volumes/b"}`), "/srv/volumes/b")
	s.service.cfg.VolumeRoot = "" // what was made before keeps its path, and may be changed otherwise
	has("another name", s.do("PATCH", "/networkvolumes/"+id, `{"name":"m"}`), "/srv/volumes/b")
}

func TestTemplatesAndVolumes(t *testing.T) {
	s := start(t)
	for kind, body := range map[string][3]string{
		"templates":      {`{"name":"a","imageName":"i","env":{"TOKEN":"t0ken","A":"1"},"dockerStartCmd":["x"]}`, `{"readme":"r"}`, "templateId"},
		"networkvolumes": {`{"name":"a","size":10}`, `{"size":20}`, "networkVolumeId"},
	} {
		made := s.do("POST", "/"+kind, body[0])
		s.expect(kind, made, 200, "", "")
		id, _ := made.body["id"].(string)
		one := "/" + kind + "/" + id
		s.expect(one, s.do("GET", one, ""), 200, "", "")
		s.expect(one, s.do("PATCH", one, body[1]), 200, "", "")
		s.expect(one, s.do("POST", one+"/update", `{"name":"b"}`), 200, "", "")
		if list := s.do("GET", "/"+kind, ""); list.raw[0] != '[' || !strings.Contains(list.raw, id) || strings.Contains(list.raw, "t0ken") {
			t.Errorf("got %s, want a bare array with %s and no secret", list.raw, id)
		}
		user := s.do("POST", "/pods", fmt.Sprintf(`{"imageName":"busybox","env":{"A":"2"},%q:%q}`, body[2], id))
		s.expect("a pod of it", user, 201, "", "")
		testenv.Eventually(t, "it is in use", func() bool { return s.do("DELETE", one, "").body["code"] == "in_use" })
		podID, _ := user.body["id"].(string)
		if p, err := s.registry.Pods.Get(t.Context(), podID); kind == "templates" &&
			(err != nil || p.Spec.Env["TOKEN"] != "t0ken" || p.Spec.Env["A"] != "2" || len(p.Spec.Command) != 1) {
			t.Errorf("got %+v %v, want what the template has, and the pod's own on top", p, err)
		}
		s.do("DELETE", "/pods/"+podID, "")
		testenv.Eventually(t, "it is not in use", func() bool { return s.do("DELETE", one, "").status == 204 })
		for _, method := range []string{"GET", "PATCH", "DELETE"} {
			s.expect(method, s.do(method, one, "{}"), 404, "not_found", "no such")
		}
	}
}

func TestTheTemplateOfTheFormerVersionStaysWhileACanaryLasts(t *testing.T) {
	s := start(t)
	for _, id := range []string{"old", "new"} {
		if err := s.registry.Templates.Create(t.Context(), id, pod.Template{ID: id, Name: id, Spec: pod.Spec{Image: "worker:" + id}}); err != nil {
			t.Fatal(err)
		}
	}
	s.expect("create", s.do("POST", "/endpoints", `{"id":"ep","driver":"docker","templateId":"old","rollout":"canary:10%"}`), 200, "", "")
	s.expect("a canary", s.do("PATCH", "/endpoints/ep", `{"templateId":"new"}`), 200, "", "")
	s.expect("the former one", s.do("DELETE", "/templates/old", ""), 409, "in_use", "the template is in use by the endpoint ep")
	s.expect("the new one", s.do("DELETE", "/templates/new", ""), 409, "in_use", "the template is in use by the endpoint ep")
	s.expect("no canary", s.do("PATCH", "/endpoints/ep", `{"rollout":"replace","imageName":"worker:3"}`), 200, "", "")
	testenv.Eventually(t, "it is not in use", func() bool { return s.do("DELETE", "/templates/old", "").status == 204 })
}

func TestTheScopePodsLooksOnly(t *testing.T) {
	s := full(t)
	look, _ := s.do("POST", "/keys", `{"scopes":["pods"]}`).body["key"].(string)
	other, _ := s.do("POST", "/keys", `{"scopes":["admin:*"]}`).body["key"].(string)
	for _, path := range []string{"/pods", "/pods/full", "/templates", "/templates/t1", "/networkvolumes", "/networkvolumes/v1"} {
		s.expect(path, s.doAs(look, "GET", path, ""), 200, "", "")
		s.expect(path, s.doAs(other, "GET", path, ""), 401, "unauthorized", "")
	}
	for _, call := range []string{"POST /pods", "PATCH /pods/full", "POST /pods/full/stop", "DELETE /pods/full", "POST /templates", "GET /keys", "GET /endpoints"} {
		method, path, _ := strings.Cut(call, " ")
		s.expect(call, s.doAs(look, method, path, "{}"), 401, "unauthorized", "")
	}
	s.expect("a scope", s.do("POST", "/keys", `{"scopes":["pods:x"]}`), 400, "invalid_request", "pods takes no endpoint")
}
