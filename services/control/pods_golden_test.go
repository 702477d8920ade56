package control

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"flightline/shared/pod"
	"flightline/shared/testenv"
)

var update = flag.Bool("update", false, "write the golden files anew")

// someCatalog has every field that there is.
const someCatalog = `{
 "gpuTypes": {"NVIDIA L4": {"displayName": "L4", "securePrice": 0.5, "communityPrice": 0.375, "oneMonthPrice": 0.45,
  "threeMonthPrice": 0.44, "sixMonthPrice": 0.43, "oneWeekPrice": 0.47, "communitySpotPrice": 0.25, "secureSpotPrice": 0.3}},
 "cpuTypes": {"AMD EPYC 7763": {"displayName": "EPYC 7763", "groupId": "EPYC", "flavorId": "cpu3c", "vcpuPrice": 0.125}},
 "machines": {"m1": {"location": "EU", "dataCenterId": "EU-1", "minPodGpuCount": 1, "diskThroughputMBps": 1500, "maxDownloadSpeedMbps": 900,
  "maxUploadSpeedMbps": 800, "supportPublicIp": true, "secureCloud": true, "maintenanceStart": "2026-12-01T00:00:00.000Z",
  "maintenanceEnd": "2026-12-02T00:00:00.000Z", "maintenanceNote": "new disks", "note": "in the cellar", "costPerHr": 2}},
 "savingsPlans": [{"id": "plan1", "podId": "full", "gpuTypeId": "NVIDIA L4", "costPerHr": 0.25,
  "startTime": "2020-01-01T00:00:00Z", "endTime": "2120-01-01T00:00:00Z"}]}`

var (
	born    = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	started = born.Add(1500 * time.Millisecond)
)

// fullPod has every field that there is.
func fullPod() pod.Pod {
	return pod.Pod{
		ID: "full", Name: "the whole pod", Status: pod.Running, Endpoint: "upper", EndpointVersion: 3, Owner: "k1", Driver: pod.Docker,
		Spec: pod.Spec{
			Image: "me/worker:1", Entrypoint: []string{"/entry"}, Command: []string{"python", "handler.py"},
			Env:   map[string]string{"MODEL": "small", "HF_TOKEN": "hf_secret"},
			Ports: []string{"8888/http", "22/tcp"}, GPUs: 2, VCPUs: 8, MemoryGB: 62.5, DiskGB: 50, VolumeGB: 20, VolumePath: "/workspace",
			VolumeEncrypted: true, RegistryAuthID: "reg1", Capabilities: []string{"CHOWN"},
		},
		TemplateID: "t1", VolumeID: "v1", Locked: true, Interruptible: true, MachineID: "m1",
		Machine: pod.Machine{
			Hostname: "host-1", OS: "linux", Arch: "amd64", CPU: pod.CPU{Model: "AMD EPYC 7763", Vendor: "AuthenticAMD", Cores: 64, Threads: 128},
			VCPUs: 128, MemoryGB: 512, DiskGB: 1000, Addresses: []string{"10.0.0.1"}, GPUDriver: "570.1", Version: "1.0",
			GPUs: []pod.GPU{{Name: "NVIDIA L4", UUID: "GPU-1", MemoryGB: 24}, {Name: "NVIDIA L4"}, {Name: "NVIDIA L4"}},
		},
		PublicIP: "203.0.113.7", PortMappings: map[int]int{22: 10341}, Created: born, Started: started, Changed: started, Change: "Started",
		Phases: pod.Phases{Pulling: born, Starting: started, Loading: started.Add(time.Second), Ready: started.Add(42 * time.Second)},
	}
}

// full is an env with a catalogue, the full pod and what it is made from.
func full(t *testing.T) *env {
	t.Helper()
	s := start(t)
	catalog, err := pod.ParseCatalog([]byte(someCatalog))
	if err != nil {
		t.Fatal(err)
	}
	s.service.cfg.Catalog = catalog
	template := pod.Template{ID: "t1", Name: "worker", Spec: fullPod().Spec, Serverless: true, Category: "NVIDIA", Readme: "# Worker", Created: born}
	volume := pod.Volume{ID: "v1", Name: "models", SizeGB: 100, DataCenterID: "EU-1", Created: born}
	own := pod.Pod{ID: "own", Name: "own", Status: pod.Running, Endpoint: "upper", Created: born, Changed: born, Change: "Registered"}
	ctx := t.Context()
	for _, err := range []error{
		s.registry.Pods.Create(ctx, fullPod()), s.registry.Pods.Create(ctx, own),
		s.registry.Templates.Create(ctx, "t1", template), s.registry.Volumes.Create(ctx, "v1", volume),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

const allIncludes = "?includeMachine=true&includeNetworkVolume=1&includeSavingsPlans=true&includeTemplate=true&includeWorkers=true"

func TestGoldenPods(t *testing.T) {
	s := full(t)
	for file, path := range map[string]string{
		"pod-full.json": "/pods/full" + allIncludes, "pod-brief.json": "/pods/full", "pod-of-its-owner.json": "/pods/own" + allIncludes,
		"template.json": "/templates/t1", "volume.json": "/networkvolumes/v1",
	} {
		got := s.do("GET", path, "")
		s.expect(path, got, 200, "", "")
		if minutes, ok := got.body["runtimeInMin"].(float64); ok { // counts on
			got.raw = strings.Replace(got.raw, fmt.Sprintf(`"runtimeInMin":%v`, int(minutes)), `"runtimeInMin":0`, 1)
		}
		if template, ok := got.body["template"].(map[string]any); ok {
			got.raw = strings.Replace(got.raw, fmt.Sprintf(`"runtimeInMin":%v`, template["runtimeInMin"]), `"runtimeInMin":0`, 1)
		}
		golden(t, "testdata/"+file, got.raw)
	}
}

func golden(t *testing.T, file, raw string) {
	t.Helper()
	var got bytes.Buffer
	if err := json.Indent(&got, []byte(raw), "", "  "); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	got.WriteByte('\n')
	testenv.Golden(t, *update, file, got.String())
}

// The tables of the contract: each field with its type. A pod of which all is
// known has every one of them.
func TestPodHasEachFieldOfTheContract(t *testing.T) {
	gpu := map[string]string{
		"id": "string", "count": "integer", "displayName": "string", "securePrice": "number", "communityPrice": "number", "oneMonthPrice": "number",
		"threeMonthPrice": "number", "sixMonthPrice": "number", "oneWeekPrice": "number", "communitySpotPrice": "number", "secureSpotPrice": "number",
	}
	tables := map[string]map[string]string{
		"": {
			"id": "string", "name": "string", "image": "string", "desiredStatus": "string", "adjustedCostPerHr": "number", "costPerHr": "number",
			"aiApiId": "string", "endpointId": "string", "slsVersion": "integer", "consumerUserId": "string", "containerDiskInGb": "integer",
			"containerRegistryAuthId": "string", "dockerEntrypoint": "array", "dockerStartCmd": "array", "env": "object",
			"gpu": "object", "interruptible": "boolean", "lastStartedAt": "string", "lastStatusChange": "string", "locked": "boolean",
			"machine": "object", "machineId": "string", "memoryInGb": "number", "networkVolume": "object", "portMappings": "object", "ports": "array",
			"publicIp": "string", "savingsPlans": "array", "templateId": "string", "vcpuCount": "number", "volumeEncrypted": "boolean",
			"volumeInGb": "integer", "volumeMountPath": "string", "template": "object",
		},
		"gpu": gpu, "machine.gpuType": gpu,
		"machine": {
			"minPodGpuCount": "number", "gpuTypeId": "string", "gpuType": "object", "cpuCount": "number", "cpuTypeId": "string", "cpuType": "object",
			"location": "string", "dataCenterId": "string", "diskThroughputMBps": "number", "maxDownloadSpeedMbps": "number",
			"maxUploadSpeedMbps": "number", "supportPublicIp": "boolean", "secureCloud": "boolean", "maintenanceStart": "string",
			"maintenanceEnd": "string", "maintenanceNote": "string", "note": "string", "costPerHr": "number", "currentPricePerGpu": "number",
			"gpuAvailable": "number", "gpuDisplayName": "string",
		},
		"machine.cpuType": {"id": "string", "displayName": "string", "groupId": "string", "cores": "number", "threadsPerCore": "number"},
		"networkVolume":   {"id": "string", "name": "string", "size": "number", "dataCenterId": "string"},
		"savingsPlans": {
			"id": "string", "podId": "string", "gpuTypeId": "string", "costPerHr": "number", "startTime": "string", "endTime": "string",
		},
		"template": {
			"category": "string", "containerDiskInGb": "integer", "containerRegistryAuthId": "string", "dockerEntrypoint": "array",
			"dockerStartCmd": "array", "earned": "number", "env": "object", "id": "string", "imageName": "string", "isPublic": "boolean",
			"isRunpod": "boolean", "isServerless": "boolean", "name": "string", "ports": "array", "readme": "string", "runtimeInMin": "integer",
			"volumeInGb": "integer", "volumeMountPath": "string",
		},
	}
	s := full(t)
	body := s.do("GET", "/pods/full"+allIncludes, "").body
	for table, fields := range tables {
		for field, want := range fields {
			if got := kindOf(within(body, table)[field]); got != want && (want != "number" || got != "integer") {
				t.Errorf("%s.%s: got %s, want %s", table, field, got, want)
			}
		}
	}
	own := s.do("GET", "/pods/own", "")
	for field, want := range map[string]string{"publicIp": "null", "templateId": "null", "portMappings": "object", "machine": "absent"} {
		if got := kindOf(own.body[field]); got != want && (want != "absent" || strings.Contains(own.raw, `"`+field+`"`)) {
			t.Errorf("%s: got %s, want %s", field, got, want)
		}
	}
}

// within is the object at a path, or the first of a list there.
func within(body map[string]any, path string) map[string]any {
	for name := range strings.SplitSeq(path, ".") {
		if path == "" {
			break
		}
		next := body[name]
		if list, ok := next.([]any); ok && len(list) > 0 {
			next = list[0]
		}
		body, _ = next.(map[string]any)
	}
	return body
}

func kindOf(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	case float64:
		if v == float64(int(v)) {
			return "integer"
		}
		return "number"
	}
	return "something else"
}
