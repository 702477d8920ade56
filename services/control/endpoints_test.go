package control

import (
	"fmt"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/job"
	"flightline/shared/queue"
)

func TestCreateFillsInTheDefaults(t *testing.T) {
	s := start(t)
	got := s.do("POST", "/endpoints", `{"id":"ep1","flashboot":true,"gpuTypeIds":["NVIDIA L4"]}`)
	s.expect("create", got, 200, "", "")
	want := map[string]any{
		"id": "ep1", "name": "ep1", "version": 1.0, "workersMin": 0.0, "workersMax": 3.0,
		"gpuTypeIds":         []any{"NVIDIA L4"},
		"gpuCount":           1.0,
		"executionTimeoutMs": 600000.0, "ttlMs": 86400000.0, "leaseMs": 30000.0, "retentionMs": 1800000.0,
		"syncRetentionMs": 60000.0, "maxLostWorkers": 3.0, "maxQueueBytes": 10737418240.0, "maxQueueJobs": 1000000.0, "requestsPerWorker": 0.0, "streamFormat": "auto",
		"scalerType": "QUEUE_DELAY", "scalerValue": 4.0, "idleTimeout": 5.0, "driver": "external", "env": map[string]any{},
		"limits": map[string]any{}, "partition": got.body["partition"], "webhookSecret": got.body["webhookSecret"], "createdAt": got.body["createdAt"],
	}
	if diff := cmp.Diff(want, got.body); diff != "" {
		t.Error(diff)
	}
	if secret := fmt.Sprint(got.body["webhookSecret"]); !regexp.MustCompile(`^whsec_[A-Za-z0-9+/]{43}=$`).MatchString(secret) {
		t.Errorf("got a webhook secret of another form, %d characters", len(secret))
	}
	if at, err := time.Parse(time.RFC3339, fmt.Sprint(got.body["createdAt"])); err != nil || time.Since(at) > time.Minute {
		t.Errorf("createdAt: got %v", got.body["createdAt"])
	}
	e := s.endpoint("ep1")
	if _, err := s.queue.Submit(t.Context(), e, queue.NewID(job.Async), job.Async, job.Request{Input: []byte(`{}`)}); err != nil {
		t.Errorf("its queue takes jobs at once: %v", err)
	}
}

func TestCreateMakesUpAnID(t *testing.T) {
	s := start(t)
	seen := map[string]bool{}
	for range 5 {
		id, _ := s.do("POST", "/endpoints", `{"name":"same name"}`).body["id"].(string)
		if !regexp.MustCompile(`^[a-z0-9]{10}$`).MatchString(id) || seen[id] {
			t.Errorf("got id %q", id)
		}
		seen[id] = true
	}
}

func TestEndpointsSpreadOverThePartitions(t *testing.T) {
	s := start(t)
	seen := map[any]bool{}
	for i := range 16 {
		seen[s.do("POST", "/endpoints", fmt.Sprintf(`{"id":"ep%d"}`, i)).body["partition"]] = true
	}
	for p := range seen {
		if n, ok := p.(float64); !ok || n < 0 || n > 3 {
			t.Errorf("got partition %v, want 0 to 3", p)
		}
	}
	if len(seen) < 2 {
		t.Errorf("all are in one partition: %v", seen)
	}
}

func TestTwoThatCreateTheSameIDOneWins(t *testing.T) {
	s := start(t)
	statuses := make([]int, 8)
	var wg sync.WaitGroup
	for i := range statuses {
		wg.Go(func() { statuses[i] = s.do("POST", "/endpoints", `{"id":"ep1"}`).status })
	}
	wg.Wait()
	won := 0
	for _, status := range statuses {
		switch status {
		case 200:
			won++
		case 409:
		default:
			t.Errorf("got %d", status)
		}
	}
	if won != 1 {
		t.Errorf("%d won, want 1", won)
	}
	s.expect("again", s.do("POST", "/endpoints", `{"id":"ep1"}`), 409, "endpoint_exists", "exists")
}

// A file system that ignores case would have both queues in one folder.
func TestAnIDThatDiffersOnlyInCaseIsTaken(t *testing.T) {
	s := start(t)
	s.expect("first", s.do("POST", "/endpoints", `{"id":"llama-8b"}`), 200, "", "")
	s.expect("second", s.do("POST", "/endpoints", `{"id":"Llama-8B"}`), 409, "endpoint_exists", `"Llama-8B" differs only in case from that of the endpoint "llama-8b"`)
	s.expect("another", s.do("POST", "/endpoints", `{"id":"Llama-9B"}`), 200, "", "")
}

func TestListAndGet(t *testing.T) {
	s := start(t)
	if got := s.do("GET", "/endpoints", ""); got.raw != "[]" {
		t.Errorf("none: got %s, want a bare empty array", got.raw)
	}
	second := s.do("POST", "/endpoints", `{"id":"b"}`)
	first := s.do("POST", "/endpoints", `{"id":"a"}`)
	if got := s.do("GET", "/endpoints", ""); got.raw != "["+first.raw+","+second.raw+"]" {
		t.Errorf("got %s", got.raw)
	}
	if got := s.do("GET", "/endpoints/a", ""); got.raw != first.raw {
		t.Errorf("got %s, want %s", got.raw, first.raw)
	}
	s.expect("unknown", s.do("GET", "/endpoints/nobody", ""), 404, "endpoint_not_found", "no such endpoint")
}

func TestUpdateChangesWhatIsGivenAndNothingElse(t *testing.T) {
	s := start(t)
	made := s.do("POST", "/endpoints", `{"id":"ep1","workersMax":7,"limits":{"run":{"requests":5,"concurrent":1}}}`)
	got := s.do("PATCH", "/endpoints/ep1", `{"name":"new","leaseMs":60000,"ttlMs":null}`)
	s.expect("patch", got, 200, "", "")
	want := made.body
	want["name"], want["leaseMs"], want["version"] = "new", 60000.0, 2.0
	if diff := cmp.Diff(want, got.body); diff != "" {
		t.Error(diff)
	}
	stream, err := s.bus.JS.Stream(t.Context(), "JOBS_ep1")
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := stream.Consumer(t.Context(), "normal")
	if err != nil || consumer.CachedInfo().Config.AckWait != time.Minute {
		t.Errorf("the lease is not applied: %+v, %v", consumer, err)
	}
	if again := s.do("POST", "/endpoints/ep1/update", `{"leaseMs":30000,"id":"ep1"}`); again.body["leaseMs"] != 30000.0 || again.body["version"] != 3.0 {
		t.Errorf("got %s, want the lease changed", again.raw)
	}
	s.expect("another id", s.do("PATCH", "/endpoints/ep1", `{"id":"ep2"}`), 400, "invalid_request", "id cannot be changed")
	s.expect("unknown", s.do("PATCH", "/endpoints/nobody", `{}`), 404, "endpoint_not_found", "no such endpoint")
}
