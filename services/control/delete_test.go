package control

import (
	"errors"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/testenv"
)

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
	testenv.Eventually(t, "the deletion", func() bool { return s.do("DELETE", "/endpoints/ep1", "").status == 204 })
}

func TestDeleteWithJobsNeedsForce(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	e := s.endpoint("ep1")
	id := s.submit(e)
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
	e := s.endpoint("ep1")
	if _, err := s.queue.Counts.Stats(t.Context(), e); err != nil { // a count of 0 that stays valid for a second
		t.Fatal(err)
	}
	id := s.submit(e)
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
	testenv.Background(t, s.service.Run)
	testenv.Eventually(t, "the queue is made", func() bool { _, err := s.queue.Counts.Stats(t.Context(), halfMade); return err == nil })
	testenv.Eventually(t, "the deletion is completed", func() bool {
		_, err := s.registry.Endpoints.Find(t.Context(), halfGone.ID)
		return errors.Is(err, endpoint.ErrNotFound)
	})
}

// A forced deletion that a crash ended goes on, with the jobs.
func TestRunCompletesAForcedDeletionWithJobs(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	e := s.endpoint("ep1")
	id := s.submit(e)
	if _, _, err := s.registry.Endpoints.MarkDeleting(t.Context(), e); err != nil { // by one who did not force it
		t.Fatal(err)
	}
	e.Force = true
	for range 2 { // a deletion that is not forced takes nothing back
		if marked, _, err := s.registry.Endpoints.MarkDeleting(t.Context(), e); err != nil || !marked.Force {
			t.Fatalf("got %+v, %v, want a mark with force", marked, err)
		}
		e.Force = false
	}
	s.expect("read meanwhile", s.do("GET", "/endpoints/ep1", ""), 404, "endpoint_not_found", "")
	s.expect("made meanwhile", s.do("POST", "/endpoints", `{"id":"ep1"}`), 409, "endpoint_exists", "endpoint ep1 is being deleted")
	if err := s.service.repair(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if j, err := s.queue.Status(t.Context(), e, id); err != nil || j.Status != job.Cancelled {
		t.Errorf("the job: got %+v, %v, want CANCELLED", j, err)
	}
	s.expect("made again", s.do("POST", "/endpoints", `{"id":"ep1"}`), 200, "", "")
}

// Without force it waits for the jobs.
func TestRunLeavesADeletionWithJobsAlone(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	s.do("POST", "/endpoints", `{"id":"ep2"}`)
	e := s.endpoint("ep1")
	id := s.submit(e)
	other := s.endpoint("ep2")
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

// A deletion that somebody asks for again while Run comes to it is no reason to leave the
// others.
func TestRunPassesOverADeletionThatIsCompletedMeanwhile(t *testing.T) {
	s := start(t)
	marked := map[string]endpoint.Endpoint{}
	for _, id := range []string{"a", "b", "c"} {
		s.do("POST", "/endpoints", `{"id":"`+id+`"}`)
		e, _, err := s.registry.Endpoints.MarkDeleting(t.Context(), s.endpoint(id))
		if err != nil {
			t.Fatal(err)
		}
		marked[id] = e
	}
	unlock, err := s.service.changing.Lock(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	repaired := make(chan error, 1)
	go func() { repaired <- s.service.repair(t.Context(), time.Now()) }()
	testenv.Eventually(t, "the first is deleted", func() bool {
		_, err := s.registry.Endpoints.Find(t.Context(), "a")
		return errors.Is(err, endpoint.ErrNotFound)
	})
	if err := s.service.destroy(t.Context(), marked["b"]); err != nil {
		t.Error(err)
	}
	unlock()
	if err := <-repaired; err != nil {
		t.Errorf("got %v", err)
	}
	if left, err := s.registry.Endpoints.Deleting(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("got %v, %v, want all deleted", left, err)
	}
}
