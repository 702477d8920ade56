package control

import (
	"errors"
	"fmt"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/queue"
)

func TestCreateFillsInTheDefaults(t *testing.T) {
	s := start(t)
	got := s.do("POST", "/endpoints", `{"id":"ep1","flashboot":true,"gpuTypeIds":["NVIDIA L4"]}`)
	s.expect("create", got, 200, "", "")
	want := map[string]any{
		"id": "ep1", "name": "ep1", "version": 1.0, "workersMin": 0.0, "workersMax": 3.0,
		"executionTimeoutMs": 600000.0, "ttlMs": 86400000.0, "leaseMs": 30000.0, "retentionMs": 1800000.0,
		"syncRetentionMs": 60000.0, "maxLostWorkers": 3.0, "requestsPerWorker": 0.0, "streamFormat": "auto",
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
	e, err := s.registry.Endpoints.Get(t.Context(), "ep1")
	if err != nil {
		t.Fatal(err)
	}
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

func TestDeleteWithoutJobs(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	if got := s.do("DELETE", "/endpoints/ep1", ""); got.status != 204 || got.raw != "" {
		t.Errorf("got %d %q, want 204 and nothing", got.status, got.raw)
	}
	s.expect("get", s.do("GET", "/endpoints/ep1", ""), 404, "endpoint_not_found", "")
	s.expect("again", s.do("DELETE", "/endpoints/ep1", ""), 404, "endpoint_not_found", "")
	if _, err := s.bus.JS.Stream(t.Context(), "JOBS_ep1"); err == nil {
		t.Error("its queue is still there")
	}
	s.expect("made again", s.do("POST", "/endpoints", `{"id":"ep1"}`), 200, "", "")
}

func TestAnEndpointWithALockedWorkerIsNotDeleted(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	for _, p := range []pod.Pod{
		{ID: "kept", Locked: true, Status: pod.Running}, {ID: "gone", Locked: true, Status: pod.Exited}, {ID: "free", Status: pod.Running},
	} {
		p.Name, p.Endpoint, p.Driver, p.Spec.Command = p.ID, "ep1", pod.Process, []string{"x"}
		if err := s.registry.Pods.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/endpoints/ep1", "/endpoints/ep1?force=true"} {
		s.expect(path, s.do("DELETE", path, ""), 409, "pod_conflict", "locked: kept")
	}
	s.expect("it serves", s.do("GET", "/endpoints/ep1", ""), 200, "", "")
	s.expect("unlock", s.do("PATCH", "/pods/kept", `{"locked":false}`), 200, "", "")
	eventually(t, "the deletion", patience, func() bool { return s.do("DELETE", "/endpoints/ep1", "").status == 204 })
}

func TestDeleteWithJobsNeedsForce(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	e, err := s.registry.Endpoints.Get(t.Context(), "ep1")
	if err != nil {
		t.Fatal(err)
	}
	id := queue.NewID(job.Async)
	if _, err := s.queue.Submit(t.Context(), e, id, job.Async, job.Request{Input: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	s.expect("no force", s.do("DELETE", "/endpoints/ep1", ""), 409, "endpoint_busy", "force=true")
	s.expect("it still serves", s.do("GET", "/endpoints/ep1", ""), 200, "", "")
	s.expect("force", s.do("DELETE", "/endpoints/ep1?force=true", ""), 204, "", "")
	j, err := s.queue.Status(t.Context(), e, id)
	if err != nil || j.Status != job.Cancelled {
		t.Errorf("the job: got %+v, %v, want CANCELLED", j, err)
	}
}

// A job that is accepted while nobody looks, after the first count and before
// the mark, must not be cancelled by a deletion that was not forced.
func TestAJobAcceptedJustBeforeTheMarkKeepsItsEndpoint(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	e, err := s.registry.Endpoints.Get(t.Context(), "ep1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.queue.Stats(t.Context(), e); err != nil { // a count of 0 that stays valid for a second
		t.Fatal(err)
	}
	id := queue.NewID(job.Async)
	if _, err := s.queue.Submit(t.Context(), e, id, job.Async, job.Request{Input: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	s.expect("delete", s.do("DELETE", "/endpoints/ep1", ""), 409, "endpoint_busy", "")
	s.expect("it serves again", s.do("GET", "/endpoints/ep1", ""), 200, "", "")
	if j, err := s.queue.Status(t.Context(), e, id); err != nil || j.Status != job.InQueue {
		t.Errorf("the job: got %+v, %v, want IN_QUEUE", j, err)
	}
}

func TestRunCompletesWhatACrashLeft(t *testing.T) {
	s := start(t)
	create := func(id string) endpoint.Endpoint {
		e, err := s.registry.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: id, Created: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	halfMade, halfGone := create("half-made"), create("half-gone")
	if _, _, err := s.registry.Endpoints.MarkDeleting(t.Context(), halfGone); err != nil {
		t.Fatal(err)
	}
	background(t, s.service.Run)
	eventually(t, "the queue is made", patience, func() bool { _, err := s.queue.Stats(t.Context(), halfMade); return err == nil })
	eventually(t, "the deletion is completed", patience, func() bool {
		_, err := s.registry.Endpoints.Find(t.Context(), halfGone.ID)
		return errors.Is(err, endpoint.ErrNotFound)
	})
}

// Somebody else may be in the middle of a forced deletion that takes its time.
func TestRunLeavesADeletionWithJobsAlone(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	s.do("POST", "/endpoints", `{"id":"ep2"}`)
	e, err := s.registry.Endpoints.Get(t.Context(), "ep1")
	if err != nil {
		t.Fatal(err)
	}
	id := queue.NewID(job.Async)
	if _, err := s.queue.Submit(t.Context(), e, id, job.Async, job.Request{Input: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	other, err := s.registry.Endpoints.Get(t.Context(), "ep2")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []endpoint.Endpoint{e, other} {
		if _, _, err := s.registry.Endpoints.MarkDeleting(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.service.repair(t.Context(), time.Time{}); err != nil {
		t.Fatal(err)
	}
	left, err := s.registry.Endpoints.Deleting(t.Context())
	if err != nil || len(left) != 1 || left[0].ID != "ep1" {
		t.Errorf("got %+v, %v, want ep1 alone, still marked", left, err)
	}
	if j, err := s.queue.Status(t.Context(), e, id); err != nil || j.Status != job.InQueue {
		t.Errorf("the job: got %+v, %v, want IN_QUEUE", j, err)
	}
	s.expect("asked again", s.do("DELETE", "/endpoints/ep1", ""), 409, "endpoint_busy", "")
	s.expect("forced", s.do("DELETE", "/endpoints/ep1?force=true", ""), 204, "", "")
}
