package conformance

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

func podLookup() []Scenario {
	const section = "Pod lookup"
	return []Scenario{
		{Name: "pod", Section: section, Shows: "`/v1/pods/{podId}` answers the pod; what fields there are have the contract's types", Needs: []string{needRest}, play: podFields},
		{Name: "pod-includes", Section: section, Shows: "the five `include…` are booleans; `machine` is there on request only", Needs: []string{needRest}, play: podIncludes},
		{Name: "pod-refused", Section: section, Shows: "an unknown pod is 404; without a key, or with a wrong one, 401", Needs: []string{needRest}, play: podRefused},
	}
}

// podShown is how long after its first job a worker's pod may be unknown.
const podShown = 5 * time.Second

// podID is the pod that is looked up: the one that was named, else the one
// that a job's record names.
func (p *play) podID() string {
	if p.w.cfg.Pod != "" {
		return p.w.cfg.Pod
	}
	endpoint := p.w.cfg.Endpoint
	worker := p.awaitStatus(endpoint, p.submit(endpoint, task{}, nil), "COMPLETED").text("workerId")
	for late := time.Now().Add(podShown); worker != "" && !p.done() && time.Now().Before(late); p.sleep(pollInterval) {
		if p.lookUp(worker, "?includeWorkers=true").status != http.StatusNotFound {
			return worker
		}
	}
	if !p.done() {
		p.skipped = "no pod is known: needs --pod"
	}
	return worker
}

func (p *play) lookUp(id, query string) answer {
	return p.send(call{method: "GET", path: "/v1/pods/" + id + query, rest: true})
}

// podTypes are the types of a pod's fields; null is one only where the
// contract says so.
var podTypes = map[string]string{
	"id": "string", "name": "string", "image": "string", "desiredStatus": "string", "adjustedCostPerHr": "number", "costPerHr": "number string",
	"aiApiId": "string null", "endpointId": "string null", "slsVersion": "integer", "consumerUserId": "string", "containerDiskInGb": "integer",
	"containerRegistryAuthId": "string", "cpuFlavorId": "string", "dockerEntrypoint": "array", "dockerStartCmd": "array", "env": "object",
	"gpu": "object", "interruptible": "boolean", "lastStartedAt": "string", "lastStatusChange": "string", "locked": "boolean", "machine": "object",
	"machineId": "string", "memoryInGb": "number", "networkVolume": "object", "portMappings": "object", "ports": "array", "publicIp": "string null",
	"savingsPlans": "array", "templateId": "string null", "vcpuCount": "number", "volumeEncrypted": "boolean", "volumeInGb": "integer", "volumeMountPath": "string",
}

func typeOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case json.Number:
		if _, err := v.Int64(); err == nil {
			return "integer"
		}
		return "number"
	}
	return "object"
}

func podFields(p *play) {
	id := p.podID()
	a := p.lookUp(id, "?includeWorkers=true&includeMachine=true&includeNetworkVolume=true&includeSavingsPlans=true&includeTemplate=true")
	p.want("/v1/pods/"+id, a, http.StatusOK)
	p.wantField("/v1/pods", a, "id", id)
	if a.object["desiredStatus"] != nil {
		p.wantField("/v1/pods", a, "desiredStatus", "RUNNING", "EXITED", "TERMINATED")
	}
	for field, types := range podTypes {
		value, has := a.object[field]
		got := typeOf(value)
		fits := slices.Contains(strings.Fields(types), got) || got == "integer" && strings.Contains(types, "number")
		p.failIf(has && !fits, "/v1/pods: got %s %.80s of type %s, want %s", field, asJSON(value), got, strings.ReplaceAll(types, " ", " or "))
	}
	name := a.text("name")
	p.failIf(len([]rune(name)) > 191, "/v1/pods: got a name of %d characters, want at most 191", len([]rune(name)))
}

func podIncludes(p *play) {
	id := p.podID()
	for _, name := range []string{"includeMachine", "includeNetworkVolume", "includeSavingsPlans", "includeTemplate", "includeWorkers"} {
		for _, value := range []string{"true", "false"} {
			query := "?" + name + "=" + value
			if name != "includeWorkers" {
				query += "&includeWorkers=true"
			}
			a := p.lookUp(id, query)
			p.want("/v1/pods"+query, a, http.StatusOK)
			_, has := a.object["machine"]
			p.failIf(has && name+value != "includeMachinetrue", "/v1/pods%s: got machine, want it with includeMachine=true only", query)
		}
		p.want("/v1/pods?"+name+"=perhaps", p.lookUp(id, "?"+name+"=perhaps"), http.StatusBadRequest)
	}
}

func podRefused(p *play) {
	p.want("/v1/pods of an unknown pod", p.lookUp("conform-no-such-pod", ""), http.StatusNotFound)
	for what, key := range map[string]string{"without a key": "", "with a wrong key": "Bearer conform-wrong-key"} {
		a := p.send(call{method: "GET", path: "/v1/pods/conform-no-such-pod", rest: true, header: map[string]string{"Authorization": key}})
		p.want("/v1/pods "+what, a, http.StatusUnauthorized)
	}
}
