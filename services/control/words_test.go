package control

import (
	"testing"
	"time"

	"flightline/shared/endpoint"
)

func TestAZeroIsANumberLikeAnyOther(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep"}`)
	for field, bound := range map[string]string{
		"idleTimeout": "1 and 3600 seconds", "scalerValue": "1 and 100000", "leaseMs": "10000 and 3600000", "ttlMs": "10000 and 604800000",
		"maxLostWorkers": "1 and 100", "maxQueueBytes": "33554432 and 1000000000000", "maxQueueJobs": "1 and 1000000000", "executionTimeoutMs": "5000 and 604800000", "retentionMs": "1000 and 604800000", "syncRetentionMs": "1000 and 300000",
	} {
		s.expect(field, s.do("POST", "/endpoints", `{"id":"x","`+field+`":0}`), 400, "invalid_request", field+" must be between "+bound)
		s.expect(field, s.do("PATCH", "/endpoints/ep", `{"`+field+`":0}`), 400, "invalid_request", field+" must be between "+bound)
		s.expect(field, s.do("PATCH", "/endpoints/ep", `{"`+field+`":null}`), 200, "", "")
	}
}

func TestAFleetCanBeTurnedOff(t *testing.T) {
	s := start(t)
	most := func(want float64, what string, got answer) {
		t.Helper()
		if got.status != 200 || got.body["workersMax"] != want {
			t.Errorf("%s: got %d %s, want workersMax %v", what, got.status, got.raw, want)
		}
	}
	most(0, "made without", s.do("POST", "/endpoints", `{"id":"off","workersMax":0}`))
	most(0, "shown", s.do("GET", "/endpoints/off", ""))
	most(0, "another change", s.do("PATCH", "/endpoints/off", `{"name":"n","workersMax":null}`))
	most(4, "on", s.do("PATCH", "/endpoints/off", `{"workersMax":4}`))
	most(0, "off", s.do("PATCH", "/endpoints/off", `{"workersMax":0}`))
	s.expect("a minimum", s.do("PATCH", "/endpoints/off", `{"workersMin":1}`), 400, "invalid_request", "workersMin must be between 0 and 0")
	most(3, "not said", s.do("POST", "/endpoints", `{"id":"on"}`))
	// A record from before: 0 was what nobody had said.
	if _, err := s.registry.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: "old", Created: time.Now()}); err != nil {
		t.Fatal(err)
	}
	most(3, "an old record", s.do("GET", "/endpoints/old", ""))
}

func TestATruthIsTrueOrFalse(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep"}`)
	for _, value := range []string{"", "yes", "maybe", "2"} {
		s.expect(value, s.do("DELETE", "/endpoints/ep?force="+value, ""), 400, "invalid_request", "force must be true or false")
		s.expect(value, s.do("GET", "/endpoints/ep/webhooks/deliveries?failed="+value, ""), 400, "invalid_request", "failed must be true or false")
	}
	s.expect("1", s.do("GET", "/endpoints/ep/webhooks/deliveries?failed=1&since=10m", ""), 200, "", "")
	s.expect("ago", s.do("POST", "/endpoints/ep/webhooks/replay", `{"since":"10m"}`), 200, "", "")
	s.expect("force", s.do("DELETE", "/endpoints/ep?force=true", ""), 204, "", "")
}

func TestWhatIsWrongIsNamedInTheDocumentsWords(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep"}`)
	for _, c := range []struct{ path, body, text string }{
		{"/pods", `{"imageName":1}`, "imageName must be a string"},
		{"/pods", `{"imageName":"i","env":{"A":1}}`, "env.A must be a string"},
		{"/pods", `{"imageName":"i","ports":["80/http",8]}`, "ports[1] must be a string"},
		{"/pods", `{"imageName":"i","containerDiskInGb":1048577}`, "containerDiskInGb must be between 0 and 1048576"},
		{"/pods", `{"imageName":"i","name":"a\u0000b"}`, "name must hold no control characters"},
		{"/templates", `{"name":"a\nb"}`, "name must hold no control characters"},
		{"/templates", `{"name":"t","dockerStartCmd":"x"}`, "dockerStartCmd must be an array"},
		{"/endpoints", `{"id":"x","limits":{"foo":1}}`, "limits.foo must be an object"},
		{"/endpoints", `{"id":"x","name":"a\u0000b"}`, "name must hold no control characters"},
		{"/keys", `{"name":"a\u0000b","scopes":["control"]}`, "name must hold no control characters"},
		// Requests that RunPod does not have take what there is only.
		{"/keys", `{"scopes":["control"],"expires":1}`, "expires is not a known field"},
		{"/endpoints/ep/pause", `{"for":"1m"}`, "for is not a known field"},
		{"/endpoints/ep/pause", `{"durationMs":0}`, "durationMs must be between 1000"},
		{"/endpoints/ep/pause", `{"durationMs":1000} x`, "not valid JSON"},
		{"/endpoints/ep/workers", `{"worker":"w"}`, "worker is not a known field"},
		{"/endpoints/ep/webhooks/secret", `{"overlap":"1h"}`, "overlap is not a known field"},
		{"/endpoints/ep/webhooks/replay", `{"jobs":"x"}`, "jobs is not a known field"},
	} {
		s.expect(c.path+c.body, s.do("POST", c.path, c.body), 400, "invalid_request", c.text)
	}
	s.expect("RunPod's", s.do("PATCH", "/endpoints/ep", `{"flashboot":true}`), 200, "", "")
	s.expect("a key", s.do("DELETE", "/keys/x", ""), 404, "not_found", "no such key")
	s.expect("a worker", s.do("DELETE", "/endpoints/ep/workers/w", ""), 404, "not_found", "no such worker")
}
